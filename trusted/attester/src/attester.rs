//! The handle that the agent holds, and the thread behind it that owns the platform.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use cloister_evidence::report_data::ReportData;
use cloister_evidence::{BootEvent, BootLog, EventLogEntry, RuntimeEvent};
use tokio::sync::{mpsc, oneshot};

use crate::detect::{self, DetectError};
use crate::development::Development;
use crate::hardware::{Hardware, HardwareError, Platform};
use crate::log::{MAX_RUNTIME_LOG_BYTES, Room, SharedLog};

/// Requests that wait for the platform; further ones are refused as busy. A hardware quote takes about
/// a second.
pub const MAX_PENDING: usize = 32;

/// Register of runtime events.
const RUNTIME_REGISTER: u32 = 3;

/// Why there is no evidence.
#[derive(Debug, thiserror::Error)]
pub enum AttestError {
    /// [`MAX_PENDING`] requests wait already.
    #[error("the platform is busy with {MAX_PENDING} other requests; try again")]
    Busy,
    /// The log of this boot cannot take the event.
    #[error(
        "the event log is full: a boot measures at most {MAX_RUNTIME_LOG_BYTES} bytes, and no more events than fit in a log"
    )]
    LogFull,
    /// The thread that owns the platform has ended.
    #[error("the platform's thread has ended")]
    Gone,
    /// The platform.
    #[error(transparent)]
    Hardware(#[from] HardwareError),
}

/// A quote and the log that built its registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// TDX quote, SNP report or Nitro document, by the platform.
    pub quote: Vec<u8>,
    /// The log as it was when the quote was made.
    pub event_log: Arc<Vec<EventLogEntry>>,
}

/// What the platform's thread is asked for.
enum Job {
    Quote(Box<ReportData>, oneshot::Sender<Result<Evidence, AttestError>>),
    Document(Vec<u8>, oneshot::Sender<Result<Vec<u8>, AttestError>>),
    Measure(Vec<RuntimeEvent>, oneshot::Sender<Result<(), AttestError>>),
}

/// Makes evidence about this machine. Clones ask the same platform.
#[derive(Debug, Clone)]
pub struct Attester {
    platform: Platform,
    jobs: mpsc::Sender<Job>,
    log: SharedLog,
}

impl Attester {
    /// Finds what protects this machine. Fails when there is nothing, or hardware that does not work; a
    /// port that the kernel does not know yet is awaited for 5 s.
    pub async fn detect() -> Result<Self, DetectError> {
        Self::detect_at(Path::new("/")).await
    }

    /// The same below another root directory, which imitates `/dev`, `/proc` and `/sys`.
    pub async fn detect_at(root: &Path) -> Result<Self, DetectError> {
        let root = root.to_owned();
        let opened = tokio::task::spawn_blocking(move || detect::open(&root)).await;
        let hardware = opened.map_err(|error| DetectError::Thread(error.into()))??;
        Self::start(hardware).map_err(DetectError::Thread)
    }

    /// The development TEE over any connection to a node, or to what plays it.
    pub fn over_development_channel(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::start(Box::new(Development::start(reader, writer)?))
    }

    pub(crate) fn start(hardware: Box<dyn Hardware>) -> std::io::Result<Self> {
        let platform = hardware.platform();
        let (jobs, queue) = mpsc::channel(MAX_PENDING);
        let log = SharedLog::default();
        let worker = Worker { hardware, log: log.clone(), room: None, extensions: 0, unconfirmed: None };
        thread::Builder::new().name("attester".into()).spawn(move || worker.run(queue))?;
        Ok(Self { platform, jobs, log })
    }

    /// What protects this machine.
    #[must_use]
    pub const fn platform(&self) -> Platform {
        self.platform
    }

    /// The log so far, boot events first. Empty until the first quote or measurement.
    #[must_use]
    pub fn event_log(&self) -> Arc<Vec<EventLogEntry>> {
        self.log.snapshot()
    }

    /// A quote over 64 bytes.
    pub async fn quote(&self, report_data: &ReportData) -> Result<Evidence, AttestError> {
        self.ask(|reply| Job::Quote(Box::new(*report_data), reply)).await
    }

    /// A Nitro document over up to 512 bytes; other platforms refuse.
    pub async fn nitro_document(&self, user_data: Vec<u8>) -> Result<Vec<u8>, AttestError> {
        self.ask(|reply| Job::Document(user_data, reply)).await
    }

    /// Measures events in order and appends them to the log, all before anything else that was asked for
    /// later. On platforms without a register for it they are logged only.
    pub async fn measure(&self, events: Vec<RuntimeEvent>) -> Result<(), AttestError> {
        self.ask(|reply| Job::Measure(events, reply)).await
    }

    async fn ask<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, AttestError>>) -> Job,
    ) -> Result<T, AttestError> {
        let (reply, answer) = oneshot::channel();
        self.jobs.try_send(job(reply)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => AttestError::Busy,
            mpsc::error::TrySendError::Closed(_) => AttestError::Gone,
        })?;
        answer.await.map_err(|_| AttestError::Gone)?
    }
}

/// Owner of the platform.
struct Worker {
    hardware: Box<dyn Hardware>,
    log: SharedLog,
    /// What is left for events; `None` until the boot log was read.
    room: Option<Room>,
    /// Extensions of the runtime register so far.
    extensions: u32,
    /// An event of which nobody knows whether the platform measured it.
    unconfirmed: Option<RuntimeEvent>,
}

impl Worker {
    fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        // Whoever went away does not care about the answer.
        while let Some(job) = queue.blocking_recv() {
            match job {
                // Nobody waits for it any more; a quote is too slow to be made for nobody.
                Job::Quote(_, reply) if reply.is_closed() => {}
                Job::Quote(report_data, reply) => drop(reply.send(self.quote(&report_data))),
                Job::Document(user_data, reply) => {
                    drop(reply.send(self.hardware.document(&user_data).map_err(AttestError::from)));
                }
                Job::Measure(events, reply) => {
                    drop(reply.send(events.into_iter().try_for_each(|event| self.measure(event))));
                }
            }
        }
    }

    fn quote(&mut self, report_data: &ReportData) -> Result<Evidence, AttestError> {
        self.catch_up()?;
        let quote = self.hardware.quote(report_data)?;
        Ok(Evidence { quote, event_log: self.log.snapshot() })
    }

    fn measure(&mut self, event: RuntimeEvent) -> Result<(), AttestError> {
        self.catch_up()?;
        if !self.room.as_mut().is_some_and(|room| room.take(&event)) {
            return Err(AttestError::LogFull);
        }
        self.extend(event)
    }

    /// Register first, log second. When the platform did not answer, the event may be in the register:
    /// it is kept, and confirmed before anything else happens.
    fn extend(&mut self, event: RuntimeEvent) -> Result<(), AttestError> {
        if self.hardware.platform().measures_at_runtime() {
            match self.hardware.extend(RUNTIME_REGISTER, self.extensions, &event.digest()) {
                Ok(()) => self.extensions = self.extensions.saturating_add(1),
                Err(error @ HardwareError::Silent(_)) => {
                    self.unconfirmed = Some(event);
                    return Err(error.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.log.append([event.entry()]);
        Ok(())
    }

    /// Brings the log up to what the registers hold.
    fn catch_up(&mut self) -> Result<(), AttestError> {
        if self.room.is_none() {
            let entries = boot_entries(&self.hardware.boot_log()?)?;
            self.room = Some(Room::beside(entries.len()));
            self.log.append(entries);
        }
        match self.unconfirmed.take() {
            Some(event) => self.extend(event),
            None => Ok(()),
        }
    }
}

fn boot_entries(log: &[u8]) -> Result<Vec<EventLogEntry>, HardwareError> {
    if log.is_empty() {
        return Ok(Vec::new());
    }
    let log = BootLog::parse(log).map_err(|_| HardwareError::Malformed("the boot log cannot be read"))?;
    Ok(log.events().iter().map(BootEvent::entry).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;

    use cloister_evidence::Measurement;

    use super::*;

    /// Register, index and digest of every extension that was asked for.
    type Extensions = Arc<Mutex<Vec<(u32, u32, Measurement)>>>;

    /// A platform that does what it is asked for, but tells nobody of the first extension.
    struct Absent(Extensions);

    impl Hardware for Absent {
        fn platform(&self) -> Platform {
            Platform::Development
        }

        fn boot_log(&mut self) -> Result<Vec<u8>, HardwareError> {
            Ok(Vec::new())
        }

        fn quote(&mut self, report_data: &ReportData) -> Result<Vec<u8>, HardwareError> {
            Ok(report_data.to_vec())
        }

        fn extend(&mut self, register: u32, index: u32, digest: &Measurement) -> Result<(), HardwareError> {
            let mut extensions = self.0.lock().unwrap();
            extensions.push((register, index, *digest));
            if extensions.len() == 1 { Err(HardwareError::Silent(20)) } else { Ok(()) }
        }

        fn document(&mut self, _user_data: &[u8]) -> Result<Vec<u8>, HardwareError> {
            Err(HardwareError::Refused("no documents".into()))
        }
    }

    #[tokio::test]
    async fn an_event_without_an_answer_is_confirmed_before_anything_else() {
        let extensions = Extensions::default();
        let attester = Attester::start(Box::new(Absent(Arc::clone(&extensions)))).unwrap();
        let (first, second) = (RuntimeEvent::new("first", [1]), RuntimeEvent::new("second", [2]));
        let silent = attester.measure(vec![first.clone()]).await.unwrap_err();
        assert!(matches!(silent, AttestError::Hardware(HardwareError::Silent(_))), "{silent}");
        assert!(attester.event_log().is_empty());

        attester.measure(vec![second.clone()]).await.unwrap();
        let evidence = attester.quote(&[0; 64]).await.unwrap();
        let names: Vec<_> = evidence.event_log.iter().map(|entry| entry.event.as_str()).collect();
        assert_eq!(names, ["first", "second"]);
        // The first is confirmed by its own number.
        assert_eq!(
            *extensions.lock().unwrap(),
            [(3, 0, first.digest()), (3, 0, first.digest()), (3, 1, second.digest())]
        );
    }

    #[tokio::test]
    async fn a_quote_confirms_what_had_no_answer_too() {
        let extensions = Extensions::default();
        let attester = Attester::start(Box::new(Absent(Arc::clone(&extensions)))).unwrap();
        attester.measure(vec![RuntimeEvent::new("first", [1])]).await.unwrap_err();
        let evidence = attester.quote(&[0; 64]).await.unwrap();
        assert_eq!(evidence.event_log.len(), 1);
        assert_eq!(extensions.lock().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn more_than_can_wait_are_told_so_at_once() {
        let (guest, _node) = UnixStream::pair().unwrap();
        let attester = Attester::over_development_channel(guest.try_clone().unwrap(), guest).unwrap();
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..MAX_PENDING + 5 {
            let attester = attester.clone();
            calls.spawn(async move { attester.quote(&[0; 64]).await });
        }
        // One is under way at most, and nobody answers it.
        for _ in 0..4 {
            let refused = calls.join_next().await.unwrap().unwrap().unwrap_err();
            assert!(matches!(refused, AttestError::Busy), "{refused}");
        }
    }
}
