//! Lines on their way out: each at once while there are few, together when many come.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Lines that come this soon after others went out wait for more, for as long.
const GATHER: Duration = Duration::from_millis(20);
/// Lines that would be more bytes than this together do not wait for each other: so many go into a pipe in one piece
/// (`PIPE_BUF`), and no line of another process comes between.
pub(super) const PIECE_OF_PIPE: usize = 4096;
/// The same for a file, into which any number goes in one piece.
pub(super) const PIECE_OF_FILE: usize = 64 << 10;

/// Writes lines that came together with one call. A warning or an error waits for nothing, nor does what came before it.
/// What waits is lost with a process that ends without [`flush`](Self::flush).
#[derive(Debug)]
pub(super) struct Gathered<W>(Arc<Shared<W>>);

#[derive(Debug)]
struct Shared<W> {
    state: Mutex<State<W>>,
    /// There is something to write after a while.
    waits: Condvar,
    gather: Duration,
    /// In bytes.
    piece: usize,
}

#[derive(Debug)]
struct State<W> {
    out: W,
    lines: Vec<u8>,
    /// When lines last went out.
    written: Option<Instant>,
}

impl<W: Write> State<W> {
    fn flush(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        // Whoever logs has no use for a failure of the log.
        let _ = self.out.write_all(&self.lines).and_then(|()| self.out.flush());
        self.lines.clear();
        self.written = Some(Instant::now());
    }
}

impl<W> Clone for Gathered<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W: Write + Send + 'static> Gathered<W> {
    /// Starts the thread that writes what has waited, in pieces of at most so many bytes, or of one line that is longer.
    pub(super) fn new(out: W, piece: usize) -> io::Result<Self> {
        Self::gathering(out, piece, GATHER)
    }

    fn gathering(out: W, piece: usize, gather: Duration) -> io::Result<Self> {
        let state = Mutex::new(State { out, lines: Vec::new(), written: None });
        let shared = Arc::new(Shared { state, waits: Condvar::new(), gather, piece });
        let its = Arc::clone(&shared);
        thread::Builder::new().name("log".to_owned()).spawn(move || its.write_what_waits())?;
        Ok(Self(shared))
    }

    /// Writes what waits.
    pub(super) fn flush(&self) {
        self.0.lock().flush();
    }
}

impl<W: Write> Shared<W> {
    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, line: &[u8], is_urgent: bool) {
        let mut state = self.lock();
        if state.lines.len() + line.len() > self.piece {
            state.flush();
        }
        let is_first = state.lines.is_empty();
        let is_alone = is_first && state.written.is_none_or(|written| written.elapsed() >= self.gather);
        state.lines.extend_from_slice(line);
        if is_urgent || is_alone {
            state.flush();
        } else if is_first {
            self.waits.notify_one();
        }
    }

    /// For as long as the process lives.
    fn write_what_waits(&self) {
        let mut state = self.lock();
        loop {
            while state.lines.is_empty() {
                state = self.waits.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            thread::sleep(self.gather);
            state = self.lock();
            state.flush();
        }
    }
}

impl<'a, W: Write + Send + 'static> MakeWriter<'a> for Gathered<W> {
    type Writer = Line<'a, W>;

    fn make_writer(&'a self) -> Self::Writer {
        Line { shared: &self.0, is_urgent: true }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Self::Writer {
        Line { shared: &self.0, is_urgent: *metadata.level() <= Level::WARN }
    }
}

/// Takes one line.
#[derive(Debug)]
pub(super) struct Line<'a, W> {
    shared: &'a Shared<W>,
    is_urgent: bool,
}

impl<W: Write> Write for Line<'_, W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.shared.take(line, self.is_urgent);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Passes on what each call writes.
    struct Calls(Sender<String>);

    impl Write for Calls {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !bytes.is_empty() {
                self.0.send(String::from_utf8(bytes.to_vec()).unwrap()).unwrap();
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const EVER: Duration = Duration::from_hours(1);

    fn gathering(time: Duration) -> (Gathered<Calls>, Receiver<String>) {
        in_pieces(PIECE_OF_PIPE, time)
    }

    fn in_pieces(piece: usize, time: Duration) -> (Gathered<Calls>, Receiver<String>) {
        let (calls, written) = channel();
        (Gathered::gathering(Calls(calls), piece, time).unwrap(), written)
    }

    #[test]
    fn a_line_alone_goes_at_once_and_others_wait_for_a_warning() {
        let (log, written) = gathering(EVER);
        log.0.take(b"first\n", false);
        assert_eq!(written.try_recv().as_deref(), Ok("first\n"));
        log.0.take(b"second\n", false);
        log.0.take(b"third\n", false);
        assert!(written.try_recv().is_err());
        log.0.take(b"warning\n", true);
        assert_eq!(written.try_recv().as_deref(), Ok("second\nthird\nwarning\n"));
        log.0.take(b"last\n", false);
        log.flush();
        assert_eq!(written.try_recv().as_deref(), Ok("last\n"));
        log.flush();
        assert!(written.try_recv().is_err(), "nothing is written twice");
    }

    #[test]
    fn what_waits_is_written_after_a_while() {
        let (log, written) = gathering(Duration::from_millis(5));
        let lines = "a line among many\n".repeat(100);
        for line in lines.split_inclusive('\n') {
            log.0.take(line.as_bytes(), false);
        }
        let mut seen = String::new();
        while seen.len() < lines.len() {
            seen += &written.recv_timeout(Duration::from_mins(2)).unwrap();
        }
        assert_eq!(seen, lines);
    }

    #[test]
    fn what_gathers_fits_into_a_pipe_at_once() {
        let (log, written) = gathering(EVER);
        let line = [b'x'; 1000];
        for _ in 0..6 {
            log.0.take(&line, false);
        }
        let lengths: Vec<_> = written.try_iter().map(|lines| lines.len()).collect();
        assert_eq!(lengths, [1000, 4000], "the first alone, then as many as fit; the last one waits");
        log.0.take(&[b'x'; 2 * PIECE_OF_PIPE], false);
        log.flush();
        let lengths: Vec<_> = written.try_iter().map(|lines| lines.len()).collect();
        assert_eq!(lengths, [1000, 2 * PIECE_OF_PIPE]);
    }

    #[test]
    fn more_gathers_for_a_file() {
        let (log, written) = in_pieces(PIECE_OF_FILE, EVER);
        for _ in 0..100 {
            log.0.take(&[b'x'; 1000], false);
        }
        let lengths: Vec<_> = written.try_iter().map(|lines| lines.len()).collect();
        assert_eq!(lengths, [1000, 65_000], "the first alone, then as many as are a piece; the others wait");
    }

    #[test]
    fn warnings_do_not_wait() {
        let (log, written) = gathering(EVER);
        let subscriber = tracing_subscriber::fmt().with_writer(log).with_ansi(false).finish();
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..3 {
                tracing::info!("usual");
            }
            assert_eq!(written.try_iter().count(), 1, "the first one");
            tracing::warn!("unusual");
        });
        let lines = written.try_recv().unwrap();
        assert_eq!((lines.lines().count(), lines.contains("unusual")), (3, true), "{lines}");
    }
}
