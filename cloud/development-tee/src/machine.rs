//! The registers of one virtual machine, from its launch to its end.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use cloister_evidence::report_data::ReportData;
use cloister_evidence::{EventLogEntry, ImageMeasurement, LaunchRegisters, Measurement, Registers};
use serde::{Deserialize, Serialize};

use crate::TeeError;
use crate::report::TdReport;

/// Most extensions of one register.
const MAX_EXTENSIONS: usize = 4096;
/// Longest file: a launch and all extensions.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// Why a register was not extended.
#[derive(Debug, thiserror::Error)]
pub enum ExtendError {
    /// Register 0 or 1, which only the launch measures into, or none at all.
    #[error("only registers 2 and 3 can be extended")]
    Register,
    /// An extension of that index was made before, with another digest.
    #[error("extension {0} of this register was made with another digest")]
    Made(u32),
    /// Extensions before it are missing.
    #[error("extension {asked} of this register comes too early: {made} were made")]
    Early {
        /// The index that was asked for.
        asked: u32,
        /// Extensions that were made.
        made: usize,
    },
    /// Too many.
    #[error("a register takes {MAX_EXTENSIONS} extensions in one boot")]
    TooMany,
    /// It could not be kept.
    #[error(transparent)]
    Tee(#[from] TeeError),
}

/// A line of the file, after the first.
#[derive(Serialize, Deserialize)]
struct Extension {
    register: u32,
    digest: Measurement,
}

/// The first line of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Launch {
    image: ImageMeasurement,
    cpu_count: u32,
    memory_size: u64,
    mr_config_id: String,
}

/// The registers of a machine, kept in a file that only grows until the next launch replaces it: whoever
/// takes over a running machine finds what it measured.
#[derive(Debug)]
pub struct MachineRegisters {
    path: PathBuf,
    file: File,
    length: u64,
    launch: LaunchRegisters,
    mr_config_id: [u8; 48],
    rtmr2: Register,
    rtmr3: Register,
}

/// A register that the guest extends.
#[derive(Debug)]
struct Register {
    value: Measurement,
    extensions: Vec<Measurement>,
}

impl Register {
    const fn new(value: Measurement) -> Self {
        Self { value, extensions: Vec::new() }
    }

    fn extend(&mut self, digest: Measurement) {
        self.value = self.value.extended_by(&digest);
        self.extensions.push(digest);
    }

    /// Whether extension number `index` is still to be made.
    fn is_next(&self, index: u32, digest: &Measurement) -> Result<bool, ExtendError> {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let made = self.extensions.len();
        match self.extensions.get(at) {
            Some(same) if same == digest => Ok(false),
            Some(_) => Err(ExtendError::Made(index)),
            None if at >= MAX_EXTENSIONS => Err(ExtendError::TooMany),
            None if at > made => Err(ExtendError::Early { asked: index, made }),
            None => Ok(true),
        }
    }
}

impl MachineRegisters {
    /// Starts anew for a launch of `image` with so many CPUs and bytes of memory; `path` is replaced.
    pub fn launch(
        path: &Path,
        image: &ImageMeasurement,
        cpu_count: u32,
        memory_size: u64,
        mr_config_id: [u8; 48],
    ) -> Result<Self, TeeError> {
        let launch =
            Launch { image: image.clone(), cpu_count, memory_size, mr_config_id: hex::encode(mr_config_id) };
        let mut line = serde_json::to_vec(&launch).map_err(TeeError::Document)?;
        line.push(b'\n');
        let replace = || {
            // A new file, not an emptied one: a machine that still runs keeps what it had.
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(&line)?;
            Ok(file)
        };
        let file = replace().map_err(|source| TeeError::File { path: path.to_owned(), source })?;
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        Ok(Self::launched(path, file, length, image.launch(cpu_count, memory_size), mr_config_id))
    }

    fn launched(
        path: &Path,
        file: File,
        length: u64,
        launch: LaunchRegisters,
        mr_config_id: [u8; 48],
    ) -> Self {
        let [_, _, rtmr2] = launch.rtmr;
        let (rtmr2, rtmr3) = (Register::new(rtmr2), Register::new(Measurement::ZERO));
        Self { path: path.to_owned(), file, length, launch, mr_config_id, rtmr2, rtmr3 }
    }

    /// What a running machine measured so far; `None` when it was not launched with registers.
    pub fn recover(path: &Path) -> Result<Option<Self>, TeeError> {
        let failed = |source| TeeError::File { path: path.to_owned(), source };
        let file = match OpenOptions::new().read(true).append(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        if file.metadata().map_err(failed)?.len() > MAX_FILE_BYTES {
            return Err(TeeError::Malformed("the file of a machine's registers is too long"));
        }
        let mut lines = Lines::new(&file);
        let first = lines.next().map_err(failed)?;
        let launch: Launch = first.and_then(|line| serde_json::from_slice(&line).ok()).ok_or(DAMAGED)?;
        let mut mr_config_id = [0; 48];
        hex::decode_to_slice(&launch.mr_config_id, &mut mr_config_id).map_err(|_| DAMAGED)?;
        let mut extensions = Vec::new();
        while let Some(line) = lines.next().map_err(failed)? {
            extensions.push(serde_json::from_slice::<Extension>(&line).map_err(|_| DAMAGED)?);
        }
        let length = lines.length;
        // The end of a line that was being written when the writer died: nobody was told that it counts.
        file.set_len(length).map_err(failed)?;
        let launch = launch.image.launch(launch.cpu_count, launch.memory_size);
        let mut machine = Self::launched(path, file, length, launch, mr_config_id);
        for extension in extensions {
            machine.register(extension.register).ok_or(DAMAGED)?.extend(extension.digest);
        }
        Ok(Some(machine))
    }

    /// Makes extension number `index` of a register; one that was made already with the same digest has no
    /// further effect.
    pub fn extend(&mut self, register: u32, index: u32, digest: Measurement) -> Result<(), ExtendError> {
        if self.register(register).ok_or(ExtendError::Register)?.is_next(index, &digest)? {
            self.append(&Extension { register, digest })?;
            self.register(register).ok_or(ExtendError::Register)?.extend(digest);
        }
        Ok(())
    }

    /// The register of this number, if the guest can extend it.
    fn register(&mut self, number: u32) -> Option<&mut Register> {
        match number {
            2 => Some(&mut self.rtmr2),
            3 => Some(&mut self.rtmr3),
            _ => None,
        }
    }

    /// Kept before it counts.
    fn append(&mut self, extension: &Extension) -> Result<(), TeeError> {
        let mut line = serde_json::to_vec(extension).map_err(TeeError::Document)?;
        line.push(b'\n');
        if let Err(source) = self.file.write_all(&line) {
            // Half a line must not precede the next one; if it cannot be removed either, the next
            // recovery finds a damaged file and refuses.
            let _ = self.file.set_len(self.length);
            return Err(TeeError::File { path: self.path.clone(), source });
        }
        self.length = self.length.saturating_add(u64::try_from(line.len()).unwrap_or(u64::MAX));
        Ok(())
    }

    /// The registers now.
    #[must_use]
    pub fn registers(&self) -> Registers {
        let [rtmr0, rtmr1, _] = self.launch.rtmr;
        Registers { mrtd: self.launch.mrtd, rtmr0, rtmr1, rtmr2: self.rtmr2.value, rtmr3: self.rtmr3.value }
    }

    /// What the launch measured into RTMR 0 to 2.
    #[must_use]
    pub fn boot_events(&self) -> &[EventLogEntry] {
        &self.launch.events
    }

    /// What a quote says about the machine now.
    #[must_use]
    pub fn report(&self, report_data: ReportData) -> TdReport {
        TdReport::new(self.registers(), self.mr_config_id, report_data)
    }
}

const DAMAGED: TeeError = TeeError::Malformed("the file of a machine's registers is damaged");

/// Whole lines of a file, and how long they are together.
struct Lines<'a> {
    reader: BufReader<&'a File>,
    length: u64,
}

impl<'a> Lines<'a> {
    fn new(file: &'a File) -> Self {
        Self { reader: BufReader::new(file), length: 0 }
    }

    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let read = self.reader.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Ok(None);
        }
        self.length = self.length.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        Ok(Some(line))
    }
}
