//! Credit of a key, and what requests under way may cost of it.

use std::sync::Arc;

use parking_lot::Mutex;
use rust_decimal::Decimal;

/// What is set aside of a key's credit.
#[derive(Debug, Default)]
pub(super) struct Credit(Mutex<Decimal>);

/// Why nothing is set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoCredit {
    /// It is spent.
    Spent,
    /// What is left may be used up by requests under way.
    SetAside,
}

/// A part of a key's credit that is set aside for a request, until it is dropped.
#[derive(Debug)]
pub struct Reservation {
    credit: Arc<Credit>,
    amount: Decimal,
    /// What was set aside for it before, of the same credit.
    first: Option<Arc<Reservation>>,
}

impl Credit {
    /// Sets an estimate aside. `spent` tells what is recorded as spent.
    ///
    /// A key that has anything left may always have one request under way, whatever it is estimated to cost; more
    /// together only as far as their estimates fit into what is left. So a key spends at most what its requests under
    /// way cost beyond their estimates, or what one single request costs.
    pub(super) fn reserve<E>(
        self: &Arc<Self>,
        limit: Decimal,
        estimate: Decimal,
        spent: impl FnOnce() -> Result<Decimal, E>,
    ) -> Result<Result<Reservation, NoCredit>, E> {
        let outcome = self.set_aside(Decimal::ZERO, limit, estimate, spent)?;
        Ok(outcome.map(|()| Reservation { credit: Arc::clone(self), amount: estimate, first: None }))
    }

    /// Sets an estimate aside in the place of what the same request has.
    fn set_aside<E>(
        &self,
        own: Decimal,
        limit: Decimal,
        estimate: Decimal,
        spent: impl FnOnce() -> Result<Decimal, E>,
    ) -> Result<Result<(), NoCredit>, E> {
        let mut set_aside = self.0.lock();
        // A request that ends is recorded first, and free afterwards: with the lock held, it counts once or twice.
        let left = limit.saturating_sub(spent()?);
        if left <= Decimal::ZERO {
            return Ok(Err(NoCredit::Spent));
        }
        let others = set_aside.saturating_sub(own);
        if !others.is_zero() && others.saturating_add(estimate) > left {
            return Ok(Err(NoCredit::SetAside));
        }
        *set_aside = others.saturating_add(estimate);
        Ok(Ok(()))
    }
}

impl Reservation {
    /// Sets aside what a better estimate says, where that is more; as [`Credit::reserve`] would have, without what it has.
    pub(super) fn raise<E>(
        self: &Arc<Self>,
        limit: Decimal,
        estimate: Decimal,
        spent: impl FnOnce() -> Result<Decimal, E>,
    ) -> Result<Result<Arc<Self>, NoCredit>, E> {
        let own = self.whole();
        if estimate <= own {
            return Ok(Ok(Arc::clone(self)));
        }
        let outcome = self.credit.set_aside(own, limit, estimate, spent)?;
        let amount = estimate.saturating_sub(own);
        let raised = || Self { credit: Arc::clone(&self.credit), amount, first: Some(Arc::clone(self)) };
        Ok(outcome.map(|()| Arc::new(raised())))
    }

    fn whole(&self) -> Decimal {
        self.amount + self.first.as_ref().map_or(Decimal::ZERO, |first| first.whole())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut set_aside = self.credit.0.lock();
        *set_aside = set_aside.saturating_sub(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    fn reserve(
        credit: &Arc<Credit>,
        limit: u64,
        estimate: u64,
        spent: Decimal,
    ) -> Result<Reservation, NoCredit> {
        let Ok(outcome) = credit.reserve(limit.into(), estimate.into(), || Ok::<_, Infallible>(spent));
        outcome
    }

    #[test]
    fn one_request_may_always_run() {
        let credit = Arc::default();
        let first = reserve(&credit, 10, 100, Decimal::from(9)).unwrap();
        assert_eq!(reserve(&credit, 10, 0, Decimal::from(9)).unwrap_err(), NoCredit::SetAside);
        assert_eq!(reserve(&credit, 10, 0, Decimal::from(10)).unwrap_err(), NoCredit::Spent);
        drop(first);
        reserve(&credit, 10, 1, Decimal::from(9)).unwrap();
    }

    #[test]
    fn an_estimate_that_was_too_low_is_raised_as_far_as_others_leave() {
        let credit = Arc::default();
        let raise = |reservation: &Arc<Reservation>, estimate: u64| {
            let Ok(outcome) =
                reservation.raise(10.into(), estimate.into(), || Ok::<_, Infallible>(Decimal::ZERO));
            outcome
        };
        let first = Arc::new(reserve(&credit, 10, 2, Decimal::ZERO).unwrap());
        let other = Arc::new(reserve(&credit, 10, 3, Decimal::ZERO).unwrap());
        assert_eq!(raise(&first, 8).unwrap_err(), NoCredit::SetAside);
        let raised = raise(&raise(&first, 6).unwrap(), 7).unwrap();
        assert_eq!(raise(&other, 4).unwrap_err(), NoCredit::SetAside);
        assert_eq!(raise(&raised, 1).unwrap().whole(), Decimal::from(7));
        drop((first, raised));
        // Alone, it may cost anything.
        assert_eq!(raise(&other, 100).unwrap().whole(), Decimal::from(100));
        drop(other);
        assert_eq!(*credit.0.lock(), Decimal::ZERO);
    }

    proptest! {
        /// Whatever comes and goes: if requests cost no more than estimated, no more than the credit is spent, but
        /// by one request that ran alone.
        #[test]
        fn nothing_is_spent_twice(steps in prop::collection::vec((0_u64..40, any::<bool>()), 1..100), limit in 1_u64..100) {
            let (credit, mut spent, mut under_way) = (Arc::default(), Decimal::ZERO, Vec::new());
            for (estimate, ends) in steps {
                if ends && !under_way.is_empty() {
                    let reservation: Reservation = under_way.remove(0);
                    spent += reservation.amount;
                    continue;
                }
                let alone = under_way.iter().all(|request: &Reservation| request.amount.is_zero());
                match reserve(&credit, limit, estimate, spent) {
                    Ok(reservation) => {
                        let whole = under_way.iter().map(|request| request.amount).sum::<Decimal>() + reservation.amount;
                        prop_assert!(spent < Decimal::from(limit));
                        prop_assert!(alone || spent + whole <= Decimal::from(limit));
                        under_way.push(reservation);
                    }
                    Err(NoCredit::Spent) => prop_assert!(spent >= Decimal::from(limit)),
                    Err(NoCredit::SetAside) => prop_assert!(!alone && spent < Decimal::from(limit)),
                }
            }
            under_way.clear();
            prop_assert_eq!(*credit.0.lock(), Decimal::ZERO);
        }
    }
}
