//! Short turns: threads in the background let those that answer have the processor again and again. A transaction of
//! many changes would keep it for milliseconds, where they share one.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

/// How long a turn is.
const TURN: Duration = Duration::from_micros(200);

thread_local! {
    /// When the turn of this thread began; `None` where it has no end.
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// This thread has short turns from now on, or turns without an end, as threads have that never asked.
pub(super) fn set_short(is_short: bool) {
    BEGAN.set(is_short.then(Instant::now));
}

/// Lets others have the processor if the turn is over; tells whether it was.
pub(super) fn end_if_over() -> bool {
    let is_over = BEGAN.get().is_some_and(|began| began.elapsed() > TURN);
    if is_over {
        thread::yield_now();
        BEGAN.set(Some(Instant::now()));
    }
    is_over
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_turns_end() {
        set_short(true);
        while !end_if_over() {}
        set_short(false);
        let began = Instant::now();
        while began.elapsed() < 2 * TURN {
            assert!(!end_if_over());
        }
        assert!(!thread::spawn(end_if_over).join().unwrap());
    }
}
