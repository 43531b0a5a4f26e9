//! `verify` against a guest agent and a collateral service that serve minted evidence.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::guest::{APP_ID, COMPOSE, COMPOSE_FILE, Guest, checksums, serve};
use crate::support::{Fake, bare, cvm, transcript, tunnel_to};

/// A guest with a TLS listener, its collateral service, and a home with its root.
struct Scene {
    guest: Arc<Guest>,
    home: TempDir,
    tls: SocketAddr,
    plain: SocketAddr,
}

impl Scene {
    fn new(guest: Guest, certified_events: Option<usize>) -> Self {
        let guest = Arc::new(guest);
        let tls = serve(&guest, Some(guest.tls(certified_events)));
        let plain = serve(&guest, None);
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(home.path().join(name), text).unwrap();
        write("root.pem", guest.vendor.root_pem());
        write("app-compose.json", COMPOSE);
        write("compose.yaml", COMPOSE_FILE);
        let measurement = serde_json::to_string(&guest.image).unwrap();
        std::fs::create_dir(home.path().join("image")).unwrap();
        write("image/sha256sum.txt", &checksums(measurement.as_bytes()));
        write("image/measurement.json", &measurement);
        Self { guest, home, tls, plain }
    }

    /// Address of the guest agent through the ingress' passthrough.
    fn direct(&self) -> String {
        format!("https://{APP_ID}-8090s.apps.localhost:{}", self.tls.port())
    }

    fn run(&self, line: &str) -> Output {
        let line = format!("{line} --development-root root.pem");
        bare(&self.home, &line).output().unwrap()
    }

    fn online(&self, line: &str) -> Output {
        self.run(&format!("{line} --pccs http://{}", self.plain))
    }
}

fn outcomes(output: &Output) -> Vec<(String, String)> {
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    });
    let claim = |claim: &Value| {
        (claim["id"].as_str().unwrap().to_owned(), claim["outcome"].as_str().unwrap().to_owned())
    };
    document["claims"].as_array().unwrap().iter().map(claim).collect()
}

#[track_caller]
fn outcome(output: &Output, id: &str) -> String {
    outcomes(output).into_iter().find(|(name, _)| name == id).unwrap().1
}

#[test]
fn a_guest_is_verified_over_its_own_tls() {
    let scene = Scene::new(Guest::new(), Some(5));
    let line = format!("verify {} --compose app-compose.json --image image", scene.direct());
    let output = scene.online(&line);
    let text = transcript(&line, &output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let device = hex::encode(Sha256::digest(scene.guest.platform.ppid()));
    let text = text.replace(&scene.tls.port().to_string(), "PORT").replace(&device, "DEVICE");
    let random = |line: &str| {
        let line = line.to_owned();
        match line.split_once("report data: ").or(line.split_once("certificate's key: ")) {
            Some((label, value)) if value.len() == 128 => format!("{label}report data: RANDOM\n"),
            _ => format!("{line}\n"),
        }
    };
    insta::assert_snapshot!(text.lines().map(random).collect::<String>());
}

/// A proxy is on the way, and could be anybody's.
#[test]
fn whom_tls_ends_at_behind_a_proxy_is_judged_like_everywhere() {
    let scene = Scene::new(Guest::new(), Some(5));
    let verify = |server| {
        let line = format!(
            "verify https://{APP_ID}-8090s.apps.example.test --json --development-root root.pem --pccs http://{}",
            scene.plain
        );
        bare(&scene.home, &line).env("https_proxy", tunnel_to(server)).output().unwrap()
    };
    let output = verify(scene.tls);
    assert_eq!((output.status.code(), &*outcome(&output, "certificate")), (Some(0), "holds"));
    // Who has another key, and passes evidence on.
    let between = serve(&scene.guest, Some(Guest::new().tls(Some(5))));
    let output = verify(between);
    assert_eq!((output.status.code(), &*outcome(&output, "certificate")), (Some(8), "fails"));
}

#[test]
fn what_is_not_expected_is_refused_with_a_code_of_its_own() {
    let scene = Scene::new(Guest::new(), Some(5));
    let direct = scene.direct();
    let zeros = "0".repeat(64);
    for (options, claim) in [
        (format!("--compose-hash {zeros}"), "compose"),
        (format!("--os-image-hash {zeros}"), "os-image"),
        (format!("--app-id {}", "0".repeat(40)), "app-id"),
        (format!("--instance-id {}", "0".repeat(40)), "instance-id"),
        ("--accept-tcb OutOfDate".to_owned(), "tcb"),
    ] {
        let output = scene.online(&format!("verify {direct} --json {options}"));
        assert_eq!(output.status.code(), Some(8), "{options}");
        assert_eq!(outcome(&output, claim), "fails", "{options}");
    }
    std::fs::write(scene.home.path().join("other.yaml"), COMPOSE_FILE.replace("hello", "hullo")).unwrap();
    let output = scene.online(&format!("verify {direct} --json --compose other.yaml"));
    assert_eq!(outcome(&output, "compose"), "fails");
    let output = scene.online(&format!("verify {direct} --json --compose compose.yaml"));
    assert_eq!((output.status.code(), outcome(&output, "compose").as_str()), (Some(0), "holds"));
}

#[test]
fn a_connection_that_somebody_else_ends_is_refused_or_said_to_prove_nothing() {
    let scene = Scene::new(Guest::new(), None);
    let output = scene.online(&format!("verify {} --json", scene.direct()));
    assert_eq!((output.status.code(), outcome(&output, "certificate").as_str()), (Some(8), "fails"));

    for url in [
        format!("https://{APP_ID}.apps.localhost:{}", scene.tls.port()),
        format!("http://{APP_ID}-8090.apps.localhost:{}", scene.plain.port()),
    ] {
        let output = scene.online(&format!("verify {url} --json"));
        assert_eq!(
            (output.status.code(), outcome(&output, "certificate").as_str()),
            (Some(0), "not_checked")
        );
        assert_eq!(outcome(&output, "app-id"), "holds", "the name is an expectation");
    }
}

#[test]
fn trust_is_never_assumed() {
    let scene = Scene::new(Guest::new(), Some(5));
    let line = format!("verify {} --json --pccs http://{}", scene.direct(), scene.plain);
    let output = bare(&scene.home, &line).output().unwrap();
    assert_eq!((output.status.code(), outcome(&output, "signature").as_str()), (Some(8), "fails"));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("--development-root"), "{stderr}");
    let output = bare(&scene.home, &format!("{line} --production")).output().unwrap();
    assert_eq!((output.status.code(), outcome(&output, "signature").as_str()), (Some(8), "fails"));
    let output = scene.online(&format!("verify {} --production", scene.direct()));
    assert_eq!(output.status.code(), Some(2), "{}", transcript("verify --production", &output));

    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = scene.run(&format!("verify {} --json --pccs http://{nowhere}", scene.direct()));
    assert_eq!((output.status.code(), outcome(&output, "signature").as_str()), (Some(7), "not_checked"));
}

#[test]
fn a_bundle_is_judged_offline_and_every_part_of_it_counts() {
    let scene = Scene::new(Guest::new(), Some(5));
    let saved = scene.online(&format!("verify {} --save-bundle bundle.json", scene.direct()));
    assert_eq!(saved.status.code(), Some(0), "{}", transcript("verify", &saved));
    let offline = "verify --bundle bundle.json --json --compose app-compose.json";
    let output = scene.run(offline);
    assert_eq!(output.status.code(), Some(0), "{}", transcript(offline, &output));
    assert_eq!(outcome(&output, "certificate"), "holds");
    assert_eq!(outcome(&output, "freshness"), "not_checked");

    let path = scene.home.path().join("bundle.json");
    let bundle: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let nonce = bundle["nonce"].as_str().unwrap();
    let output = scene.run(&format!("{offline} --nonce {nonce}"));
    assert_eq!(outcome(&output, "freshness"), "holds");
    let later = scene.run(&format!("{offline} --at 2040-01-01T00:00:00Z"));
    assert_eq!((later.status.code(), outcome(&later, "signature").as_str()), (Some(8), "fails"));

    for (pointer, claim) in [
        ("/nonce", "freshness"),
        ("/certificate_chain", "certificate"),
        ("/document/quote", "signature"),
        ("/document/event_log", "event-log"),
        ("/document/vm_config", "boot"),
        ("/document/app_compose", "compose"),
        ("/collateral/tcb_info", "signature"),
    ] {
        let mut changed = bundle.clone();
        flip(changed.pointer_mut(pointer).unwrap());
        std::fs::write(&path, changed.to_string()).unwrap();
        let output = scene.run(offline);
        assert_eq!(output.status.code(), Some(8), "{pointer}");
        assert_eq!(outcome(&output, claim), "fails", "{pointer}");
    }
}

/// Changes a digit in the middle of a text.
fn flip(value: &mut Value) {
    let text = value.as_str().unwrap();
    let middle = text.len() / 2;
    let at = middle + text[middle..].find(|c: char| c.is_ascii_digit()).unwrap();
    let other = if text.as_bytes()[at] == b'7' { "8" } else { "7" };
    *value = Value::String([&text[..at], other, &text[at + 1..]].concat());
}

#[test]
fn evidence_in_files_is_judged_with_its_collateral() {
    let scene = Scene::new(Guest::new(), Some(5));
    let document = scene.guest.document(&[7; 32]);
    let write = |name: &str, text: &[u8]| std::fs::write(scene.home.path().join(name), text).unwrap();
    let collateral = scene.guest.vendor.collateral(scene.guest.now).unwrap();
    write("collateral.json", serde_json::to_string(&collateral).unwrap().as_bytes());
    write("document.json", document.to_string().as_bytes());
    write("quote.bin", &hex::decode(document["quote"].as_str().unwrap()).unwrap());
    for name in ["event_log", "vm_config", "app_compose"] {
        write(&format!("{name}.json"), document[name].as_str().unwrap().as_bytes());
    }
    let nonce = "07".repeat(32);
    for evidence in [
        "--document document.json",
        "--quote quote.bin --event-log event_log.json --vm-config vm_config.json --app-compose app_compose.json",
    ] {
        let line = format!("verify {evidence} --collateral collateral.json --nonce {nonce} --json");
        let output = scene.run(&line);
        assert_eq!(output.status.code(), Some(0), "{}", transcript(&line, &output));
        assert_eq!(outcome(&output, "freshness"), "holds");
    }
    let line = "verify --quote quote.bin --collateral collateral.json --json";
    assert_eq!(scene.run(line).status.code(), Some(8));
}

#[test]
fn a_cvm_is_found_by_its_name_and_asked_itself() {
    let scene = Scene::new(Guest::new(), Some(5));
    let mut detail = cvm("hello", "running");
    let app = format!("http://{APP_ID}.apps.localhost:{}", scene.plain.port());
    detail["endpoints"] = json!([{ "app": app, "instance": "" }]);
    let fake = Fake::start().on("GET /cvms/hello", 200, detail);
    let run = |options: &str| {
        let line = format!("verify hello --json --pccs http://{} {options}", scene.plain);
        fake.command(&line).env("CLOISTER_DEVELOPMENT_ROOT", root(&scene.home)).output().unwrap()
    };
    let output = run(&format!("--https-port {}", scene.tls.port()));
    assert_eq!(output.status.code(), Some(0), "{}", transcript("verify hello", &output));
    assert_eq!(
        (outcome(&output, "certificate").as_str(), outcome(&output, "app-id").as_str()),
        ("holds", "holds")
    );

    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = run(&format!("--https-port {}", nowhere.port()));
    assert_eq!((output.status.code(), outcome(&output, "certificate").as_str()), (Some(0), "not_checked"));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("through the operator's ingress"), "{stderr}");
}

fn root(home: &TempDir) -> std::path::PathBuf {
    Path::new(home.path()).join("root.pem")
}

#[test]
fn wrong_input_is_told_apart_from_wrong_evidence() {
    let home = tempfile::tempdir().unwrap();
    let run = |line: &str| bare(&home, line).output().unwrap();
    for line in [
        "verify",
        "verify hello --bundle x.json",
        "verify ftp://a.example",
        "verify --bundle missing.json",
        "verify --document missing.json",
        "verify https://a.example --nonce xyz",
        "verify https://a.example --image missing",
        "verify https://a.example --accept-tcb Fine",
        "verify https://a.example --development-root missing",
        "verify --document missing.json --at 2026-01-01T00:00:00Z",
    ] {
        assert_eq!(run(line).status.code(), Some(2), "{}", transcript(line, &run(line)));
    }
}
