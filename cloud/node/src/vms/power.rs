//! The power states of a VM as a table, without any effect.
//!
//! [`VmState::Running`] and [`VmState::Stopping`] have a process, the others have none. A state is
//! written to disk before the action that it announces, so that a node that died in between finishes it;
//! only a start is written after it succeeded, and the process itself tells of one that was not.

use cloister_node_api::VmState;

/// What happens to a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// The control plane wants it on.
    Start,
    /// The control plane wants it off, in order.
    Shutdown,
    /// The control plane wants it off, now.
    Stop,
    /// It has not powered off in time and is left running.
    Lapsed,
    /// Its process ended.
    ProcessEnded,
    /// The node started and found its process.
    FoundRunning,
    /// The node started and found no process.
    FoundGone,
}

/// What the node does about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Nothing.
    None,
    /// Start the process; the new state holds only if that succeeds.
    Launch,
    /// Ask the guest to power off and take the power away at the deadline.
    AskGuest,
    /// Take the power away; the process' end is an event of its own.
    Kill,
}

/// The next state and what to do; `None` when the event must be refused.
#[expect(clippy::match_same_arms, reason = "a table: one row for each cause")]
pub(crate) const fn step(state: VmState, event: Event) -> Option<(VmState, Action)> {
    use VmState::{Exited, Running, Stopped, Stopping};
    Some(match (state, event) {
        (Stopped | Exited, Event::Start) => (Running, Action::Launch),
        (Running, Event::Start) => (Running, Action::None),
        (Stopping, Event::Start) => return None,

        (Running | Stopping, Event::Shutdown) => (Stopping, Action::AskGuest),
        (Running | Stopping, Event::Stop) => (Stopping, Action::Kill),
        (Stopped | Exited, Event::Shutdown | Event::Stop) => (Stopped, Action::None),

        (Stopping, Event::Lapsed) => (Running, Action::None),
        (Stopped | Running | Exited, Event::Lapsed) => (state, Action::None),

        (Running, Event::ProcessEnded) => (Exited, Action::None),
        (Stopping, Event::ProcessEnded) => (Stopped, Action::None),
        (Stopped | Exited, Event::ProcessEnded) => (state, Action::None),

        // The node died after the start and before it wrote it down.
        (Stopped | Running | Exited, Event::FoundRunning) => (Running, Action::None),
        (Stopping, Event::FoundRunning) => (Stopping, Action::AskGuest),
        // It should run and doesn't: the host was restarted.
        (Running, Event::FoundGone) => (Running, Action::Launch),
        (Stopping, Event::FoundGone) => (Stopped, Action::None),
        (Stopped | Exited, Event::FoundGone) => (state, Action::None),
    })
}

/// Whether a VM in this state has a process.
pub(crate) const fn has_process(state: VmState) -> bool {
    matches!(state, VmState::Running | VmState::Stopping)
}

#[cfg(test)]
mod tests {
    use std::fmt::{Debug, Write};

    use proptest::prelude::*;

    use super::*;

    const STATES: [VmState; 4] = [VmState::Stopped, VmState::Running, VmState::Stopping, VmState::Exited];
    const EVENTS: [Event; 7] = [
        Event::Start,
        Event::Shutdown,
        Event::Stop,
        Event::Lapsed,
        Event::ProcessEnded,
        Event::FoundRunning,
        Event::FoundGone,
    ];

    #[test]
    fn the_whole_table() {
        let name = |value: &dyn Debug| format!("{value:?}");
        let mut table = "state     event         → state     action\n".to_owned();
        for (state, event) in STATES.iter().flat_map(|state| EVENTS.map(|event| (*state, event))) {
            let outcome = step(state, event).map_or("refused".to_owned(), |(next, action)| {
                let (next, action) = (name(&next), name(&action));
                format!("{next:<10}{action}")
            });
            writeln!(table, "{:<10}{:<14}→ {outcome}", name(&state), name(&event)).unwrap();
        }
        insta::assert_snapshot!(table);
    }

    /// A VM, its process and the node that drives it.
    struct World {
        state: VmState,
        process: bool,
    }

    impl World {
        fn apply(&mut self, event: Event, launch_works: bool) {
            let Some((next, action)) = step(self.state, event) else { return };
            match action {
                Action::Launch => {
                    assert!(!self.process, "a second process: {:?} on {event:?}", self.state);
                    if launch_works {
                        self.process = true;
                    } else {
                        // A failed start after the node's own start: the VM is given up.
                        self.state =
                            if self.state == VmState::Running { VmState::Exited } else { self.state };
                        return;
                    }
                }
                Action::AskGuest | Action::Kill => assert!(self.process),
                Action::None => {}
            }
            self.state = next;
        }
    }

    proptest! {
        #[test]
        fn the_process_exists_exactly_when_the_state_says_so(
            steps in proptest::collection::vec((0usize..EVENTS.len(), any::<bool>()), 0..64)
        ) {
            let mut world = World { state: VmState::Stopped, process: false };
            for (index, luck) in steps {
                match EVENTS[index] {
                    Event::ProcessEnded => world.process = false,
                    // A restart of the node is one of the two, whichever is true.
                    Event::FoundRunning | Event::FoundGone => {
                        let found = if world.process { Event::FoundRunning } else { Event::FoundGone };
                        world.apply(found, luck);
                        prop_assert_eq!(world.process, has_process(world.state));
                        continue;
                    }
                    _ => {}
                }
                world.apply(EVENTS[index], luck);
                prop_assert_eq!(world.process, has_process(world.state));
            }
        }
    }
}
