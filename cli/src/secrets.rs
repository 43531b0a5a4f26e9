//! Asking a person for a secret without showing it.

use std::fs::File;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _};
use std::os::fd::AsFd as _;

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::output::Output;

/// Longest secret, in bytes.
const MAX_BYTES: u64 = 4096;

/// A line of a person at the terminal, who does not see it; elsewhere all of stdin. `what` names it when it cannot be
/// read.
pub(crate) fn ask(output: &Output, words: &str, what: &str) -> Result<Zeroizing<String>, Failure> {
    let failed = |error| Failure::local(format!("cannot read {what}"), error);
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return piped(what);
    }
    let mut text = room();
    output.prompt(words);
    let echoing = tcgetattr(&stdin).map_err(|error| failed(error.into()))?;
    let mut silent = echoing.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &silent).map_err(|error| failed(error.into()))?;
    let read = stdin.lock().take(MAX_BYTES).read_line(&mut text);
    tcsetattr(&stdin, OptionalActions::Now, &echoing).map_err(|error| failed(error.into()))?;
    output.say("");
    match read.map_err(failed)? {
        0 => Err(Failure::usage(format!("{what} was not given"))),
        _ => Ok(text),
    }
}

/// All of stdin, of which nobody read before. `what` names it when it cannot be read, or is too long.
pub(crate) fn piped(what: &str) -> Result<Zeroizing<String>, Failure> {
    let mut text = room();
    // Not through the buffer that all of the program shares, and nobody clears.
    let all = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    all.and_then(|all| all.take(MAX_BYTES + 1).read_to_string(&mut text))
        .map_err(|error| Failure::local(format!("cannot read {what}"), error))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Failure::usage(format!("{what} is longer than {MAX_BYTES} bytes")));
    }
    Ok(text)
}

/// Allocated once, so that no copy stays behind.
fn room() -> Zeroizing<String> {
    Zeroizing::new(String::with_capacity(8192))
}
