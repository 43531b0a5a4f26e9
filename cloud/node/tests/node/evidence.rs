//! The hardware that a node plays for its guests: a test is the guest.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_app_compose::ComposeHash;
use cloister_evidence::{BootLog, ImageMeasurement, Measurement, Registers, mr_config_id_v1};
use cloister_guest_channel::tee::{Call, MAX_LINE_BYTES, Outcome, Request, Response};
use cloister_node::{HostProcess, Node, OnExit, StartError};
use cloister_node_api::{Platform, paths};
use cloister_verifier::{Clock, Collateral, TrustRoot, TrustRoots, VerifiedQuote, Verifier};
use jiff::Timestamp;
use reqwest::Method;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use uuid::Uuid;

use crate::support::World;

const PATIENCE: Duration = Duration::from_mins(2);

/// The guest's end of the channel.
struct Guest {
    socket: std::path::PathBuf,
    last: u64,
}

impl Guest {
    fn of(world: &World, vm: Uuid) -> Self {
        let socket = world.dir.path().join("node/run").join(vm.simple().to_string()).join("tee.guest");
        Self { socket, last: 0 }
    }

    /// Asks until there is an answer, as guests do: the node may be away.
    async fn ask(&mut self, call: Call) -> Outcome {
        self.last += 1;
        let line = serde_json::to_string(&Request { id: self.last, call }).unwrap();
        self.say(&format!("{line}\n")).await
    }

    async fn say(&self, line: &str) -> Outcome {
        let answered = async {
            loop {
                if let Some(outcome) = once(&self.socket, line).await {
                    return outcome;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, answered).await.expect("no answer in time")
    }

    async fn extend(&mut self, register: u32, index: u32, event: &str) -> Outcome {
        let digest = Measurement::of(event).to_string();
        self.ask(Call::Extend { register, index, digest }).await
    }

    async fn quote(&mut self, world: &World) -> VerifiedQuote {
        let Outcome::Quote { quote } = self.ask(Call::Quote { report_data: "ab".repeat(64) }).await else {
            panic!("no quote")
        };
        verify(world, &hex::decode(quote).unwrap())
    }

    async fn registers(&mut self, world: &World) -> Registers {
        self.quote(world).await.registers.unwrap()
    }
}

/// One question on a connection of its own; `None` when the node is away.
async fn once(socket: &Path, line: &str) -> Option<Outcome> {
    let mut stream = UnixStream::connect(socket).await.ok()?;
    stream.write_all(line.as_bytes()).await.ok()?;
    let mut answer = String::new();
    let mut reader = BufReader::new(stream);
    let reading = reader.read_line(&mut answer);
    tokio::time::timeout(Duration::from_secs(5), reading).await.ok()?.ok()?;
    serde_json::from_str::<Response>(&answer).ok().map(|response| response.outcome)
}

fn verify(world: &World, quote: &[u8]) -> VerifiedQuote {
    let now = Timestamp::UNIX_EPOCH + std::time::UNIX_EPOCH.elapsed().unwrap();
    let collateral = serde_json::to_value(world.vendor.collateral(now).unwrap()).unwrap();
    let collateral: Collateral = serde_json::from_value(collateral).unwrap();
    let roots = TrustRoots::vendors().with_development_root(world.vendor.root_der()).unwrap();
    Verifier::offline(roots, Clock::fixed(now)).quote_with(quote, &collateral, now).unwrap()
}

fn image() -> ImageMeasurement {
    ImageMeasurement {
        firmware: Measurement::of("firmware"),
        kernel: Measurement::of("kernel"),
        initrd: Measurement::of("initrd"),
        cmdline: String::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_gets_quotes_over_its_launch_and_its_own_measurements() {
    let mut world = World::new().await;
    let vm = world.running(1, "").await;
    let mut guest = Guest::of(&world, vm);
    assert_eq!(guest.extend(3, 0, "app").await, Outcome::Extended);
    let quote = guest.quote(&world).await;
    assert_eq!((quote.trust_root, quote.report_data), (TrustRoot::Development, [0xab; 64]));
    let compose_hash = ComposeHash::from_bytes(Sha256::digest("{}").into());
    assert_eq!(quote.mr_config_id, mr_config_id_v1(&compose_hash));
    let (registers, launch) = (quote.registers.unwrap(), image().launch(1, 512 << 20));
    assert_eq!(registers.mrtd, launch.mrtd);
    assert_eq!([registers.rtmr0, registers.rtmr1, registers.rtmr2], launch.rtmr);
    assert_eq!(registers.rtmr3, Measurement::ZERO.extended_by(&Measurement::of("app")));

    let Outcome::BootLog { log } = guest.ask(Call::BootLog).await else { panic!("no boot log") };
    let log = BASE64_STANDARD.decode(log).unwrap();
    let replayed = BootLog::parse(&log).unwrap().to_event_log().replay().unwrap();
    assert_eq!(replayed[..3], launch.rtmr);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registers_outlive_the_node_and_not_the_launch() {
    let mut world = World::new().await;
    let vm = world.running(1, "").await;
    let mut guest = Guest::of(&world, vm);
    guest.extend(3, 0, "a").await;
    guest.extend(2, 0, "b").await;
    let before = guest.registers(&world).await;
    world.stop(OnExit::LeaveRunning).await;
    world.start().await;
    assert_eq!(guest.extend(3, 0, "a").await, Outcome::Extended, "asked again, with no further effect");
    assert_eq!(guest.registers(&world).await, before);
    assert_eq!(guest.extend(3, 1, "c").await, Outcome::Extended);

    world.power(vm, "stop").await.unwrap();
    world.power(vm, "start").await.unwrap();
    let fresh = guest.registers(&world).await;
    assert_eq!((fresh.rtmr2, fresh.rtmr3), (image().launch(1, 512 << 20).rtmr[2], Measurement::ZERO));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_hardware_would_refuse_is_refused_and_garbage_does_no_harm() {
    let mut world = World::new().await;
    let vm = world.running(1, "").await;
    let mut guest = Guest::of(&world, vm);
    let clean = guest.registers(&world).await;
    for register in [0, 1, 4] {
        assert!(matches!(guest.extend(register, 0, "x").await, Outcome::Refused { .. }));
    }
    assert!(matches!(guest.extend(3, 1, "x").await, Outcome::Refused { .. }), "the first one is missing");
    for call in [
        Call::Extend { register: 3, index: 0, digest: "00".to_owned() },
        Call::Quote { report_data: "00".to_owned() },
        Call::Quote { report_data: "zz".repeat(64) },
    ] {
        assert!(matches!(guest.ask(call).await, Outcome::Refused { .. }));
    }
    for line in [r#"{"id":7}"#, r#"{"id":8,"call":"reset"}"#, r#"{"id":9,"call":"extend","register":-1}"#] {
        assert!(matches!(guest.say(&format!("{line}\n")).await, Outcome::Refused { .. }), "{line}");
    }
    for garbage in ["\n", "not json\n", "{\"id\":\"x\"}\n", "[]\n"] {
        let quiet = UnixStream::connect(&guest.socket).await.unwrap().write_all(garbage.as_bytes()).await;
        quiet.unwrap();
    }
    let mut flood = UnixStream::connect(&guest.socket).await.unwrap();
    // Its end may not be written any more: the node hangs up when the line gets too long.
    let _ = flood.write_all(&vec![b'x'; 2 * MAX_LINE_BYTES]).await;
    drop(flood);
    assert_eq!(guest.registers(&world).await, clean);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_platform_stays_the_same_and_its_keys_are_for_its_owner() {
    use std::os::unix::fs::PermissionsExt;

    let mut world = World::new().await;
    let vm = world.running(1, "").await;
    let mut guest = Guest::of(&world, vm);
    let before = guest.quote(&world).await.device_id;
    world.stop(OnExit::LeaveRunning).await;
    let dir = world.dir.path().join("node/development-tee");
    for file in std::fs::read_dir(&dir).unwrap().map(|file| file.unwrap().path()) {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
    world.start().await;
    assert_eq!(guest.quote(&world).await.device_id, before);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_control_plane_gets_a_guests_evidence() {
    let mut world = World::new().await;
    let vm = world.running(1, "").await;
    let path = |query: &str| format!("{}/{vm}/attestation{query}", paths::VMS);
    let answer: serde_json::Value = world.call(Method::GET, &path("?report_data=00ff"), None).await.unwrap();
    assert_eq!(answer["path"], "/node/attestation?report_data=00ff");
    assert_eq!(answer["token"].as_str().unwrap().len(), 64);
    for wrong in [format!("?report_data={}", "0".repeat(130)), "?report_data=zz".to_owned()] {
        let (status, _) =
            world.call::<serde_json::Value>(Method::GET, &path(&wrong), None).await.unwrap_err();
        assert_eq!(status, 400);
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn production_refuses_a_host_without_tee_hardware() {
    let mut world = World::prepared().await;
    world.config.production = true;
    for platform in [Platform::Emulation, Platform::Kvm] {
        world.config.platform = Some(platform);
        match Node::start(world.config.clone()).await {
            Err(StartError::Production(refused)) => assert_eq!(refused, platform),
            Err(other) => println!("{platform:?} is not even there: {other}"),
            Ok(_) => panic!("{platform:?} was accepted"),
        }
    }
    world.config.platform = Some(Platform::Emulation);
    assert!(matches!(Node::start(world.config.clone()).await, Err(StartError::Production(_))));
    assert!(!world.dir.path().join("node/development-tee").exists(), "no keys were made");
    world.config.production = false;
    world.end().await;
}

/// Asks the machine that the node plays for a process beside it.
async fn post(socket: &Path, path: &str, body: &str) -> serde_json::Value {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Whether anybody answers. A child of another test that is just being started shares the listeners of this process
/// until it runs its own program: connecting alone tells nothing.
async fn is_answered(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket).await else { return false };
    let asked = stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    let mut answer = Vec::new();
    asked.is_ok() && stream.read_to_end(&mut answer).await.is_ok() && !answer.is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_beside_the_node_gets_a_machine_of_its_own() {
    let mut world = World::prepared().await;
    let (program, socket) = (world.dir.path().join("program"), world.dir.path().join("node/run/agent.sock"));
    std::fs::write(&program, "a program").unwrap();
    world.config.host_process = Some(HostProcess { socket: socket.clone(), executable: program.clone() });
    world.start().await;
    let sealing = r#"{"path":"kms/state","purpose":"sealing"}"#;
    let key = post(&socket, "/GetKey", sealing).await["key"].clone();
    let asked = format!(r#"{{"report_data":"{}"}}"#, "ab".repeat(64));
    let quote = hex::decode(post(&socket, "/GetQuote", &asked).await["quote"].as_str().unwrap()).unwrap();
    let quote = verify(&world, &quote);
    assert_eq!((quote.trust_root, quote.report_data), (TrustRoot::Development, [0xab; 64]));
    assert_eq!(quote.registers.unwrap().mrtd, Measurement::of("a program"));

    // Another program is another machine on the same platform.
    world.stop(OnExit::LeaveRunning).await;
    assert!(!is_answered(&socket).await, "nobody answers for a node that has stopped");
    std::fs::write(&program, "another program").unwrap();
    world.start().await;
    let other = hex::decode(post(&socket, "/GetQuote", &asked).await["quote"].as_str().unwrap()).unwrap();
    let other = verify(&world, &other);
    assert_eq!(other.device_id, quote.device_id);
    assert_eq!(other.registers.unwrap().mrtd, Measurement::of("another program"));
    assert_eq!(post(&socket, "/GetKey", sealing).await["key"], key, "what was sealed stays readable");
    world.stop(OnExit::LeaveRunning).await;

    std::fs::remove_file(&program).unwrap();
    assert!(matches!(Node::start(world.config.clone()).await, Err(StartError::HostProcess { .. })));
    std::fs::write(&program, "a program").unwrap();
    world.end().await;
}
