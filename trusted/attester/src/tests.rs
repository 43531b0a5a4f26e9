//! Detection and the kernel's file protocols, against directories that imitate them.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use cloister_evidence::{RUNTIME_EVENT_TYPE, RuntimeEvent};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::{AttestError, Attester, DetectError, HardwareError, Platform};

const ENTRY: &str = "sys/kernel/config/tsm/report/cloister";
const REGISTERS: &str = "sys/devices/virtual/misc/tdx_guest/measurements";

/// A root with a device and a report entry of `provider`, whose other attributes are pipes.
fn machine(device: &str, provider: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), device, "");
    write(root.path(), &format!("{ENTRY}/provider"), &format!("{provider}\n"));
    for pipe in ["generation", "inblob", "outblob"] {
        let path = root.path().join(ENTRY).join(pipe);
        mknodat(CWD, path, FileType::Fifo, Mode::from(0o600), 0).unwrap();
    }
    root
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Generation after the request; if a report is read then, it and the generation behind it.
type Step = (u64, Option<(Vec<u8>, u64)>);

/// Plays the kernel step by step and returns the requests that came.
fn kernel(root: &Path, generation: u64, steps: Vec<Step>) -> JoinHandle<Vec<Vec<u8>>> {
    let entry: PathBuf = root.join(ENTRY);
    thread::spawn(move || {
        let give = |name: &str, bytes: &[u8]| {
            File::options().write(true).open(entry.join(name)).unwrap().write_all(bytes).unwrap();
        };
        let mut requests = Vec::new();
        // The one who asks locks the request file before anything else.
        let mut inblob = File::open(entry.join("inblob")).unwrap();
        give("generation", format!("{generation}\n").as_bytes());
        for (after, report) in steps {
            let mut request = vec![0; 64];
            inblob.read_exact(&mut request).unwrap();
            requests.push(request);
            give("generation", format!("{after}\n").as_bytes());
            if let Some((report, at_end)) = report {
                give("outblob", &report);
                give("generation", format!("{at_end}\n").as_bytes());
            }
        }
        requests
    })
}

#[tokio::test]
async fn a_tdx_quote_is_ours_or_asked_for_again() {
    let root = machine("dev/tdx_guest", "tdx_guest");
    write(root.path(), "sys/firmware/acpi/tables/data/CCEL", "");
    let kernel = kernel(
        root.path(),
        7,
        vec![
            // Somebody wrote between our write and the first look.
            (9, None),
            // Somebody wrote while we read.
            (10, Some((vec![1; 100], 11))),
            (12, Some((vec![2; 5000], 12))),
        ],
    );
    let attester = Attester::detect_at(root.path()).await.unwrap();
    assert_eq!(attester.platform(), Platform::Tdx);
    let evidence = attester.quote(&[5; 64]).await.unwrap();
    assert_eq!(evidence.quote, vec![2; 5000]);
    assert_eq!(kernel.join().unwrap(), vec![vec![5; 64]; 3]);
}

#[tokio::test]
async fn gives_up_when_every_report_is_disturbed() {
    let root = machine("dev/sev-guest", "sev_guest");
    let kernel = kernel(root.path(), 1, [3, 5, 7, 9, 11].map(|generation| (generation, None)).into());
    let attester = Attester::detect_at(root.path()).await.unwrap();
    assert_eq!(attester.platform(), Platform::SevSnp);
    let error = attester.quote(&[0; 64]).await.unwrap_err();
    assert!(matches!(error, AttestError::Hardware(HardwareError::Disturbed)), "{error}");
    assert_eq!(kernel.join().unwrap().len(), 5);
}

#[tokio::test]
async fn tdx_events_go_to_the_register_and_to_the_log() {
    let root = machine("dev/tdx_guest", "tdx_guest");
    write(root.path(), "sys/firmware/acpi/tables/data/CCEL", "");
    let register = format!("{REGISTERS}/rtmr3:sha384");
    write(root.path(), &register, "");
    let attester = Attester::detect_at(root.path()).await.unwrap();
    let event = RuntimeEvent::new("system-preparing", []);
    attester.measure(vec![event.clone()]).await.unwrap();
    assert_eq!(fs::read(root.path().join(&register)).unwrap(), event.digest().as_bytes());
    let log = attester.event_log();
    assert_eq!(log.len(), 1);
    assert_eq!((log[0].imr, log[0].event_type), (3, RUNTIME_EVENT_TYPE));
    assert_eq!(log[0].digest, event.digest().to_string());

    // A kernel without writable registers: nothing is logged that was not measured.
    fs::remove_file(root.path().join(&register)).unwrap();
    assert!(attester.measure(vec![event]).await.is_err());
    assert_eq!(attester.event_log().len(), 1);
}

#[tokio::test]
async fn hardware_wins_over_the_development_port_even_when_it_is_unusable() {
    for (path, text, expected) in [
        ("dev/tdx_guest", "", Platform::Tdx),
        ("proc/cpuinfo", "processor : 0\nflags\t\t: fpu tdx_guest lm\n", Platform::Tdx),
        ("dev/sev-guest", "", Platform::SevSnp),
        ("dev/nsm", "", Platform::Nitro),
    ] {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), path, text);
        write(root.path(), "sys/class/virtio-ports/vport0p2/name", "cloister.tee\n");
        write(root.path(), "dev/vport0p2", "");
        match Attester::detect_at(root.path()).await {
            Err(DetectError::Unusable { platform, .. }) => assert_eq!(platform, expected),
            other => panic!("{path}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn reports_of_another_provider_are_refused() {
    let root = machine("dev/tdx_guest", "sev_guest");
    let error = Attester::detect_at(root.path()).await.unwrap_err();
    assert!(matches!(error, DetectError::Unusable { platform: Platform::Tdx, .. }));
}

#[tokio::test]
async fn nothing_is_an_error_and_the_port_is_found_by_its_name() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "proc/cpuinfo", "flags : fpu lm\n");
    assert!(matches!(Attester::detect_at(root.path()).await, Err(DetectError::Nothing)));
    write(root.path(), "sys/class/virtio-ports/vport0p1/name", "cloister.status\n");
    write(root.path(), "sys/class/virtio-ports/vport0p2/name", "cloister.tee\n");
    write(root.path(), "dev/vport0p2", "");
    let attester = Attester::detect_at(root.path()).await.unwrap();
    assert_eq!(attester.platform(), Platform::Development);
}
