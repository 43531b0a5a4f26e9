//! JSON with secrets in it.

use std::io;

use serde::Serialize;
use zeroize::Zeroizing;

/// The text of `value`, wiped when it is dropped. It is written into a buffer that is large enough from the
/// beginning: one that grows leaves copies of secrets behind.
pub(crate) fn to_secret_json(value: &impl Serialize) -> serde_json::Result<Zeroizing<Vec<u8>>> {
    let mut length = Length(0);
    serde_json::to_writer(&mut length, value)?;
    let mut text = Zeroizing::new(Vec::with_capacity(length.0));
    serde_json::to_writer(&mut *text, value)?;
    Ok(text)
}

/// Counts what is written.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_never_grows() {
        for length in [0, 1, 10_000, 100_000] {
            let value = "\"".repeat(length);
            let text = to_secret_json(&value).unwrap();
            assert_eq!(*text, serde_json::to_vec(&value).unwrap());
            assert_eq!(text.capacity(), text.len());
        }
    }
}
