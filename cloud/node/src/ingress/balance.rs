//! Which replica gets a request.
//!
//! The one with the fewest streams of this ingress under way; among equally busy ones those of this node
//! first, which are a hop nearer, and then each in turn. An app has few replicas, and the counts are this
//! ingress' own and exact: looking at all of them costs next to nothing and, unlike a choice of two by
//! chance, spreads even a handful of long streams evenly.

/// What counts for one candidate. The smallest rank gets the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// This request was tried there already.
    pub(super) tried: bool,
    /// It failed a moment ago. One that fails fast would otherwise always be the least busy.
    pub(super) failing: bool,
    /// Streams under way there.
    pub(super) streams: usize,
    /// It is behind another node.
    pub(super) remote: bool,
}

/// The candidates in the order in which they are asked. `turn` counts up with every request.
pub(super) fn in_order<T>(mut candidates: Vec<(Rank, T)>, turn: usize) -> impl Iterator<Item = T> {
    candidates.sort_by_key(|(rank, _)| *rank);
    let best = candidates.first().map(|(rank, _)| *rank);
    let equals = candidates.iter().take_while(|(rank, _)| Some(*rank) == best).count();
    if let (Some(equal), Some(start)) = (candidates.get_mut(..equals), turn.checked_rem(equals)) {
        equal.rotate_left(start);
    }
    candidates.into_iter().map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IDLE: Rank = Rank { tried: false, failing: false, streams: 0, remote: false };

    fn first(candidates: &[(Rank, char)], turn: usize) -> char {
        in_order(candidates.to_vec(), turn).next().unwrap()
    }

    #[test]
    fn the_least_busy_then_the_nearest_then_each_in_turn() {
        let busy = Rank { streams: 3, ..IDLE };
        let remote = Rank { remote: true, ..IDLE };
        let failing = Rank { failing: true, ..IDLE };
        let tried = Rank { tried: true, ..IDLE };
        assert_eq!(first(&[(busy, 'a'), (remote, 'b')], 0), 'b');
        assert_eq!(first(&[(remote, 'a'), (IDLE, 'b')], 7), 'b');
        assert_eq!(first(&[(failing, 'a'), (busy, 'b')], 0), 'b');
        assert_eq!(first(&[(tried, 'a'), (failing, 'b')], 0), 'b');
        let candidates = [(busy, 'a'), (IDLE, 'b'), (IDLE, 'c'), (remote, 'd')];
        let chosen: String = (0..4).map(|turn| first(&candidates, turn)).collect();
        assert_eq!(chosen, "bcbc");
        assert_eq!(in_order(Vec::<(Rank, char)>::new(), 5).count(), 0);
    }

    fn rank() -> impl Strategy<Value = Rank> {
        (any::<bool>(), any::<bool>(), 0usize..3, any::<bool>())
            .prop_map(|(tried, failing, streams, remote)| Rank { tried, failing, streams, remote })
    }

    proptest! {
        #[test]
        fn everyone_is_asked_once_and_the_best_first(
            ranks in prop::collection::vec(rank(), 0..12),
            turn: usize,
        ) {
            let candidates: Vec<_> = ranks.iter().copied().zip(0usize..).collect();
            let order: Vec<_> = in_order(candidates, turn).collect();
            let in_rank: Vec<_> = order.iter().map(|index| ranks[*index]).collect();
            prop_assert!(in_rank.is_sorted());
            let mut seen = order.clone();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..ranks.len()).collect::<Vec<_>>());
        }

        #[test]
        fn with_streams_that_never_end_nobody_gets_two_more_than_another(count in 1usize..8, requests in 0usize..50) {
            let mut streams = vec![0; count];
            for turn in 0..requests {
                let candidates =
                    streams.iter().map(|streams| Rank { streams: *streams, ..IDLE }).zip(0usize..).collect();
                streams[in_order(candidates, turn).next().unwrap()] += 1;
            }
            prop_assert!(streams.iter().max().unwrap() - streams.iter().min().unwrap() <= 1);
        }
    }
}
