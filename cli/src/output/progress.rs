//! Phases of something that takes a while: one live line on a terminal, one line per phase elsewhere.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::printable;

const TICK: Duration = Duration::from_millis(120);

/// Shows the current phase until it is dropped, and how long each one took.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    phase: Option<(String, Instant)>,
}

impl Progress {
    pub(super) fn start(live: bool) -> Self {
        let bar = live.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(TICK);
            bar
        });
        Self { bar, started: Instant::now(), phase: None }
    }

    /// Enters a phase; saying the same one again changes nothing.
    pub(crate) fn phase(&mut self, name: &str) {
        if self.phase.as_ref().is_some_and(|(current, _)| current == name) {
            return;
        }
        self.finish_phase();
        if let Some(bar) = &self.bar {
            bar.set_message(printable(name));
        }
        self.phase = Some((name.to_owned(), Instant::now()));
    }

    /// Ends the last phase and says how long everything took.
    pub(crate) fn done(mut self, words: &str) {
        self.finish_phase();
        self.print(&format!("{words} ({})", seconds(self.started.elapsed())));
    }

    fn finish_phase(&mut self) {
        if let Some((name, since)) = self.phase.take() {
            self.print(&format!("  {name} ({})", seconds(since.elapsed())));
        }
    }

    fn print(&self, line: &str) {
        let line = printable(line);
        match &self.bar {
            Some(bar) => bar.suspend(|| write_line(&line)),
            None => write_line(&line),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn write_line(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
