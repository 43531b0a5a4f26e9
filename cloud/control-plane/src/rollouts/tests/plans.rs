//! The plan alone, over everything that can happen to members.

use proptest::prelude::*;

use super::*;
use crate::rollouts::plan::{Member, Next, Standing, next, retried};

/// What happens to a member in a turn.
#[derive(Debug, Clone, Copy)]
enum Luck {
    Good,
    Fails,
    /// Its policy is to keep what failed.
    FailsAndKeeps,
    Sick,
    Deleted,
    Away,
}

fn any_luck() -> impl Strategy<Value = Luck> {
    prop_oneof![
        6 => Just(Luck::Good),
        1 => Just(Luck::Fails),
        1 => Just(Luck::FailsAndKeeps),
        1 => Just(Luck::Sick),
        1 => Just(Luck::Deleted),
        1 => Just(Luck::Away),
    ]
}

fn members(count: usize) -> Vec<Member> {
    (0..)
        .take(count)
        .map(|position| Member {
            position,
            name: format!("web-{position}"),
            state: MemberState::Pending,
            standing: Standing::Ready,
            is_busy: false,
            has_original: true,
            error: None,
        })
        .collect()
}

/// Lets what is under way end.
fn settle(members: &mut [Member], luck: Luck) {
    for member in members.iter_mut().filter(|member| member.state.is_under_way()) {
        let goes_back = member.state == MemberState::Restoring;
        let (state, has_original) = match luck {
            Luck::Fails | Luck::FailsAndKeeps if goes_back => (MemberState::RestoreFailed, false),
            Luck::Fails => (MemberState::Failed, true),
            Luck::FailsAndKeeps => (MemberState::Failed, false),
            Luck::Deleted => (MemberState::Gone, false),
            _ if goes_back => (MemberState::Restored, true),
            _ => (MemberState::Updated, false),
        };
        (member.state, member.has_original) = (state, has_original);
        member.standing = match luck {
            Luck::Sick => Standing::Unready("sick".to_owned()),
            Luck::Deleted => Standing::Gone,
            Luck::Away => Standing::Away("alpha".to_owned()),
            _ => Standing::Ready,
        };
    }
}

proptest! {
    #[test]
    fn a_rollout_ends_or_waits_for_somebody_and_never_takes_too_many(
        count in 1..6_usize, at_once in 1..4_usize, roll_back: bool,
        turns in prop::collection::vec(any_luck(), 1..60),
    ) {
        let at_once = at_once.min(count.saturating_sub(1).max(1));
        let on_failure = if roll_back { OnFailure::RollBack } else { OnFailure::Pause };
        let (mut members, mut state) = (members(count), RolloutState::Running);
        let mut turns = turns.into_iter().chain(std::iter::repeat(Luck::Good));
        for _ in 0..200 {
            match next(state, on_failure, at_once, &members) {
                Next::Change(position) => {
                    let all_well = members.iter().filter(|member| member.state == MemberState::Updated)
                        .all(|member| matches!(member.standing, Standing::Ready | Standing::Off | Standing::Gone));
                    prop_assert!(all_well, "the next one begins only when the changed ones do well");
                    let member = members.iter_mut().find(|member| member.position == position).unwrap();
                    prop_assert_eq!(member.state, MemberState::Pending);
                    member.state = MemberState::Updating;
                }
                Next::Restore(position) => {
                    let member = members.iter_mut().find(|member| member.position == position).unwrap();
                    prop_assert!(matches!(member.state, MemberState::Updated | MemberState::Failed | MemberState::Pending));
                    prop_assert!(!member.has_original);
                    member.state = MemberState::Restoring;
                }
                Next::Move(event, _) => {
                    let to = state.after(event);
                    prop_assert!(to.is_some(), "{state} knows no {event}");
                    state = to.unwrap();
                }
                Next::Wait => settle(&mut members, turns.next().unwrap()),
                Next::WaitForReady(_) => {
                    for member in members.iter_mut().filter(|member| matches!(member.standing, Standing::Unready(_))) {
                        member.standing = Standing::Ready;
                    }
                }
            }
            let under_way = members.iter().filter(|member| member.state.is_under_way()).count();
            prop_assert!(under_way <= at_once);
            if state.is_final() {
                break;
            }
            if matches!(state, RolloutState::Paused | RolloutState::RollbackPaused) && under_way == 0 {
                // Somebody looks after it.
                for member in &mut members {
                    if matches!(member.standing, Standing::Away(_)) {
                        member.standing = Standing::Ready;
                    }
                }
                state = state.after(RolloutEvent::Resume).unwrap();
                let (from, to) = retried(state);
                for member in members.iter_mut().filter(|member| member.state == from) {
                    member.state = to;
                }
            }
        }
        prop_assert!(state.is_final(), "it got to an end: {} {:?}", state, members);
        let living = members.iter().filter(|member| member.standing != Standing::Gone);
        for member in living {
            prop_assert_eq!(member.has_original, state == RolloutState::RolledBack, "{} {:?}", state, member);
        }
    }
}
