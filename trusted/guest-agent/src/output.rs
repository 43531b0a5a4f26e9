//! Programs that the agent runs, and what they print: onto the console in bounded lines, the last ones
//! kept to explain a failure.

use std::collections::VecDeque;
use std::io;
use std::process::{ExitStatus, Stdio};

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tracing::info;

use crate::cut;
use crate::hidden::Hidden;

/// Longest line that is passed on, in bytes; longer ones are cut.
const MAX_LINE_BYTES: usize = 1024;
/// Lines kept to explain a failure.
const TAIL_LINES: usize = 12;

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("cannot run {program}")]
    Run { program: String, source: io::Error },
    #[error("{program} ended with {status}: {tail}")]
    Failed { program: String, status: ExitStatus, tail: String },
}

/// A running program whose output is read line by line.
#[derive(Debug)]
pub(crate) struct Running {
    program: String,
    child: Child,
    output: pipe::Receiver,
    lines: Lines,
    tail: VecDeque<String>,
}

/// Runs a program to its end; a status other than success is an error.
pub(crate) async fn check(command: &mut Command) -> Result<(), CommandError> {
    Running::start(command)?.finish(|_| ()).await
}

/// The same for a program that knows what must not be printed.
pub(crate) async fn check_hiding(command: &mut Command, hidden: &Hidden) -> Result<(), CommandError> {
    Running::start(command)?.hiding(hidden).finish(|_| ()).await
}

impl Running {
    /// Starts a program in a process group of its own, with one pipe for both of its outputs, so that
    /// their lines stay in order.
    pub(crate) fn start(command: &mut Command) -> Result<Self, CommandError> {
        Self::start_with(command, Stdio::null())
    }

    /// Like [`start`](Self::start), with something to read from.
    pub(crate) fn start_with(command: &mut Command, stdin: impl Into<Stdio>) -> Result<Self, CommandError> {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        let run = |source| CommandError::Run { program: program.clone(), source };
        let (reader, writer) = io::pipe().map_err(run)?;
        command.stdin(stdin).stdout(writer.try_clone().map_err(run)?).stderr(writer).process_group(0);
        let child = command.spawn().map_err(run)?;
        // The command keeps its copies of the pipe; they must go, or the output never ends.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let output = pipe::Receiver::from_owned_fd(reader.into()).map_err(run)?;
        Ok(Self { program, child, output, lines: Lines::default(), tail: VecDeque::new() })
    }

    /// Hides these words in what the program prints.
    pub(crate) fn hiding(mut self, hidden: &Hidden) -> Self {
        self.lines.hidden = hidden.clone();
        self
    }

    /// Process id, which is also that of its group, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for the end and tells each line of output. Processes that the program leaves behind keep
    /// their output going to the console, but nobody waits for them.
    pub(crate) async fn finish(mut self, mut on_line: impl FnMut(&str)) -> Result<(), CommandError> {
        let mut buffer = [0; 4096];
        let status = loop {
            tokio::select! {
                biased;
                read = self.output.read(&mut buffer) => match read {
                    Ok(count @ 1..) => self.take(buffer.get(..count).unwrap_or_default(), &mut on_line),
                    _ => break self.child.wait().await,
                },
                status = self.child.wait() => break status,
            }
        };
        while let Ok(count @ 1..) = self.output.try_read(&mut buffer) {
            self.take(buffer.get(..count).unwrap_or_default(), &mut on_line);
        }
        let status = status.map_err(|source| CommandError::Run { program: self.program.clone(), source })?;
        if status.success() {
            let Self { program, output, lines, .. } = self;
            tokio::spawn(forward(program, output, lines));
            return Ok(());
        }
        let tail = Vec::from(self.tail).join("\n");
        Err(CommandError::Failed { program: self.program, status, tail })
    }

    fn take(&mut self, bytes: &[u8], on_line: &mut impl FnMut(&str)) {
        for line in self.lines.push(bytes) {
            info!("{}: {line}", self.program);
            on_line(&line);
            if self.tail.len() == TAIL_LINES {
                self.tail.pop_front();
            }
            self.tail.push_back(line);
        }
    }
}

/// Passes output on to the console until nobody holds the other end any more.
async fn forward(program: String, mut output: pipe::Receiver, mut lines: Lines) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = output.read(&mut buffer).await {
        for line in lines.push(buffer.get(..count).unwrap_or_default()) {
            info!("{program}: {line}");
        }
    }
}

/// Cuts a stream of bytes into printable lines of bounded length. Carriage returns end lines too, as
/// progress displays use them; empty lines do not count.
#[derive(Debug, Default)]
struct Lines {
    unfinished: Vec<u8>,
    hidden: Hidden,
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut finished = Vec::new();
        for byte in bytes {
            if !matches!(byte, b'\n' | b'\r') {
                if self.unfinished.len() < MAX_LINE_BYTES {
                    self.unfinished.push(*byte);
                }
            } else if !self.unfinished.is_empty() {
                let text = String::from_utf8_lossy(&self.unfinished);
                let text = self.hidden.hide(text.into_owned(), self.unfinished.len() == MAX_LINE_BYTES);
                finished.push(cut::printable(&text, MAX_LINE_BYTES));
                self.unfinished.clear();
            }
        }
        finished
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_they_arrive(bytes: Vec<u8>, chunk in 1usize..7) {
            let whole = Lines::default().push(&bytes);
            let mut lines = Lines::default();
            let pieces: Vec<_> = bytes.chunks(chunk).flat_map(|piece| lines.push(piece)).collect();
            prop_assert_eq!(&pieces, &whole);
            prop_assert!(whole.iter().all(|line| (1..=MAX_LINE_BYTES).contains(&line.len())));
        }
    }

    #[tokio::test]
    async fn tells_lines_in_order_and_explains_failures() {
        let mut seen = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; printf 'three\\r'; exit 3"]);
        let result = Running::start(&mut command).unwrap().finish(|line| seen.push(line.to_owned())).await;
        assert_eq!(seen, ["one", "two", "three"]);
        let Err(CommandError::Failed { status, tail, .. }) = result else { panic!("{result:?}") };
        assert_eq!((status.code(), tail.as_str()), (Some(3), "one\ntwo\nthree"));
    }

    #[tokio::test]
    async fn hides_values_in_what_is_told_and_in_what_explains_a_failure() {
        let environment = cloister_sealed_env::Environment::from_pairs([("TOKEN", "s3cr3t-token")]).unwrap();
        let mut seen = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", "echo the token is s3cr3t-token; exit 1"]);
        let running = Running::start(&mut command).unwrap().hiding(&Hidden::of(&environment));
        let error = running.finish(|line| seen.push(line.to_owned())).await.unwrap_err();
        assert_eq!(seen, ["the token is [hidden]"]);
        assert!(error.to_string().ends_with("the token is [hidden]"), "{error}");
    }

    #[test]
    fn values_are_hidden_wherever_lines_end() {
        let long = "ü".repeat(MAX_LINE_BYTES);
        let pairs = [("LONG", long.as_str()), ("RETURNS", "first-line\rsecond-line")];
        let hidden = Hidden::of(&cloister_sealed_env::Environment::from_pairs(pairs).unwrap());
        let told = |line: String| {
            let mut lines = Lines { hidden: hidden.clone(), ..Lines::default() };
            lines.push(format!("{line}\n").as_bytes())
        };
        // The cut goes through a character in one of these.
        assert_eq!(told(long.clone()), ["[hidden]"]);
        assert_eq!(told(format!("x{long}")), ["x[hidden]"]);
        assert_eq!(told("it is first-line\rsecond-line".to_owned()), ["it is [hidden]", "[hidden]"]);
    }

    #[tokio::test]
    async fn does_not_wait_for_processes_left_behind() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo started; sleep 60 & exit 0"]);
        let running = Running::start(&mut command).unwrap();
        let group = running.pid().unwrap();
        running.finish(|_| ()).await.unwrap();
        let group = rustix::process::Pid::from_raw(i32::try_from(group).unwrap()).unwrap();
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    }
}
