//! Short turns: threads in the background work for a moment and rest for longer, so that those that answer have the
//! processor in between. A transaction of many changes would keep it for milliseconds, where they share one. Turns that
//! follow a rest begin one after the other, with a rest in between: the turn of another thread right after would make an answer
//! wait for both.
//!
//! They sleep, and do not merely yield: a scheduler that owes a thread time gives it the processor back at once.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a turn is, at least: it ends where the thread says that it may.
const TURN: Duration = Duration::from_micros(100);
/// The rest after a turn of a thread that has little to do: a seventh of a processor is left to it.
const REST: Duration = Duration::from_micros(600);

/// The turn of a thread, and the rest after it.
#[derive(Debug, Clone, Copy)]
struct Turn {
    began: Instant,
    rest: Duration,
}

static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
/// When the next turn of any thread may begin, in nanoseconds since the start.
static NEXT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// `None` where a turn has no end.
    static TURN_OF_THIS: Cell<Option<Turn>> = const { Cell::new(None) };
}

/// The next turns of this thread are short. The more waits for it, of as much as may, the shorter it rests, and not at all
/// when that is all: who does not keep up is not to give way to those who bring more.
pub(super) fn set_short(waiting: usize, most: usize) {
    let left = most.saturating_sub(waiting);
    // Neither has more than some ten million.
    let rest =
        REST * u32::try_from(left).unwrap_or(u32::MAX) / u32::try_from(most.max(1)).unwrap_or(u32::MAX);
    TURN_OF_THIS.set((!rest.is_zero()).then(|| Turn { began: Instant::now(), rest }));
}

/// The turn of this thread has no end, as that of threads that never asked.
pub(super) fn set_endless() {
    TURN_OF_THIS.set(None);
}

/// A turn of this thread begins: it has waited, and not worked.
pub(super) fn restart() {
    TURN_OF_THIS.set(TURN_OF_THIS.get().map(|turn| Turn { began: Instant::now(), ..turn }));
}

/// Rests if the turn is over; tells whether it was. Not for where a lock is held that others want.
pub(super) fn end_if_over() -> bool {
    let over = TURN_OF_THIS.get().filter(|turn| turn.began.elapsed() > TURN);
    let Some(turn) = over else { return false };
    thread::sleep(until_next(turn.rest));
    restart();
    true
}

/// How long a thread waits for its next turn that rests at least so long, and lets others rest as long after it.
fn until_next(rest: Duration) -> Duration {
    let (now, rest) = (nanoseconds(STARTED.elapsed()), nanoseconds(rest));
    let others_rest = nanoseconds(TURN).saturating_add(rest);
    let after = |next: u64| Some(next.max(begin(next, now, rest).saturating_add(others_rest)));
    let next = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
    Duration::from_nanos(begin(next.unwrap_or_default(), now, rest) - now)
}

/// When the turn of a thread begins that rests so long: when the next turn may, and not much later than it would alone, so that
/// one that has much to do is not held up by others that rest for longer. All in nanoseconds.
fn begin(next: u64, now: u64, rest: u64) -> u64 {
    let soonest = now.saturating_add(rest);
    next.clamp(soonest, soonest.saturating_add(rest).saturating_add(nanoseconds(TURN)))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest() -> Option<Duration> {
        TURN_OF_THIS.get().map(|turn| turn.rest)
    }

    #[test]
    fn only_short_turns_end() {
        set_short(0, 1);
        for _ in 0..5 {
            let mut began = Instant::now();
            while !end_if_over() {
                began = Instant::now();
            }
            assert!(began.elapsed() >= REST, "it rests");
        }
        let work = || {
            let began = Instant::now();
            while began.elapsed() < 2 * TURN {}
        };
        work();
        assert!(!thread::spawn(end_if_over).join().unwrap(), "another thread has a turn of its own");
        restart();
        set_endless();
        work();
        assert!(!end_if_over());
    }

    #[test]
    fn a_turn_waits_for_that_of_another_thread_but_not_much_longer_than_it_rests() {
        for (next_us, rest_us, begins_us) in [
            (0, 600, 1600),
            (1600, 600, 1600),
            (2300, 600, 2300),
            (2301, 600, 2300),
            (9999, 600, 2300),
            (9999, 15, 1130),
            (9999, 0, 1100),
        ] {
            let begins = begin(next_us * 1000, 1_000_000, rest_us * 1000);
            assert_eq!(begins, begins_us * 1000, "{next_us} {rest_us}");
        }
        assert_eq!(begin(0, u64::MAX, 1), u64::MAX);
        assert!(until_next(REST) >= REST);
    }

    #[test]
    fn who_has_more_to_do_rests_for_less() {
        for (waiting, rests_us) in
            [(0, Some(600)), (1 << 22, Some(450)), (3 << 22, Some(150)), (1 << 24, None)]
        {
            set_short(waiting, 1 << 24);
            assert_eq!(rest(), rests_us.map(Duration::from_micros), "{waiting}");
        }
        set_short(usize::MAX, 1 << 24);
        assert_eq!(rest(), None);
        set_short(0, 0);
        assert_eq!(rest(), None);
    }
}
