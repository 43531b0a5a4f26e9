//! A PostgreSQL server for one test process, from the distribution's package.
//!
//! The server listens on a Unix socket in a temporary directory, keeps nothing and dies with the test
//! process, however that ends.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The package is missing.
    #[error("no PostgreSQL server found below /usr/lib/postgresql; install the package `postgresql`")]
    NotInstalled,
    /// The operating system refused something.
    #[error("PostgreSQL could not be started")]
    Io(#[from] io::Error),
    /// One of the server's programs failed.
    #[error("{program} failed: {stderr}")]
    Program {
        /// Which.
        program: &'static str,
        /// What it said.
        stderr: String,
    },
}

/// A database of the server.
#[derive(Debug, Clone)]
pub struct ThrowawayDatabase {
    name: String,
    /// How it is connected to.
    pub url: String,
}

/// A running server.
pub struct ThrowawayPostgres {
    dir: TempDir,
    /// Locked for as long as this process lives: others remove what nobody has locked.
    _owner: File,
    binaries: PathBuf,
    server: Child,
    databases: AtomicU32,
}

const DIR_PREFIX: &str = "cloister-pg-";
/// File in the directory that the process has locked whose server it is.
const OWNER: &str = "owner";
/// PostgreSQL refuses to run as root; as root it runs as this user of every Debian system.
const UNPRIVILEGED_USER: &str = "nobody";
const UNPRIVILEGED_ID: u32 = 65534;

impl ThrowawayPostgres {
    /// The server of this test process, started at first use.
    pub fn shared() -> Result<&'static Self, &'static PostgresError> {
        static SHARED: OnceLock<Result<ThrowawayPostgres, PostgresError>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    fn start() -> Result<Self, PostgresError> {
        let binaries = newest_binaries().ok_or(PostgresError::NotInstalled)?;
        remove_what_dead_processes_left();
        let dir = tempfile::Builder::new().prefix(DIR_PREFIX).tempdir()?;
        let owner = own(dir.path())?;
        let data = dir.path().join("data");
        fs::create_dir(&data)?;
        if is_root() {
            chown(dir.path(), Some(UNPRIVILEGED_ID), Some(UNPRIVILEGED_ID))?;
            chown(&data, Some(UNPRIVILEGED_ID), Some(UNPRIVILEGED_ID))?;
        }
        let mut initdb = unprivileged(&binaries.join("initdb"));
        initdb.args(["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "--username=test", "-D"]);
        check("initdb", &initdb.arg(&data).output()?)?;
        let mut server = unprivileged(&binaries.join("postgres"));
        server
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(dir.path())
            .args(["-h", "", "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=200"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = spawn_from_lasting_thread(server)?;
        let started = Self { dir, _owner: owner, binaries, server, databases: AtomicU32::new(0) };
        started.wait_until_ready()?;
        Ok(started)
    }

    fn wait_until_ready(&self) -> Result<(), PostgresError> {
        let mut last = None;
        for _ in 0..300 {
            let output = self.client("pg_isready").args(["-q", "-d", "postgres"]).output()?;
            if output.status.success() {
                return Ok(());
            }
            last = Some(output);
            thread::sleep(Duration::from_millis(50));
        }
        last.map_or(Ok(()), |output| check("pg_isready", &output))
    }

    /// Makes an empty database.
    pub fn new_database(&self) -> Result<ThrowawayDatabase, PostgresError> {
        self.create("template0")
    }

    /// Makes a copy of a database that nobody is connected to.
    pub fn copy_of(&self, database: &ThrowawayDatabase) -> Result<ThrowawayDatabase, PostgresError> {
        self.create(&database.name)
    }

    fn create(&self, template: &str) -> Result<ThrowawayDatabase, PostgresError> {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let mut createdb = self.client("createdb");
        check("createdb", &createdb.args(["--strategy=file_copy", "--template", template, &name]).output()?)?;
        let url = format!("postgres://test@localhost/{name}?host={}", self.dir.path().display());
        Ok(ThrowawayDatabase { name, url })
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(self.binaries.join(program));
        command.arg("-h").arg(self.dir.path()).args(["-U", "test"]);
        command
    }
}

impl Drop for ThrowawayPostgres {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A command that dies with this process and, where this one is root, is not root.
fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if is_root() {
        command.args(["--reuid", UNPRIVILEGED_USER, "--regid", "nogroup", "--clear-groups"]);
    }
    command.arg("--").arg(program).current_dir("/");
    command
}

/// A child told to die with its parent dies with the parent's *thread*; a test's thread ends too early.
fn spawn_from_lasting_thread(mut command: Command) -> io::Result<Child> {
    let (sender, spawned) = mpsc::channel();
    thread::spawn(move || {
        let _ = sender.send(command.spawn());
        loop {
            thread::park();
        }
    });
    spawned.recv().map_err(io::Error::other)?
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Marks a directory as one of this process. It is locked before it has the name that others look for.
fn own(dir: &Path) -> io::Result<File> {
    let nameless = dir.join("new");
    let owner = File::create_new(&nameless)?;
    owner.lock()?;
    fs::rename(nameless, dir.join(OWNER))?;
    Ok(owner)
}

/// A process that is killed, or that keeps its server in a static, removes nothing itself.
fn remove_what_dead_processes_left() {
    let directories = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for directory in directories.filter(|entry| entry.file_name().to_string_lossy().starts_with(DIR_PREFIX)) {
        let owner = File::open(directory.path().join(OWNER));
        if owner.is_ok_and(|owner| owner.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(directory.path());
        }
    }
}

fn newest_binaries() -> Option<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin")))
        })
        .filter(|(_, bin)| bin.join("initdb").exists())
        .collect();
    versions.sort();
    versions.pop().map(|(_, bin)| bin)
}

fn check(program: &'static str, output: &Output) -> Result<(), PostgresError> {
    if output.status.success() {
        return Ok(());
    }
    Err(PostgresError::Program { program, stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also while a server is being made that has no process yet.
    #[test]
    fn what_a_living_process_has_stays_and_the_rest_goes() {
        let new = || tempfile::Builder::new().prefix(DIR_PREFIX).tempdir().unwrap();
        let (begun, alive, dead) = (new(), new(), new());
        let _owner = own(alive.path()).unwrap();
        drop(own(dead.path()).unwrap());
        remove_what_dead_processes_left();
        assert!(begun.path().exists() && alive.path().exists() && !dead.path().exists());
    }
}
