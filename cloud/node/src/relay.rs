//! Copies a program's standard streams to a Unix socket and back.
//!
//! QEMU's user network starts one such program for every connection that a guest makes to the image
//! mirror. Its standard error is the guest's connection too, so nothing may be written there.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

/// Joins standard input and output with the socket until the socket's end is reached.
///
/// Fails when nobody listens on the socket or a side breaks; print nothing then, just exit.
pub fn relay(socket: &Path) -> io::Result<()> {
    let mut from_socket = UnixStream::connect(socket)?;
    let to_socket = from_socket.try_clone()?;
    // Ends with the process: standard input may stay open after the socket's last byte.
    thread::spawn(move || {
        let _ = copy(io::stdin().lock(), &to_socket);
        to_socket.shutdown(Shutdown::Write)
    });
    copy(&mut from_socket, io::stdout().lock())
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
