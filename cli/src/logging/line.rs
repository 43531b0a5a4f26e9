//! What lines are made of, in few steps: an access log has one for each answer.

use std::error::Error;
use std::fmt::{self, Debug, Write};
use std::iter;

use cloister_verifier::Clock;
use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// What the message is called among the fields.
const MESSAGE: &str = "message";

/// How terminals are told of letters (ECMA-48, SGR): italic ones, pale ones, and usual ones again.
const NAME: &str = "\u{1b}[3m";
const DIM: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";

/// The time of a clock in UTC, to the microsecond (RFC 3339).
#[derive(Debug)]
pub(super) struct Utc(pub(super) Clock);

impl FormatTime for Utc {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{:.6}", self.0.now())
    }
}

/// The message as it is, and `name=value` of each field; texts in quotes. Nothing in them begins another line, moves the cursor of
/// a terminal that shows them, or turns what follows around: such characters are escaped, as Rust writes them.
#[derive(Debug)]
pub(super) struct Fields;

impl<'writer> FormatFields<'writer> for Fields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut visitor = Visitor { writer, is_first: true, outcome: Ok(()) };
        fields.record(&mut visitor);
        visitor.outcome
    }
}

struct Visitor<'writer> {
    writer: Writer<'writer>,
    is_first: bool,
    outcome: fmt::Result,
}

impl Visitor<'_> {
    fn field(&mut self, field: &Field, write: impl FnOnce(&mut Writer<'_>) -> fmt::Result) {
        if self.outcome.is_ok() {
            self.outcome = self.begin(field).and_then(|()| write(&mut self.writer));
        }
    }

    fn begin(&mut self, field: &Field) -> fmt::Result {
        if !std::mem::take(&mut self.is_first) {
            self.writer.write_char(' ')?;
        }
        if field.name() == MESSAGE {
            return Ok(());
        }
        write_name(&mut self.writer, name(field), "")
    }
}

/// What stands before a value.
fn write_name(writer: &mut Writer<'_>, name: &str, suffix: &str) -> fmt::Result {
    if writer.has_ansi_escapes() {
        write!(writer, "{NAME}{name}{suffix}{PLAIN}{DIM}={PLAIN}")
    } else {
        writer.write_str(name)?;
        writer.write_str(suffix)?;
        writer.write_char('=')
    }
}

/// Without the mark of names that are words of the language.
fn name(field: &Field) -> &'static str {
    field.name().strip_prefix("r#").unwrap_or(field.name())
}

impl Visit for Visitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == MESSAGE {
            self.field(field, |writer| Escaped(writer).write_str(value));
        } else if is_plain(value) {
            self.field(field, |writer| {
                writer.write_char('"')?;
                writer.write_str(value)?;
                writer.write_char('"')
            });
        } else {
            // This escapes, too.
            self.field(field, |writer| write!(writer, "{value:?}"));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.field(field, |writer| writer.write_str(itoa::Buffer::new().format(value)));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.field(field, |writer| writer.write_str(if value { "true" } else { "false" }));
    }

    /// With what it comes from beside it.
    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.field(field, |writer| {
            write!(Escaped(&mut *writer), "{value}")?;
            let sources: Vec<_> = iter::successors(value.source(), |error| (*error).source()).collect();
            let Some((first, others)) = sources.split_first() else { return Ok(()) };
            writer.write_char(' ')?;
            write_name(writer, name(field), ".sources")?;
            let mut escaped = Escaped(writer);
            write!(escaped, "[{first}")?;
            for source in others {
                write!(escaped, ", {source}")?;
            }
            escaped.write_char(']')
        });
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.field(field, |writer| write!(Escaped(writer), "{value:?}"));
    }
}

/// Whether it would do something to what is around it: a control character, a separator of lines, or one that turns text around
/// (Unicode's `Bidi_Control`).
fn is_escaped(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a text in quotes is written as it is: letters of ASCII, none of which ends it or begins an escape.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\')
}

/// Escapes such characters.
struct Escaped<W>(W);

impl<W: Write> Write for Escaped<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive(is_escaped) {
            match piece.char_indices().next_back() {
                Some((at, last)) if is_escaped(last) => {
                    let (before, _) = piece.split_at(at);
                    self.0.write_str(before)?;
                    write!(self.0, "{}", last.escape_debug())?;
                }
                _ => self.0.write_str(piece)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use proptest::prelude::*;
    use tempfile::NamedTempFile;
    use tracing_subscriber::fmt::SubscriberBuilder;
    use tracing_subscriber::fmt::format::{DefaultFields, Format};

    use super::*;

    type Builder<N> = SubscriberBuilder<N, Format>;

    /// The lines that something logs, without their times.
    fn lines<N>(of: impl FnOnce(Builder<DefaultFields>) -> Builder<N>, log: impl FnOnce()) -> String
    where
        N: for<'writer> FormatFields<'writer> + Send + Sync + 'static,
    {
        let file = NamedTempFile::new().unwrap();
        let writer = file.reopen().unwrap();
        let builder = of(tracing_subscriber::fmt()).without_time();
        let builder = builder.with_writer(move || writer.try_clone().unwrap());
        tracing::subscriber::with_default(builder.finish(), log);
        std::fs::read_to_string(file.path()).unwrap()
    }

    #[derive(Debug, thiserror::Error)]
    #[error("it cannot be read")]
    struct Unread(#[source] io::Error);

    fn log_all_kinds() {
        let cause = io::Error::new(io::ErrorKind::InvalidData, io::Error::other("three \"legs\""));
        let (unread, alone) = (Unread(cause), io::Error::other("alone"));
        tracing::info!("only words: {}", "\"quoted\"");
        tracing::info!(
            text = "with \"quotes\",\n\u{1b}[31m ends and \u{9b} colours",
            r#type = "word",
            "texts"
        );
        tracing::warn!(
            count = 7_u64,
            below = -3_i64,
            share = 0.25,
            is_whole = true,
            nothing = Option::<u8>::None,
            "numbers"
        );
        tracing::error!(error = &unread as &dyn Error, other = &alone as &dyn Error, shown = %unread, debug = ?unread, "errors");
        tracing::info!(no_message = "");
        let span = tracing::info_span!("outer", vm = "a b", count = tracing::field::Empty);
        span.record("count", 3);
        span.in_scope(|| tracing::info!(after = 1, "in a span"));
    }

    #[test]
    fn lines_are_those_of_the_library() {
        for ansi in [false, true] {
            let ours = lines(|builder| builder.with_ansi(ansi).fmt_fields(Fields), log_all_kinds);
            let theirs = lines(|builder| builder.with_ansi(ansi), log_all_kinds);
            // It makes letters usual between the two parts of this name.
            assert_eq!(ours, theirs.replace("\u{1b}[0m\u{1b}[3m.sources", ".sources"));
        }
    }

    #[test]
    fn nothing_begins_another_line_or_moves_a_cursor() {
        let said = "one\ntwo\r\t\u{1b}[2J\u{7}\u{9b}3m\u{2028}\u{202e}\u{2066} ä";
        let escaped = r"one\ntwo\r\t\u{1b}[2J\u{7}\u{9b}3m\u{2028}\u{202e}\u{2066} ä";
        let log = || {
            let error = io::Error::other(said);
            tracing::info!(text = said, shown = %said, error = &error as &dyn Error, "{said}");
        };
        let told = format!(
            " INFO cloister_cli::logging::line::tests: {escaped} text=\"{escaped}\" shown={escaped} error={escaped}\n"
        );
        assert_eq!(lines(|builder| builder.with_ansi(false).fmt_fields(Fields), log), told);
    }

    proptest! {
        /// What is not looked at again has nothing in it to escape.
        #[test]
        fn plain_texts_are_as_they_are(text in "[\\x00-\\x7f]{0,6}", other in any::<String>()) {
            for text in [text, other] {
                let is_same = format!("{text:?}") == format!("\"{text}\"");
                prop_assert!(!is_plain(&text) || is_same, "{:?}", text);
                prop_assert!(!text.is_ascii() || is_plain(&text) == is_same, "{:?}", text);
            }
        }
    }

    #[test]
    fn times_are_of_the_same_length() {
        for time in
            ["2026-01-02T03:04:05.678901Z", "2026-01-02T03:04:05.600000Z", "1969-12-31T23:59:59.000000Z"]
        {
            let mut told = String::new();
            Utc(Clock::fixed(time.parse().unwrap())).format_time(&mut Writer::new(&mut told)).unwrap();
            assert_eq!(told, time);
        }
    }
}
