//! Removing terminal control sequences from log messages.

/// Where in a sequence a text is; kept from message to message, as sequences may span them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Ansi {
    /// Plain text.
    #[default]
    Text,
    /// Behind an escape character.
    Escape,
    /// In a control sequence: parameters until a final byte.
    Control,
    /// In an operating system command: text until a bell or a string terminator.
    Command,
    /// Behind an escape character in a command, which should begin the string terminator.
    CommandEscape,
}

const ESCAPE: u8 = 0x1B;
const BELL: u8 = 0x07;

impl Ansi {
    /// The message without sequences.
    pub(super) fn strip(&mut self, message: &[u8]) -> Vec<u8> {
        message.iter().copied().filter(|byte| self.keeps(*byte)).collect()
    }

    fn keeps(&mut self, byte: u8) -> bool {
        let (next, keep) = match (*self, byte) {
            // An escape begins anew; intermediate bytes, as in the choice of a character set, go on.
            (Self::Text | Self::Escape | Self::Control, ESCAPE) | (Self::Escape, 0x20..=0x2F) => {
                (Self::Escape, false)
            }
            // A line break ends what no terminal would understand any more.
            (Self::Text, _) | (_, b'\n') => (Self::Text, true),
            (Self::Escape, b'[') => (Self::Control, false),
            (Self::Escape, b']') => (Self::Command, false),
            (Self::Control, 0x40..=0x7E)
            | (Self::Escape | Self::CommandEscape, _)
            | (Self::Command, BELL) => (Self::Text, false),
            (Self::Control, _) => (Self::Control, false),
            (Self::Command, ESCAPE) => (Self::CommandEscape, false),
            (Self::Command, _) => (Self::Command, false),
        };
        *self = next;
        keep
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn removes_sequences_and_keeps_text() {
        for (message, plain) in [
            ("\u{1b}[1;31mred\u{1b}[0m\n", "red\n"),
            ("\u{1b}]0;title\u{7}text", "text"),
            ("\u{1b}]8;;http://x\u{1b}\\link", "link"),
            ("\u{1b}(Bset\u{1b}c", "set"),
            ("broken\u{1b}[12\nnext", "broken\nnext"),
        ] {
            assert_eq!(Ansi::default().strip(message.as_bytes()), plain.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn text_without_escapes_stays(text in "[^\u{1b}]*") {
            prop_assert_eq!(Ansi::default().strip(text.as_bytes()), text.as_bytes());
        }

        #[test]
        fn does_not_depend_on_how_it_arrives(bytes: Vec<u8>, at in 0usize..20) {
            let (first, rest) = bytes.split_at(at.min(bytes.len()));
            let mut pieces = Ansi::default();
            let joined = [pieces.strip(first), pieces.strip(rest)].concat();
            prop_assert_eq!(joined, Ansi::default().strip(&bytes));
        }
    }
}
