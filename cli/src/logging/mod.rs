//! Logs of the long-running commands, to stderr.

mod gathered;
mod line;

use std::fs::File;
use std::io::{self, Stderr};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use cloister_verifier::Clock;
use gathered::{Gathered, PIECE_OF_FILE, PIECE_OF_PIPE};
use line::{Fields, Utc};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

/// Environment variable with filter directives, such as `info,cloister_node=debug`.
pub(crate) const VARIABLE: &str = "CLOISTER_LOG";

/// Form of the log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Human,
    /// One JSON object per line
    Json,
}

/// The filter for a process of ours, as [`start`] would take it in this one.
pub(crate) fn filter(levels: [&str; 3], verbosity: u8) -> String {
    let [quiet, more, everything] = levels;
    let level = match verbosity {
        0 => quiet,
        1 => more,
        _ => everything,
    };
    let chosen = std::env::var(VARIABLE).ok().filter(|directives| EnvFilter::try_new(directives).is_ok());
    chosen.unwrap_or_else(|| level.to_owned())
}

/// The log of this process, once it has one.
static LOG: OnceLock<Gathered<Stderr>> = OnceLock::new();

/// Starts to log. `levels` are the filters for no `-v`, one and more; `CLOISTER_LOG` wins over them.
pub(crate) fn start(format: LogFormat, levels: [&str; 3], verbosity: u8) {
    let filter = EnvFilter::new(filter(levels, verbosity));
    let piece = if is_file(&io::stderr()) { PIECE_OF_FILE } else { PIECE_OF_PIPE };
    let writer = match Gathered::new(io::stderr(), piece) {
        Ok(log) => BoxMakeWriter::new(LOG.get_or_init(|| log).clone()),
        // Each line on its own needs no thread.
        Err(_) => BoxMakeWriter::new(io::stderr),
    };
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_span_events(FmtSpan::NONE);
    match format {
        LogFormat::Human => {
            let builder = builder.with_timer(Utc(Clock::system())).fmt_fields(Fields);
            builder.with_ansi(crate::output::colour_on_stderr()).init();
        }
        LogFormat::Json => builder.json().init(),
    }
}

fn is_file(out: &impl AsFd) -> bool {
    let file = out.as_fd().try_clone_to_owned().map(File::from);
    file.and_then(|file| file.metadata()).is_ok_and(|of| of.is_file())
}

/// The process is about to end: writes what waits.
pub(crate) fn finish() {
    if let Some(log) = LOG.get() {
        log.flush();
    }
}

/// [`finish`]es when it is dropped.
pub(crate) struct Finish;

impl Drop for Finish {
    fn drop(&mut self) {
        finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_told_from_a_pipe() {
        let (_reader, writer) = io::pipe().unwrap();
        assert!(!is_file(&writer));
        assert!(is_file(&tempfile::tempfile().unwrap()));
    }
}
