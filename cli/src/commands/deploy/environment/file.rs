//! Files with variables: a strict subset of what such files hold elsewhere, in which every reader agrees
//! about the value.
//!
//! - A line is empty, a comment that begins with `#`, or `NAME=VALUE`, with `export` before it or not.
//! - A value in single quotes is taken as it stands between them.
//! - In double quotes `\n`, `\r`, `\t`, `\"`, `\\` and `\$` stand for what they always do; nothing else may
//!   follow a backslash, and no variables are replaced.
//! - Without quotes a value ends at the end of the line, without the spaces around it. It contains no quote, no
//!   backslash and no ` #`, about which readers differ.

use std::path::Path;

use cloister_sealed_env::MAX_TOTAL_BYTES;
use zeroize::Zeroizing;

use super::Pairs;
use crate::failure::Failure;
use crate::files;

/// What is wrong with a line. The line itself may be secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("it is not of the form NAME=VALUE")]
    Form,
    #[error("the name before the = may have letters, digits and _ only, and no digit first")]
    Name,
    #[error("the value's quote does not end on the line, or something follows it")]
    Quote,
    #[error("only n, r, t, \", \\ and $ may follow a backslash in double quotes")]
    Escape,
    #[error("put the value into quotes: it contains a quote, a backslash or a space before a #")]
    Ambiguous,
}

/// Reads a file. Failures name the line and never show it.
pub(super) fn read(path: &Path) -> Result<Pairs, Failure> {
    let text = files::read_secret(path, 2 * MAX_TOTAL_BYTES as u64)?;
    let mut pairs = Pairs::new();
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |fault| {
            Failure::usage(format!("line {number} of {} is no variable", path.display())).caused_by(fault)
        };
        pairs.extend(variable(line).map_err(wrong)?);
    }
    Ok(pairs)
}

/// The variable of a line, if it has one.
fn variable(line: &str) -> Result<Option<(String, Zeroizing<String>)>, Fault> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let line = line.strip_prefix("export ").map_or(line, str::trim_start);
    let (name, value) = line.split_once('=').ok_or(Fault::Form)?;
    let mut bytes = name.bytes();
    let begins = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if !begins || !bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(Fault::Name);
    }
    let value = value.trim();
    let value = match value.as_bytes().first() {
        Some(b'\'') => quoted(value, '\'')?.to_owned(),
        Some(b'"') => return unescaped(quoted(value, '"')?).map(|value| Some((name.to_owned(), value))),
        _ if value.contains(['\'', '"', '\\']) || value.contains(" #") || value.contains("\t#") => {
            return Err(Fault::Ambiguous);
        }
        _ => value.to_owned(),
    };
    Ok(Some((name.to_owned(), Zeroizing::new(value))))
}

/// What stands between the quotes, which are the first and the last character.
fn quoted(value: &str, quote: char) -> Result<&str, Fault> {
    let inner = value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)).ok_or(Fault::Quote)?;
    if quote == '\'' && inner.contains('\'') { Err(Fault::Quote) } else { Ok(inner) }
}

fn unescaped(inner: &str) -> Result<Zeroizing<String>, Fault> {
    // Allocated once, so that no copy of a secret stays behind.
    let mut value = Zeroizing::new(String::with_capacity(inner.len()));
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        value.push(match character {
            '"' => return Err(Fault::Quote),
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some(itself @ ('"' | '\\' | '$')) => itself,
                // The quote that ended the line belonged to the backslash.
                None => return Err(Fault::Quote),
                Some(_) => return Err(Fault::Escape),
            },
            other => other,
        });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(line: &str) -> Result<Option<String>, Fault> {
        variable(line).map(|found| found.map(|(_, value)| value.to_string()))
    }

    #[test]
    fn every_form_of_a_line() {
        for (line, expected) in [
            ("", Ok(None)),
            ("  # a comment", Ok(None)),
            ("A=1", Ok(Some("1"))),
            (" export A = 1", Err(Fault::Name)),
            ("export A=1", Ok(Some("1"))),
            ("A=", Ok(Some(""))),
            ("A= x y ", Ok(Some("x y"))),
            ("A=p@ss$word#1=2", Ok(Some("p@ss$word#1=2"))),
            ("A=x #y", Err(Fault::Ambiguous)),
            ("A=it's", Err(Fault::Ambiguous)),
            (r"A=a\b", Err(Fault::Ambiguous)),
            (r"A='a\n$B # \'", Ok(Some(r"a\n$B # \"))),
            ("A='it's'", Err(Fault::Quote)),
            ("A='open", Err(Fault::Quote)),
            ("A='", Err(Fault::Quote)),
            ("A=''", Ok(Some(""))),
            (r#"A="a\n\t\"\\\$b # c""#, Ok(Some("a\n\t\"\\$b # c"))),
            (r#"A="a\x""#, Err(Fault::Escape)),
            (r#"A="a\""#, Err(Fault::Quote)),
            (r#"A="a"b""#, Err(Fault::Quote)),
            (r#"A="a" # c"#, Err(Fault::Quote)),
            ("A", Err(Fault::Form)),
            ("1A=1", Err(Fault::Name)),
            ("A-B=1", Err(Fault::Name)),
            ("=1", Err(Fault::Name)),
        ] {
            assert_eq!(value(line), expected.map(|text: Option<&str>| text.map(str::to_owned)), "{line}");
        }
    }

    #[test]
    fn a_wrong_line_is_named_and_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("env");
        std::fs::write(&path, "A=1\nhunter2-the-secret\n").unwrap();
        let failure = read(&path).unwrap_err();
        assert!(failure.chain().contains("line 2 of") && !failure.chain().contains("hunter2"), "{failure}");
    }

    proptest! {
        #[test]
        fn every_value_can_be_written(text in "[^\r\n\0]{0,40}") {
            let escaped: String = text
                .chars()
                .flat_map(|c| ['\\'].into_iter().filter(move |_| "\"\\$".contains(c)).chain([c]))
                .collect();
            prop_assert_eq!(value(&format!("A=\"{escaped}\"")), Ok(Some(text)));
        }

        #[test]
        fn no_line_panics(line in "\\PC{0,60}") {
            let _ = variable(&line);
        }
    }
}
