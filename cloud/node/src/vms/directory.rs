//! The files of one VM.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cloister_app_compose::InstanceId;
use cloister_guest_channel::NodeToken;
use cloister_guest_channel::config_disk::{ConfigDisk, ConfigDiskError};
use cloister_guest_channel::status::GuestStatus;
use cloister_node_api::{ExitReason, VmSpec, VmState};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::deadline::{Deadline, Overdue};
use crate::files;
use crate::host::Need;
use crate::vmm::{Channels, Disks};

const SECTOR_BYTES: usize = 512;
const GIB: u64 = 1 << 30;
/// The console log is moved aside when it is longer than this, in bytes.
const SERIAL_ROTATE_BYTES: u64 = 4 * 1024 * 1024;
/// Older console logs that are kept.
const SERIAL_KEPT: u32 = 2;
/// Most of the console log that is read for a tail, in bytes.
const SERIAL_TAIL_BYTES: u64 = 1024 * 1024;
/// Begins the name of a directory that is being removed.
const REMOVED_PREFIX: &str = ".removed-";

/// What the control plane ordered, with the secret that was made for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) spec: VmSpec,
    pub(crate) node_token: NodeToken,
}

/// Power state as it survives the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PowerRecord {
    pub(crate) state: VmState,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) exited_at: Option<Timestamp>,
    #[serde(default)]
    pub(crate) exit_reason: Option<ExitReason>,
    /// Until when a VM that is stopping may take.
    stop_by: Option<Timestamp>,
    /// What happens then.
    #[serde(default)]
    overdue: Overdue,
    /// The ingress begins nothing new with it.
    #[serde(default)]
    pub(crate) draining: bool,
}

/// What the guest said, as it survives the node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GuestRecord {
    /// Identity on the data disk: known from the first boot on, also before a later one tells it again.
    pub(crate) instance_id: Option<InstanceId>,
    /// Its last status since the power was turned on.
    pub(crate) status: Option<GuestStatus>,
}

impl PowerRecord {
    /// A VM that was never started.
    pub(crate) const NEW: Self = Self {
        state: VmState::Stopped,
        started_at: None,
        exited_at: None,
        exit_reason: None,
        stop_by: None,
        overdue: Overdue::TakePower,
        draining: false,
    };

    /// Until when a VM that is stopping may take, and what happens then.
    pub(crate) fn deadline(&self) -> Option<Deadline<Timestamp>> {
        self.stop_by.map(|at| Deadline { at, overdue: self.overdue })
    }

    /// Sets what [`PowerRecord::deadline`] tells.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Deadline<Timestamp>>) {
        self.stop_by = deadline.map(|deadline| deadline.at);
        self.overdue = deadline.map_or(Overdue::TakePower, |deadline| deadline.overdue);
    }
}

/// The directory of one VM, and its sockets, which lie where paths are short.
#[derive(Debug, Clone)]
pub(crate) struct VmDirectory {
    dir: PathBuf,
    sockets: PathBuf,
}

impl VmDirectory {
    /// The directory of `vm` below the node's directories for VMs and sockets.
    pub(crate) fn new(vms: &Path, sockets: &Path, vm: Uuid) -> Self {
        Self { dir: vms.join(vm.to_string()), sockets: sockets.join(vm.simple().to_string()) }
    }

    /// VMs with a directory below `vms`. Directories whose removal was interrupted are removed.
    pub(crate) fn list(vms: &Path) -> io::Result<Vec<Uuid>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(vms)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(REMOVED_PREFIX) {
                fs::remove_dir_all(entry.path())?;
            } else if let Ok(vm) = name.parse() {
                found.push(vm);
            }
        }
        found.sort();
        Ok(found)
    }

    /// Whether the VM has a directory.
    pub(crate) fn exists(&self) -> bool {
        self.dir.exists()
    }

    /// Makes the directories.
    pub(crate) fn create(&self) -> io::Result<()> {
        files::make_dir(&self.dir)?;
        files::make_dir(&self.sockets)?;
        files::sync_parent(&self.dir)
    }

    /// Removes every file, the sockets first: every start makes them anew, and nobody would look for them
    /// later. The VM is gone with the next step, whatever happens then.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let missing_is_fine = |result: io::Result<()>| match result {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        };
        missing_is_fine(fs::remove_dir_all(&self.sockets))?;
        let name = self.dir.file_name().unwrap_or_default().to_string_lossy();
        let removed = self.dir.with_file_name(format!("{REMOVED_PREFIX}{name}"));
        missing_is_fine(fs::rename(&self.dir, &removed))?;
        missing_is_fine(files::sync_parent(&self.dir))?;
        missing_is_fine(fs::remove_dir_all(&removed))
    }

    pub(crate) fn read_order(&self) -> io::Result<Option<Order>> {
        files::read_json(&self.order())
    }

    pub(crate) fn write_order(&self, order: &Order) -> io::Result<()> {
        files::write_json(&self.order(), order)
    }

    pub(crate) fn read_power(&self) -> io::Result<PowerRecord> {
        Ok(files::read_json(&self.power())?.unwrap_or(PowerRecord::NEW))
    }

    pub(crate) fn write_power(&self, record: &PowerRecord) -> io::Result<()> {
        files::write_json(&self.power(), record)
    }

    /// What the process that runs was started with; `None` when nobody noted it.
    pub(crate) fn read_need(&self) -> Option<Need> {
        files::read_json(&self.need()).ok().flatten()
    }

    /// Notes what a process is about to be started with. It ends with the host, as the process does.
    pub(crate) fn write_need(&self, need: &Need) -> io::Result<()> {
        files::write_lightly(&self.need(), &serde_json::to_vec(need)?)
    }

    /// What is kept of the guest's words; nothing when that was lost, for the guest repeats them.
    pub(crate) fn read_guest(&self) -> GuestRecord {
        files::read_json(&self.guest()).ok().flatten().unwrap_or_default()
    }

    pub(crate) fn write_guest(&self, record: &GuestRecord) -> io::Result<()> {
        files::write_lightly(&self.guest(), &serde_json::to_vec(record)?)
    }

    /// Replaces the configuration disk; every start makes a new one.
    pub(crate) fn write_config(&self, config: &ConfigDisk) -> Result<(), ConfigDiskError> {
        let mut bytes = Vec::new();
        config.write(&mut bytes)?;
        bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES), 0);
        Ok(files::write_lightly(&self.disks().config, &bytes)?)
    }

    /// Size of the data disk in bytes; 0 when there is none.
    pub(crate) fn data_bytes(&self) -> io::Result<u64> {
        match fs::metadata(self.disks().data) {
            Ok(data) => Ok(data.len()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Makes the data disk, or grows it. It is sparse and is never made smaller.
    pub(crate) fn ensure_data(&self, disk_gb: u32) -> io::Result<()> {
        let wanted = u64::from(disk_gb) * GIB;
        let disk = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.disks().data)?;
        if disk.metadata()?.len() < wanted {
            disk.set_len(wanted)?;
            disk.sync_all()?;
        }
        Ok(())
    }

    /// Moves the end of a long console log aside. The VM may be writing: it appends, so the file is cut
    /// in place, and what comes next starts at its beginning. On a full disk the end is lost as well.
    pub(crate) fn rotate_serial(&self) -> io::Result<()> {
        let path = self.channels().serial_log;
        let older = |index: u32| path.with_extension(format!("log.{index}"));
        let mut log = match OpenOptions::new().read(true).write(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        let length = log.metadata()?.len();
        if length <= SERIAL_ROTATE_BYTES {
            return Ok(());
        }
        for index in (1..SERIAL_KEPT).rev() {
            match fs::rename(older(index), older(index + 1)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        log.seek(SeekFrom::Start(length - SERIAL_ROTATE_BYTES))?;
        let mut end = Vec::new();
        (&log).take(SERIAL_ROTATE_BYTES).read_to_end(&mut end)?;
        let kept = files::write_lightly(&older(1), &end);
        log.set_len(0).and(kept)
    }

    /// The last lines of the console, at most `lines` and a mebibyte.
    pub(crate) fn serial_tail(&self, lines: usize) -> io::Result<String> {
        let mut log = match fs::File::open(self.channels().serial_log) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
            other => other?,
        };
        let start = log.metadata()?.len().saturating_sub(SERIAL_TAIL_BYTES);
        log.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        log.take(SERIAL_TAIL_BYTES).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let all: Vec<_> = text.lines().collect();
        let tail = all.get(all.len().saturating_sub(lines)..).unwrap_or_default();
        Ok(tail.iter().flat_map(|line| [*line, "\n"]).collect())
    }

    pub(crate) fn disks(&self) -> Disks {
        Disks { config: self.dir.join("config.img"), data: self.dir.join("data.img") }
    }

    pub(crate) fn channels(&self) -> Channels {
        Channels {
            pid_file: self.dir.join("qemu.pid"),
            serial_log: self.dir.join("serial.log"),
            console: None,
            monitor: self.sockets.join("qmp"),
            events: self.sockets.join("events"),
            status: self.sockets.join("status"),
            tee: self.sockets.join("tee"),
        }
    }

    /// Where the console of a development image is reached.
    pub(crate) fn console_socket(&self) -> PathBuf {
        self.sockets.join("serial")
    }

    /// What the development TEE keeps of a launch and what the guest measured since.
    pub(crate) fn registers(&self) -> PathBuf {
        self.dir.join("registers")
    }

    /// Where the image mirror of this VM listens.
    pub(crate) fn mirror_socket(&self) -> PathBuf {
        self.sockets.join("mirror")
    }

    fn order(&self) -> PathBuf {
        self.dir.join("spec.json")
    }

    fn need(&self) -> PathBuf {
        self.dir.join("need.json")
    }

    fn guest(&self) -> PathBuf {
        self.dir.join("guest.json")
    }

    fn power(&self) -> PathBuf {
        self.dir.join("power.json")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn directory() -> (tempfile::TempDir, VmDirectory) {
        let dir = tempfile::tempdir().unwrap();
        let vm = VmDirectory::new(&dir.path().join("vms"), &dir.path().join("run"), Uuid::from_u128(1));
        vm.create().unwrap();
        (dir, vm)
    }

    #[test]
    fn console_logs_stay_short_while_they_are_written() {
        let (dir, vm) = directory();
        let path = vm.channels().serial_log;
        let mut writer = OpenOptions::new().append(true).create(true).open(&path).unwrap();
        for round in 0..4 {
            let line = format!("round {round}\n");
            writer.write_all(line.repeat(700_000).as_bytes()).unwrap();
            vm.rotate_serial().unwrap();
            writer.write_all(b"last\n").unwrap();
            assert_eq!(vm.serial_tail(9).unwrap(), "last\n", "what comes next starts at the beginning");
        }
        let logs =
            fs::read_dir(path.parent().unwrap()).unwrap().map(|log| log.unwrap().metadata().unwrap().len());
        let lengths: Vec<_> = logs.collect();
        assert!(
            lengths.len() == 3 && lengths.iter().all(|length| *length <= SERIAL_ROTATE_BYTES),
            "{lengths:?}"
        );
        drop(dir);
    }

    #[test]
    fn removal_can_be_repeated_and_finished_later() {
        let (dir, vm) = directory();
        let vms = dir.path().join("vms");
        vm.write_power(&PowerRecord::NEW).unwrap();
        assert_eq!(VmDirectory::list(&vms).unwrap(), [Uuid::from_u128(1)]);
        vm.remove().unwrap();
        vm.remove().unwrap();
        fs::create_dir(vms.join(".removed-left")).unwrap();
        assert!(VmDirectory::list(&vms).unwrap().is_empty());
        assert_eq!(fs::read_dir(&vms).unwrap().count(), 0);
    }

    #[test]
    fn disks_grow_and_never_shrink() {
        let (_dir, vm) = directory();
        for (wanted, expected) in [(1, GIB), (3, 3 * GIB), (2, 3 * GIB)] {
            vm.ensure_data(wanted).unwrap();
            assert_eq!(vm.data_bytes().unwrap(), expected);
        }
    }
}
