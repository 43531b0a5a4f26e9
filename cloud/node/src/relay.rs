//! Copies a program's standard streams to a Unix socket and back.
//!
//! QEMU's user network starts one such program for every connection that a guest makes to the image
//! mirror. Its standard error is the guest's connection too, so nothing may be written there.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use rustix::fs::{FlockOperation, flock};

/// Most relays of one socket at a time: a guest that opens more connections starts no more programs.
const MAX_RELAYS: usize = 64;

/// Joins standard input and output with the socket until the socket's end is reached.
///
/// Fails when nobody listens on the socket, too many relays of it run already, or a side breaks; print
/// nothing then, just exit.
pub fn relay(socket: &Path) -> io::Result<()> {
    let _place = take_place(socket)?;
    join(UnixStream::connect(socket)?, io::stdin(), io::stdout())
}

/// A lock on one of the files beside the socket that stand for a place each; it ends with the process.
fn take_place(socket: &Path) -> io::Result<File> {
    for place in 0..MAX_RELAYS {
        let file = File::create(socket.with_extension(place.to_string()))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok(file);
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

fn join(socket: UnixStream, input: impl Read + Send + 'static, output: impl Write) -> io::Result<()> {
    let to_socket = socket.try_clone()?;
    // Ends with the process: the input may stay open after the socket's last byte.
    thread::spawn(move || {
        let _ = copy(input, &to_socket);
        to_socket.shutdown(Shutdown::Write)
    });
    copy(socket, output)
}

/// Like [`io::copy`], but every chunk goes on at once.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                to.write_all(chunk.get(..length).unwrap_or_default())?;
                to.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_few_and_free_again() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("mirror");
        let mut places: Vec<_> = (0..MAX_RELAYS).map(|_| take_place(&socket).unwrap()).collect();
        assert_eq!(take_place(&socket).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        places.pop();
        assert!(take_place(&socket).is_ok());
    }

    #[test]
    fn carries_both_directions_and_ends_with_the_socket() {
        let (socket, mut mirror) = UnixStream::pair().unwrap();
        let (input, mut guest) = io::pipe().unwrap();
        let relay = thread::spawn(move || {
            let mut output = Vec::new();
            join(socket, input, &mut output).map(|()| output)
        });
        guest.write_all(b"question").unwrap();
        let mut question = [0; 8];
        mirror.read_exact(&mut question).unwrap();
        assert_eq!(&question, b"question");
        mirror.write_all(b"answer").unwrap();
        drop(mirror);
        // The guest's side is still open.
        assert_eq!(relay.join().unwrap().unwrap(), b"answer");
        drop(guest);
    }
}
