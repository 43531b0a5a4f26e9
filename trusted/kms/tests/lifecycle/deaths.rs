//! A KMS process dies at every boundary of every change, as `kill -9` would end it, and starts again.

use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use cloister_kms::{Boundaries, Kms};
use cloister_kms_api::admin::{self, RetireRoot, RotationStatus};
use cloister_kms_api::log::Event;
use cloister_kms_api::{BootstrapResponse, Hex, OnboardRequest, OnboardResponse, method};
use http::{Method, StatusCode};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::client::{Directory, an_app, bootstrap, directory, finish, parse, plain, post};
use crate::lab::{Lab, Place, copy};

const PLACE: &str = "CLOISTER_KMS_MORTAL";
const DIE_AT: &str = "CLOISTER_KMS_DIES_AT";
const READY: &str = "a mortal KMS listens at ";
/// More boundaries than any change has.
const MANY: usize = 200;

/// The process that dies: a KMS that counts boundaries and kills itself at one of them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "other tests start it in a process of its own"]
async fn mortal() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let place: Place = serde_json::from_str(&place).unwrap();
    let die_at: usize = std::env::var(DIE_AT).unwrap().parse().unwrap();
    let heard = AtomicUsize::new(0);
    let mut config = place.config();
    config.boundaries = Boundaries::heard_by(move |name| {
        if heard.fetch_add(1, Ordering::SeqCst) == die_at {
            eprintln!("dies at {name}");
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    });
    let kms = Kms::start(config).await.unwrap();
    println!("\n{READY}{} {}", kms.address(), kms.directory_address());
    // Until the parent is gone.
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await.unwrap().unwrap();
}

struct Mortal {
    address: SocketAddr,
    directory: SocketAddr,
    child: Child,
    _stdin: ChildStdin,
}

impl Mortal {
    async fn start(place: &Place, die_at: usize) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "deaths::mortal", "--ignored", "--nocapture"])
            .env(PLACE, serde_json::to_string(place).unwrap())
            .env(DIE_AT, die_at.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some((address, directory)) = line.strip_prefix(READY).and_then(|at| at.split_once(' ')) {
                return Self {
                    address: address.parse().unwrap(),
                    directory: directory.parse().unwrap(),
                    child,
                    _stdin: stdin,
                };
            }
        }
        panic!("the mortal KMS does not start");
    }

    /// Whether it died where it should; otherwise it is ended now.
    async fn died(mut self, answered: bool) -> bool {
        if !answered {
            let status = self.child.wait().await.unwrap();
            assert_eq!(status.signal(), Some(9));
            return true;
        }
        self.child.kill().await.unwrap();
        false
    }
}

/// Does `act` on a KMS that dies at one boundary after the other, each time with a fresh copy of `template`;
/// then `check` looks at the KMS that starts again, and knows whether there was an answer.
async fn at_every_boundary(
    lab: &Lab,
    name: &str,
    template: Option<&Place>,
    act: impl AsyncFn(&Mortal) -> bool,
    check: impl AsyncFn(&Place, Kms, bool),
) -> usize {
    for die_at in 0..MANY {
        let place = lab.sharing(&format!("{name}-{die_at}"));
        if let Some(template) = template {
            copy(&template.data_dir, &place.data_dir);
        }
        let mortal = Mortal::start(&place, die_at).await;
        let answered = act(&mortal).await;
        let died = mortal.died(answered).await;
        let kms = place.start().await.unwrap_or_else(|error| panic!("{name} {die_at}: {error}: {error:?}"));
        check(&place, kms, answered).await;
        std::fs::remove_dir_all(&place.data_dir).unwrap();
        if !died {
            return die_at;
        }
    }
    panic!("{name} has no end");
}

/// A KMS that was stopped with its doors open, and the key of its root.
async fn finished(lab: &Lab, name: &str) -> (Place, Hex) {
    let place = lab.sharing(name);
    let kms = place.start().await.unwrap();
    let made: BootstrapResponse = parse(bootstrap(kms.address()).await).unwrap();
    finish(kms.address()).await.unwrap();
    Directory(kms.directory_address()).meta().await;
    kms.stop().await;
    (place, made.k256_pubkey)
}

fn count(events: &[Event], wanted: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| wanted(event)).count()
}

/// Ends onboarding, whether or not it was ended before the death, and looks at the log.
async fn opened(place: &Place, kms: Kms) -> (Kms, Directory) {
    if let Some((status, _)) = finish(kms.address()).await {
        assert_eq!(status, StatusCode::OK);
        let kms_directory = Directory(kms.directory_address());
        kms_directory.meta().await;
        kms.stop().await;
        let kms = place.start().await.unwrap();
        let address = kms.directory_address();
        return (kms, Directory(address));
    }
    let address = kms.directory_address();
    (kms, Directory(address))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_in_bootstrap_leaves_no_root_or_one() {
    let lab = Lab::new().await;
    let boundaries = at_every_boundary(
        &lab,
        "bootstrap",
        None,
        async |mortal| bootstrap(mortal.address).await.is_some(),
        async |place, kms, answered| {
            let was_there = place.data_dir.join("state.sealed").exists();
            let again = parse::<BootstrapResponse>(bootstrap(kms.address()).await);
            assert_eq!(again.is_err(), was_there, "{again:?}");
            assert!(was_there || !answered);
            let (kms, directory) = opened(place, kms).await;
            let meta = directory.meta().await;
            assert_eq!(meta.roots.len(), 1);
            let events = directory.events().await;
            let made = |event: &Event| {
                matches!(event, Event::Bootstrapped { k256_pubkey, .. } if *k256_pubkey == meta.k256_pubkey)
            };
            assert!(made(&events[0]), "{events:?}");
            assert_eq!(events.len(), 2, "{events:?}");
            kms.stop().await;
        },
    )
    .await;
    assert!(boundaries > 20, "{boundaries}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_in_finish_leaves_onboarding_or_open_doors() {
    let lab = Lab::new().await;
    let template = lab.sharing("unfinished");
    let kms = template.start().await.unwrap();
    let made: BootstrapResponse = parse(bootstrap(kms.address()).await).unwrap();
    kms.stop().await;
    let boundaries = at_every_boundary(
        &lab,
        "finish",
        Some(&template),
        async |mortal| finish(mortal.address).await.is_some(),
        async |place, kms, answered| {
            let onboarding = bootstrap(kms.address()).await;
            if let Some((status, _)) = &onboarding {
                assert_eq!(*status, StatusCode::BAD_REQUEST);
            }
            assert!(onboarding.is_none() || !answered);
            let (kms, directory) = opened(place, kms).await;
            assert_eq!(directory.meta().await.k256_pubkey, made.k256_pubkey);
            assert_eq!(directory.events().await.len(), 2);
            kms.stop().await;
        },
    )
    .await;
    assert!(boundaries >= 5, "{boundaries}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_while_roots_are_taken_leaves_none_or_those() {
    let lab = Lab::new().await;
    let (source, root) = finished(&lab, "source").await;
    let source = source.start().await.unwrap();
    let request = OnboardRequest {
        source_url: format!("https://{}", source.address()),
        domain: "replica.example".to_owned(),
        k256_pubkey: Some(root.clone()),
    };
    let body = serde_json::to_string(&request).unwrap();
    let boundaries = at_every_boundary(
        &lab,
        "onboard",
        None,
        async |mortal| plain(mortal.address, Method::POST, method::ONBOARD, &body).await.is_some(),
        async |place, kms, answered| {
            let was_there = place.data_dir.join("state.sealed").exists();
            assert!(was_there || !answered);
            let again = post::<OnboardResponse>(kms.address(), method::ONBOARD, &request).await;
            assert_eq!(again.is_err(), was_there, "{again:?}");
            let (kms, directory) = opened(place, kms).await;
            assert_eq!(directory.meta().await.k256_pubkey, root);
            let events = directory.events().await;
            assert!(matches!(&events[0], Event::Onboarded { k256_pubkey, .. } if *k256_pubkey == root));
            assert_eq!(events.len(), 2, "{events:?}");
            kms.stop().await;
        },
    )
    .await;
    assert!(boundaries > 20, "{boundaries}");
    source.stop().await;
}

/// Asks the administration; whether there was an answer.
async fn administer(mortal: &Mortal, path: &str, body: &Value) -> bool {
    let reply = directory(mortal.directory, Method::POST, path, body.to_string().into()).await;
    let answered = reply.is_some();
    if answered {
        parse::<Value>(reply).unwrap();
    }
    answered
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_in_a_rotation_leaves_one_root_or_two() {
    let lab = Lab::new().await;
    let (template, root) = finished(&lab, "template").await;
    let boundaries = at_every_boundary(
        &lab,
        "rotation",
        Some(&template),
        async |mortal| administer(mortal, admin::START_ROTATION, &Value::Null).await,
        async |_, kms, answered| {
            let directory = Directory(kms.directory_address());
            let status = directory.rotation().await;
            assert!(status.roots.len() <= 2);
            assert!(status.roots.len() == 2 || !answered);
            assert_eq!(status.roots[0].k256_pubkey, root);
            let current = directory.meta().await.k256_pubkey;
            assert_eq!(current, status.roots.last().unwrap().k256_pubkey);
            let started =
                |events: &[Event]| count(events, |event| matches!(event, Event::RotationStarted { .. }));
            assert_eq!(started(&directory.events().await), status.roots.len() - 1);
            let next: RotationStatus = directory.admin(admin::START_ROTATION, &()).await.unwrap();
            assert_eq!(next.roots.len(), status.roots.len() + 1);
            assert_eq!(started(&directory.events().await), next.roots.len() - 1);
            kms.stop().await;
        },
    )
    .await;
    assert!(boundaries > 10, "{boundaries}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_in_a_retirement_leaves_the_old_root_or_nothing_of_it() {
    let lab = Lab::new().await;
    let (template, _) = finished(&lab, "template").await;
    let kms = template.start().await.unwrap();
    let before: RotationStatus =
        Directory(kms.directory_address()).admin(admin::START_ROTATION, &()).await.unwrap();
    kms.stop().await;
    let boundaries = at_every_boundary(
        &lab,
        "retire",
        Some(&template),
        async |mortal| administer(mortal, admin::RETIRE_ROOT, &serde_json::json!({"version": 1})).await,
        async |_, kms, answered| {
            let directory = Directory(kms.directory_address());
            let status = directory.rotation().await;
            let gone = status.roots[0].retired_at.is_some();
            assert!(gone || !answered);
            assert_eq!(status.roots[1], before.roots[1]);
            let retired =
                |events: &[Event]| count(events, |event| matches!(event, Event::RootRetired { .. }));
            assert_eq!(retired(&directory.events().await), usize::from(gone));
            let retire = RetireRoot { version: 1, force: false };
            let status: RotationStatus = directory.admin(admin::RETIRE_ROOT, &retire).await.unwrap();
            assert!(status.roots[0].retired_at.is_some());
            assert_eq!(retired(&directory.events().await), 1);
            kms.stop().await;
        },
    )
    .await;
    assert!(boundaries > 10, "{boundaries}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_in_a_change_of_policy_leaves_it_done_or_not() {
    let lab = Lab::new().await;
    let (template, _) = finished(&lab, "template").await;
    let app = an_app();
    let body = serde_json::to_value(&app).unwrap();
    let boundaries = at_every_boundary(
        &lab,
        "allow",
        Some(&template),
        async |mortal| administer(mortal, admin::ALLOW_APP, &body).await,
        async |_, kms, answered| {
            let directory = Directory(kms.directory_address());
            let allowed = directory.policy().await.apps.contains_key(&app.app_id);
            assert!(allowed || !answered);
            let recorded =
                |events: &[Event]| count(events, |event| matches!(event, Event::AppAllowed { .. }));
            assert_eq!(recorded(&directory.events().await), usize::from(allowed));
            directory.admin::<Value>(admin::ALLOW_APP, &app).await.unwrap();
            assert_eq!(recorded(&directory.events().await), 1);
            assert!(directory.policy().await.apps.contains_key(&app.app_id));
            kms.stop().await;
        },
    )
    .await;
    assert!(boundaries > 10, "{boundaries}");
}
