//! What happens to CVMs, and when.

use proptest::prelude::*;

use crate::metering::tests::{HOUR, MINUTE};

/// What somebody does, or what happens.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    Start {
        succeeds: bool,
    },
    /// Without word of the node when the VM ended.
    Stop {
        silently: bool,
    },
    Restart {
        succeeds: bool,
    },
    Resize {
        vcpu: i64,
        disk: i64,
        outcome: Outcome,
    },
    /// The VM ends by itself.
    Exit,
    /// The guest says that it is not up, and that it is.
    Lie,
    /// The node does not know the VM any more.
    Vanish,
    /// The node is silent, this many minutes.
    Silence {
        minutes: i64,
    },
    Reprice {
        cents: u32,
    },
    Delete,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome {
    Healthy,
    RolledBack,
    KeptInError,
}

/// What comes between two transactions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    pub(super) advance_ms: i64,
    /// The control plane dies before the next one is committed, and another one does it.
    pub(super) dies: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Whether each CVM has a GPU, and whether its creation succeeds.
    pub(super) cvms: Vec<(bool, bool)>,
    pub(super) acts: Vec<(usize, Act)>,
    pub(super) gaps: Vec<Gap>,
}

pub(super) fn plans() -> impl Strategy<Value = Plan> {
    let outcome = prop_oneof![3 => Just(Outcome::Healthy), 1 => Just(Outcome::RolledBack), 1 => Just(Outcome::KeptInError)];
    let act = prop_oneof![
        4 => any::<bool>().prop_map(|succeeds| Act::Start { succeeds }),
        3 => any::<bool>().prop_map(|silently| Act::Stop { silently }),
        2 => any::<bool>().prop_map(|succeeds| Act::Restart { succeeds }),
        4 => (1..4_i64, 0..2_i64, outcome).prop_map(|(vcpu, disk, outcome)| Act::Resize { vcpu, disk, outcome }),
        2 => Just(Act::Exit),
        1 => Just(Act::Lie),
        1 => Just(Act::Vanish),
        2 => (1..90_i64).prop_map(|minutes| Act::Silence { minutes }),
        1 => (1..5_u32).prop_map(|cents| Act::Reprice { cents }),
        1 => Just(Act::Delete),
    ];
    let advance = prop_oneof![
        3 => 0..2 * MINUTE,
        3 => 0..90 * MINUTE,
        1 => 0..30 * HOUR,
        2 => -20 * MINUTE..0,
    ];
    let gap = (advance, prop::bool::weighted(0.2)).prop_map(|(advance_ms, dies)| Gap { advance_ms, dies });
    let cvms = prop::collection::vec((any::<bool>(), prop::bool::weighted(0.8)), 1..3);
    let acts = prop::collection::vec((0..2_usize, act), 3..25);
    (cvms, acts, prop::collection::vec(gap, 7..40)).prop_map(|(cvms, acts, gaps)| Plan { cvms, acts, gaps })
}
