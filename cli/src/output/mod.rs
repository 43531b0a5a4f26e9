//! The only module that prints: data to stdout, words to stderr.

mod progress;
mod table;

pub(crate) use progress::Progress;
pub(crate) use table::{Align, Table};

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use serde_json::{Value, json};

use crate::failure::{Exit, Failure};

/// Colours that carry a meaning; everything else is plain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// It is as it should be.
    Good,
    /// It changes right now.
    Busy,
    /// It is off or broken.
    Bad,
}

impl Tone {
    /// The tone of a CVM, operation or node status.
    pub(crate) fn of_status(status: &str) -> Option<Self> {
        match status {
            "running" | "completed" | "ONLINE" => Some(Self::Good),
            "stopped" | "exited" | "error" | "failed" | "OFFLINE" => Some(Self::Bad),
            "in_progress" | "pending" | "MAINTENANCE" => Some(Self::Busy),
            other => other.ends_with("ing").then_some(Self::Busy),
        }
    }

    const fn sgr(self) -> &'static str {
        match self {
            Self::Good => "\x1b[32m",
            Self::Busy => "\x1b[33m",
            Self::Bad => "\x1b[31m",
        }
    }
}

/// What the person at the other end can see, and whether a program reads along.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    /// Print documents of the API instead of tables.
    pub(crate) json: bool,
    stdout: Stream,
    stderr: Stream,
}

#[derive(Debug, Clone, Copy)]
struct Stream {
    terminal: bool,
    colour: bool,
}

impl Stream {
    fn of(handle: &impl IsTerminal) -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let allowed = set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb");
        let terminal = handle.is_terminal();
        Self { terminal, colour: terminal && allowed }
    }

    fn paint(self, text: &str, tone: Tone) -> String {
        if self.colour { format!("{}{text}\x1b[0m", tone.sgr()) } else { text.to_owned() }
    }
}

#[expect(clippy::unused_self, reason = "only who holds an output may print")]
impl Output {
    /// Looks at stdout, stderr, `NO_COLOR` and `TERM`.
    pub(crate) fn detect(json: bool) -> Self {
        Self { json, stdout: Stream::of(&io::stdout()), stderr: Stream::of(&io::stderr()) }
    }

    /// Whether a person may be asked something.
    pub(crate) fn can_ask(&self) -> bool {
        io::stdin().is_terminal() && self.stderr.terminal
    }

    /// Whether a person looks at the data itself.
    pub(crate) const fn data_is_on_terminal(&self) -> bool {
        self.stdout.terminal
    }

    /// Prints a document of the API: indented for people, one line for programs.
    pub(crate) fn document(&self, value: &Value) {
        let text = if self.stdout.terminal { format!("{value:#}") } else { value.to_string() };
        self.data(&format!("{text}\n"));
    }

    /// Prints rows, or `nothing` to stderr when there are none.
    pub(crate) fn table(&self, table: &Table, nothing: &str) {
        if table.is_empty() {
            self.say(nothing);
        } else {
            self.data(&table.render(self.stdout.colour));
        }
    }

    /// Prints one line of data.
    pub(crate) fn line(&self, text: &str) {
        self.data(&format!("{}\n", printable(text)));
    }

    /// Prints labelled values, aligned; pairs without a value are left out. A value that has several lines makes none that
    /// looks like another pair.
    pub(crate) fn fields(&self, fields: &[(&str, Option<String>)]) {
        let width = fields.iter().map(|(label, _)| label.len()).max().unwrap_or(0) + 2;
        let mut text = String::new();
        for (label, value) in fields {
            if let Some(value) = value {
                let value = indented(&plain(value), width);
                let _ = writeln!(text, "{label:width$}{}", self.toned(&value));
            }
        }
        self.data(&text);
    }

    /// Text in a colour where data may have colours.
    pub(crate) fn painted(&self, text: &str, tone: Tone) -> String {
        self.stdout.paint(text, tone)
    }

    fn toned(&self, value: &str) -> String {
        Tone::of_status(value).map_or_else(|| value.to_owned(), |tone| self.stdout.paint(value, tone))
    }

    /// Prints text exactly as it is to stdout.
    pub(crate) fn data(&self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Prints bytes to stdout. A reader that went away ends the process in silence, as with any filter.
    pub(crate) fn bytes(&self, bytes: &[u8]) {
        let mut stdout = io::stdout().lock();
        if stdout.write_all(bytes).and_then(|()| stdout.flush()).is_err() {
            crate::logging::finish();
            std::process::exit(Exit::Failed as i32);
        }
    }

    /// Tells the person something.
    pub(crate) fn say(&self, words: &str) {
        let _ = writeln!(io::stderr().lock(), "{}", printable(words));
    }

    /// Asks for a line without ending the line of the question.
    pub(crate) fn prompt(&self, words: &str) {
        let mut stderr = io::stderr().lock();
        let _ = write!(stderr, "{words} ").and_then(|()| stderr.flush());
    }

    /// Starts to show the phases of something that takes a while.
    pub(crate) fn progress(&self) -> Progress {
        Progress::start(self.stderr.terminal && !self.json)
    }

    /// Prints why the command failed, and answers with its exit code.
    pub(crate) fn failure(&self, failure: &Failure) -> Exit {
        if self.json {
            let error = json!({ "error": failure.chain(), "exit_code": failure.exit as u8,
                "request_id": failure.request_id, "suggestions": failure.hints });
            let _ = writeln!(io::stderr().lock(), "{error}");
            return failure.exit;
        }
        // What others say may have lines: none of them may look like one of ours.
        let why = indented(&plain(&failure.chain()), "error: ".len());
        self.say(&format!("{} {why}", self.stderr.paint("error:", Tone::Bad)));
        for hint in &failure.hints {
            self.say(&format!("  → {}", indented(&plain(hint), "error: ".len())));
        }
        if let Some(id) = &failure.request_id {
            self.say(&format!("  request id {}", printable(id)));
        }
        failure.exit
    }
}

/// Whether log lines may be coloured.
pub(crate) fn colour_on_stderr() -> bool {
    Stream::of(&io::stderr()).colour
}

/// The text without control characters, so that nothing a server or container says can steer the
/// terminal or be read in another order than it has. Line ends and tabs stay; colour that this module added stays too.
pub(crate) fn printable(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let own = OWN_SEQUENCES.iter().find(|sequence| rest.starts_with(**sequence));
        let taken = own.map_or(character.len_utf8(), |sequence| sequence.len());
        match own {
            Some(sequence) => clean.push_str(sequence),
            None if is_steering(character) => clean.push('\u{fffd}'),
            None => clean.push(character),
        }
        rest = rest.get(taken..).unwrap_or_default();
    }
    clean
}

/// The same without colour of anybody.
fn plain(text: &str) -> String {
    let text = OWN_SEQUENCES.iter().fold(text.to_owned(), |text, own| text.replace(own, "\u{fffd}"));
    printable(&text)
}

/// The text with all of its lines but the first so far to the right.
fn indented(text: &str, width: usize) -> String {
    text.replace('\n', &format!("\n{:width$}", ""))
}

/// Control characters, those that turn the direction of writing, and other ends of lines than the usual one.
fn is_steering(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        other => other.is_control(),
    }
}

const OWN_SEQUENCES: [&str; 4] = [Tone::Good.sgr(), Tone::Busy.sgr(), Tone::Bad.sgr(), "\x1b[0m"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_sequences_of_others_do_not_get_through() {
        assert_eq!(printable("a\x1b]0;title\x07b\r\n\tc"), "a\u{fffd}]0;title\u{fffd}b\u{fffd}\n\tc");
        assert_eq!(printable("\x1b[32mok\x1b[0m"), "\x1b[32mok\x1b[0m");
        assert_eq!(printable("\u{9b}31m"), "\u{fffd}31m");
        assert_eq!(printable("safe\u{202e}live"), "safe\u{fffd}live");
    }

    #[test]
    fn statuses_have_the_tone_that_other_clients_give_them() {
        assert_eq!(Tone::of_status("running"), Some(Tone::Good));
        assert_eq!(Tone::of_status("starting"), Some(Tone::Busy));
        assert_eq!(Tone::of_status("stopped"), Some(Tone::Bad));
        assert_eq!(Tone::of_status("hello"), None);
    }
}
