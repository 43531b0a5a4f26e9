//! Short turns: threads in the background let those that answer have the processor again and again. A transaction of
//! many changes would keep it for milliseconds, where they share one.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

/// How long a turn is.
const TURN: Duration = Duration::from_micros(200);
/// So many turns end. Where others never rest, each end may cost as much as a scheduler's slice, some milliseconds: who
/// has more to do than this does not follow.
const TURNS: u32 = 128;

thread_local! {
    /// When the turn of this thread began, and how many follow; `None` where it has no end.
    static TURN_OF_THIS: Cell<Option<(Instant, u32)>> = const { Cell::new(None) };
}

/// The next turns of this thread are short, or its turn has no end, as that of threads that never asked.
pub(super) fn set_short(is_short: bool) {
    TURN_OF_THIS.set(is_short.then(|| (Instant::now(), TURNS)));
}

/// Lets others have the processor if the turn is over; tells whether it was. Not for where a lock is held that reads
/// of the database take, as its own writes to the disk do.
pub(super) fn end_if_over() -> bool {
    let over = TURN_OF_THIS.get().filter(|(began, _)| began.elapsed() > TURN);
    let Some((_, left)) = over else { return false };
    thread::yield_now();
    TURN_OF_THIS.set(left.checked_sub(1).map(|left| (Instant::now(), left)));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_turns_end() {
        set_short(true);
        for _ in 0..=TURNS {
            while !end_if_over() {}
        }
        let began = Instant::now();
        while began.elapsed() < 2 * TURN {
            assert!(!end_if_over(), "the last one has no end");
        }
        set_short(true);
        set_short(false);
        let began = Instant::now();
        while began.elapsed() < 2 * TURN {
            assert!(!end_if_over());
        }
        assert!(!thread::spawn(end_if_over).join().unwrap());
    }
}
