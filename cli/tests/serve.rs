//! The parts of a cloud as a service manager runs them.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{bare, transcript};

const PATIENCE: Duration = Duration::from_mins(1);

/// A part that runs; killed if the test ends early.
struct Part(Child);

impl Part {
    fn start(home: &TempDir, line: &str, stdin: Stdio) -> Self {
        let log = File::create(home.path().join("log")).unwrap();
        let mut command = bare(home, line);
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        Self(command.stdin(stdin).stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    /// Asks the part to stop and answers with its exit code.
    fn stop(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        eventually("it stops", || self.0.try_wait().unwrap()).code()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn control_plane(home: &TempDir) -> Part {
    control_plane_with(home, "")
}

fn control_plane_with(home: &TempDir, options: &str) -> Part {
    let line = "serve control-plane --api-listen 127.0.0.1:0 --fleet-listen 127.0.0.1:0 --log-format json";
    let part = Part::start(home, format!("{line} {options}").trim_end(), Stdio::null());
    eventually("commands find the control plane", || {
        bare(home, "nodes list").output().unwrap().status.success().then_some(())
    });
    part
}

fn run(home: &TempDir, line: &str) -> String {
    transcript(line, &bare(home, line).output().unwrap())
}

fn data_dir(home: &TempDir) -> std::path::PathBuf {
    home.path().join(".local/share/cloister")
}

#[test]
fn a_control_plane_keeps_its_key_private_and_its_directory_to_itself() {
    let home = tempfile::tempdir().unwrap();
    let part = control_plane(&home);
    let credentials = fs::read_to_string(data_dir(&home).join("credentials.json")).unwrap();
    let key = credentials.split('"').find(|text| text.starts_with("phak_")).unwrap().to_owned();
    assert!(run(&home, "nodes list").contains("There are no nodes"));

    let second = run(&home, "serve control-plane --api-listen 127.0.0.1:0 --fleet-listen 127.0.0.1:0");
    assert!(second.contains("a cloud already runs on") && second.contains("exit 5"), "{second}");

    assert_eq!(part.stop(), Some(0));
    let log = fs::read_to_string(home.path().join("log")).unwrap();
    assert!(!log.contains(&key), "the key is in the log");
    assert!(log.lines().any(|line| serde_json::from_str::<Value>(line).is_ok()), "{log}");

    // The next start has another port; the key is known under it.
    let part = control_plane(&home);
    assert!(run(&home, "env").contains(&key));
    assert_eq!(part.stop(), Some(0));
}

#[test]
fn an_invited_node_comes_online() {
    if !Path::new("/usr/bin/qemu-system-x86_64").exists() {
        eprintln!("SKIPPED: qemu-system-x86_64 is not installed; scripts/install-dependencies.sh run");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let images = data_dir(&home).join("guest-images/none");
    fs::create_dir_all(&images).unwrap();
    fs::write(images.join("digest.txt"), "an image that no node would boot").unwrap();
    let control_plane = control_plane(&home);
    let fleet = fleet_address(&home);

    let token = home.path().join("token");
    let invited = bare(&home, "nodes invite").output().unwrap();
    fs::write(&token, &invited.stdout).unwrap();
    let node_home = tempfile::tempdir().unwrap();
    let line = format!(
        "serve node --control-plane {fleet} --name first --listen 127.0.0.1:0 --endpoint 127.0.0.1:9 \
         --domain apps.localhost --http-listen 127.0.0.1:0 --data-dir {} --guest-images {}",
        node_home.path().join("data").display(),
        images.parent().unwrap().display(),
    );
    let node = Part::start(&node_home, &line, File::open(&token).unwrap().into());
    eventually("the node is online", || {
        let list = run(&home, "nodes list");
        (list.contains("first") && list.contains("ONLINE")).then_some(())
    });
    assert_eq!(node.stop(), Some(0));

    // A used token is worth nothing.
    let again = Command::new(env!("CARGO_BIN_EXE_cloister"))
        .args(line.replace("--name first", "--name second").replace("/data ", "/other ").split_whitespace())
        .env("HOME", home.path())
        .stdin(File::open(&token).unwrap())
        .output()
        .unwrap();
    assert_eq!(again.status.code(), Some(1), "{}", String::from_utf8_lossy(&again.stderr));
    assert_eq!(control_plane.stop(), Some(0));
}

/// The address of the listener for nodes, from the log.
fn fleet_address(home: &TempDir) -> String {
    eventually("the log names the listener for nodes", || {
        let log = fs::read_to_string(home.path().join("log")).unwrap();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.into_iter().find_map(|line| line["fields"]["node_address"].as_str().map(str::to_owned))
    })
}

#[test]
fn the_development_root_is_among_the_variables_and_in_production_there_is_none() {
    let home = tempfile::tempdir().unwrap();
    let root = data_dir(&home).join("control-plane/development-root.pem");
    let part = control_plane(&home);
    let variables = run(&home, "env");
    assert!(
        variables.contains(&format!("export CLOISTER_DEVELOPMENT_ROOT='{}'", root.display())),
        "{variables}"
    );
    assert!(fs::read_to_string(&root).unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
    assert_eq!(part.stop(), Some(0));

    let home = tempfile::tempdir().unwrap();
    let part = control_plane_with(&home, "--production");
    let variables = run(&home, "env");
    assert!(variables.contains("CLOISTER_API_URL") && !variables.contains("DEVELOPMENT_ROOT"), "{variables}");
    assert!(!data_dir(&home).join("control-plane/development-root.pem").exists());
    assert_eq!(part.stop(), Some(0));
}
