//! The kernel's reports for trusted machines (configfs-tsm) and its registers in sysfs: TDX and SEV-SNP.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use cloister_evidence::Measurement;
use cloister_evidence::report_data::ReportData;
use rustix::fs::{FlockOperation, flock};

use crate::hardware::{Hardware, HardwareError, Platform};

/// Where reports are requested, below the root.
pub(crate) const REPORTS: &str = "sys/kernel/config/tsm/report";
/// Ours among those who request reports.
const ENTRY: &str = "cloister";
const REGISTERS: &str = "sys/devices/virtual/misc/tdx_guest/measurements";
const BOOT_LOG: &str = "sys/firmware/acpi/tables/data/CCEL";

/// Times that a report is requested when others disturb it.
const ATTEMPTS: u32 = 5;
/// A quote with its certificates takes some 5 KiB; the kernel's limit is 32 KiB.
const MAX_REPORT_BYTES: u64 = 32 << 10;
/// Boot logs are some 10 to 100 KiB.
const MAX_BOOT_LOG_BYTES: u64 = 4 << 20;
/// Numbers and names.
const MAX_ATTRIBUTE_BYTES: u64 = 256;

/// A machine whose kernel makes TSM reports.
#[derive(Debug)]
pub(crate) struct Tsm {
    platform: Platform,
    root: PathBuf,
    entry: PathBuf,
}

impl Tsm {
    /// Prepares the report entry below `root` and checks that the kernel's provider is that of `platform`.
    pub(crate) fn open(root: &Path, platform: Platform) -> Result<Self, HardwareError> {
        let entry = root.join(REPORTS).join(ENTRY);
        match fs::create_dir(&entry) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(file(&entry)(error)),
            _ => {}
        }
        let tsm = Self { platform, root: root.to_owned(), entry };
        let provider = tsm.attribute("provider")?;
        let expected = if platform == Platform::SevSnp { "sev_guest" } else { "tdx_guest" };
        if provider.trim() != expected {
            return Err(HardwareError::Malformed("reports come from another provider than the hardware's"));
        }
        Ok(tsm)
    }

    fn attribute(&self, name: &str) -> Result<String, HardwareError> {
        let bytes = read_bounded(&self.entry.join(name), MAX_ATTRIBUTE_BYTES)?;
        String::from_utf8(bytes).map_err(|_| HardwareError::Malformed("an attribute is not text"))
    }

    /// The kernel counts what is written to an entry, so that a reader sees whether the report is its own.
    fn generation(&self) -> Result<u64, HardwareError> {
        self.attribute("generation")?
            .trim()
            .parse()
            .map_err(|_| HardwareError::Malformed("the generation is not a number"))
    }

    /// The report over what is written as the generation behind `before`. Somebody else's generation, as
    /// the error within, means that the report would be theirs.
    fn try_report(
        &self,
        report_data: &ReportData,
        before: u64,
    ) -> Result<Result<Vec<u8>, u64>, HardwareError> {
        let inblob = self.entry.join("inblob");
        // The kernel takes what was written when the file is closed.
        write_existing(&inblob, report_data).map_err(file(&inblob))?;
        let ours = before.wrapping_add(1);
        let written = self.generation()?;
        if written != ours {
            return Ok(Err(written));
        }
        let report = read_bounded(&self.entry.join("outblob"), MAX_REPORT_BYTES)?;
        let read = self.generation()?;
        Ok(if read == ours { Ok(report) } else { Err(read) })
    }
}

impl Hardware for Tsm {
    fn platform(&self) -> Platform {
        self.platform
    }

    fn boot_log(&mut self) -> Result<Vec<u8>, HardwareError> {
        match self.platform {
            Platform::Tdx => read_bounded(&self.root.join(BOOT_LOG), MAX_BOOT_LOG_BYTES),
            // Firmware and configuration are in the launch digest; nothing is logged.
            _ => Ok(Vec::new()),
        }
    }

    fn quote(&mut self, report_data: &ReportData) -> Result<Vec<u8>, HardwareError> {
        let inblob = self.entry.join("inblob");
        // Held open apart from the writes, whose closing means something.
        let lock = OpenOptions::new().write(true).open(&inblob).map_err(file(&inblob))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|errno| file(&inblob)(errno.into()))?;
        let mut generation = self.generation()?;
        for _ in 0..ATTEMPTS {
            match self.try_report(report_data, generation)? {
                Ok(report) if report.is_empty() => {
                    return Err(HardwareError::Malformed("the report is empty"));
                }
                Ok(report) => return Ok(report),
                Err(others) => generation = others,
            }
        }
        Err(HardwareError::Disturbed)
    }

    fn extend(&mut self, register: u32, _index: u32, digest: &Measurement) -> Result<(), HardwareError> {
        if self.platform != Platform::Tdx {
            return Err(HardwareError::NoRuntimeRegister(self.platform));
        }
        let path = self.root.join(REGISTERS).join(format!("rtmr{register}:sha384"));
        write_existing(&path, digest.as_bytes()).map_err(file(&path))
    }

    fn document(&mut self, _user_data: &[u8]) -> Result<Vec<u8>, HardwareError> {
        Err(HardwareError::Refused(format!("{} makes no Nitro documents", self.platform)))
    }
}

/// Writes all at once, as such files want it; never creates one.
fn write_existing(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match OpenOptions::new().write(true).open(path)?.write(bytes)? {
        count if count == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, HardwareError> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(file(path))?;
    if bytes.len() as u64 > limit {
        return Err(HardwareError::Malformed("a file is longer than it can be"));
    }
    Ok(bytes)
}

fn file(path: &Path) -> impl Fn(io::Error) -> HardwareError {
    move |source| HardwareError::File { path: path.display().to_string(), source }
}
