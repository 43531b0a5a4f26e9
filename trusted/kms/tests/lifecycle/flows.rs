use std::net::SocketAddr;
use std::time::Duration;

use cloister_chain::{Address, ChainConfig, InvalidChainConfig};
use cloister_evidence::{PlatformEvidence, VersionedAttestation};
use cloister_kms::{Authorization, Config, Kms, StartError, StateError};
use cloister_kms_api::admin::{ALLOW_APP, SET_OWNERS, START_ROTATION, SetOwners};
use cloister_kms_api::approvals::Owners;
use cloister_kms_api::log::Event;
use cloister_kms_api::{
    AttestationInfo, BootstrapResponse, KmsErrorCode, OnboardRequest, OnboardResponse, method, statements,
};
use http::{Method, StatusCode};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UnixListener};
use tokio::time::timeout;

use crate::client::{Directory, an_app, bootstrap, finish, parse, plain, post};
use crate::lab::{Lab, Place};

/// A KMS whose doors are open.
async fn whole(place: &Place) -> (Kms, Directory, BootstrapResponse) {
    let kms = place.start().await.unwrap();
    let made = parse(bootstrap(kms.address()).await).unwrap();
    assert_eq!(finish(kms.address()).await, Some((StatusCode::OK, b"OK".to_vec())));
    let directory = Directory(kms.directory_address());
    directory.meta().await;
    (kms, directory, made)
}

fn onboard_from(source: SocketAddr) -> OnboardRequest {
    OnboardRequest {
        source_url: format!("https://{source}"),
        domain: "replica.example".to_owned(),
        k256_pubkey: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn from_an_empty_directory_to_open_doors() {
    let lab = Lab::new().await;
    let place = lab.place("kms");
    let kms = place.start().await.unwrap();
    let (status, body) = finish(kms.address()).await.unwrap();
    assert_eq!(status, StatusCode::BAD_REQUEST, "{}", String::from_utf8_lossy(&body));

    let made: BootstrapResponse = parse(bootstrap(kms.address()).await).unwrap();
    assert_eq!(made.public_key, made.ca_pubkey);
    assert_eq!(made.measurement.as_ref(), lab.process.mr_aggregated());
    let attestation = VersionedAttestation::decode(made.attestation.as_ref()).unwrap();
    let k256 = made.k256_pubkey.as_ref().try_into().unwrap();
    assert_eq!(attestation.report_data, statements::bootstrap_report_data(made.ca_pubkey.as_ref(), k256));
    let PlatformEvidence::Tdx { quote, .. } = attestation.evidence else { panic!() };
    let report = cloister_evidence::Quote::parse(&quote).unwrap();
    assert_eq!(*report.td_report().unwrap().reportdata, attestation.report_data);

    let error = parse::<BootstrapResponse>(bootstrap(kms.address()).await).unwrap_err();
    assert_eq!(error.code, KmsErrorCode::BadRequest);
    assert_eq!(error.error, "KMS has already been bootstrapped");

    assert_eq!(finish(kms.address()).await, Some((StatusCode::OK, b"OK".to_vec())));
    let directory = Directory(kms.directory_address());
    let meta = directory.meta().await;
    assert_eq!(meta.k256_pubkey, made.k256_pubkey);
    assert_eq!(meta.bootstrap_info.unwrap().attestation, made.attestation);
    assert_eq!(meta.domain, "127.0.0.1");
    // Plain HTTP is over.
    assert!(bootstrap(kms.address()).await.is_none());
    kms.stop().await;

    let kms = place.start().await.unwrap();
    let directory = Directory(kms.directory_address());
    assert_eq!(directory.meta().await.k256_pubkey, made.k256_pubkey);
    assert!(bootstrap(kms.address()).await.is_none());
    let events = directory.events().await;
    assert!(
        matches!(&events[..], [Event::Bootstrapped { .. }, Event::PlatformRulesSet { .. }]),
        "{events:?}"
    );
    kms.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfinished_kms_stays_in_onboarding() {
    let lab = Lab::new().await;
    let place = lab.place("kms");
    let kms = place.start().await.unwrap();
    let made: BootstrapResponse = parse(bootstrap(kms.address()).await).unwrap();
    kms.stop().await;
    let kms = place.start().await.unwrap();
    let error = parse::<BootstrapResponse>(bootstrap(kms.address()).await).unwrap_err();
    assert_eq!(error.error, "KMS has already been bootstrapped");
    let error = post::<OnboardResponse>(kms.address(), method::ONBOARD, &onboard_from(kms.address()))
        .await
        .unwrap_err();
    assert_eq!(error.error, "KMS has already been bootstrapped");
    assert_eq!(finish(kms.address()).await.unwrap().0, StatusCode::OK);
    assert_eq!(Directory(kms.directory_address()).meta().await.k256_pubkey, made.k256_pubkey);
    kms.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_understood_is_refused_and_changes_nothing() {
    let lab = Lab::new().await;
    let kms = lab.place("kms").start().await.unwrap();
    let at = kms.address();
    for (method, path, body) in [
        (Method::POST, "/prpc/Onboard.Bootstrap?json", ""),
        (Method::POST, "/prpc/Onboard.Bootstrap?json", "{"),
        (Method::POST, "/prpc/Onboard.Bootstrap?json", r#"{"domain":""}"#),
        (Method::POST, "/prpc/Onboard.Bootstrap?json", r#"{"domain":"a b"}"#),
        (Method::POST, "/prpc/Onboard.Bootstrap?json", r#"{"domain":7}"#),
        (Method::GET, "/prpc/Onboard.Bootstrap?json", ""),
        (Method::POST, "/prpc/Onboard.Onboard?json", r#"{"domain":"a","source_url":"http://a"}"#),
        (Method::POST, "/prpc/Onboard.Onboard?json", r#"{"domain":"a","source_url":"https://u@a"}"#),
        (Method::POST, "/prpc/Onboard.Onboard?json", r#"{"domain":"a","source_url":"a"}"#),
        (
            Method::POST,
            "/prpc/Onboard.Onboard?json",
            r#"{"domain":"a","source_url":"https://a","k256_pubkey":"00"}"#,
        ),
        (Method::POST, "/prpc/KMS.GetMeta?json", ""),
        (Method::POST, "/prpc/KMS.GetAppKey?json", "{}"),
        (Method::POST, "/prpc/Admin.StartRotation", ""),
        (Method::GET, "/", ""),
        (Method::DELETE, "/finish", ""),
        (Method::GET, "/finish", ""),
    ] {
        let (status, said) = plain(at, method, path, body).await.unwrap();
        let said = String::from_utf8(said).unwrap();
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path} {body} {said}");
        assert!(said.contains("BAD_REQUEST"), "{said}");
    }
    let (status, _) =
        plain(at, Method::POST, "/prpc/Onboard.Bootstrap?json", &"a".repeat(2 << 20)).await.unwrap();
    assert_eq!(status, StatusCode::BAD_REQUEST);
    // The method's service may be left out.
    let (status, _) =
        plain(at, Method::POST, "/prpc/Bootstrap?json", r#"{"domain":"kms.example"}"#).await.unwrap();
    assert_eq!(status, StatusCode::OK);
    kms.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_says_what_it_is() {
    let lab = Lab::new().await;
    let kms = lab.place("kms").start().await.unwrap();
    let info: AttestationInfo = post(kms.address(), method::ATTESTATION_INFO, &()).await.unwrap();
    assert_eq!(info.mr_aggregated.as_ref(), lab.process.mr_aggregated());
    assert_eq!(info.tee_variant, "dstack-tdx");
    assert_eq!(info.ppid.as_ref().len(), 16);
    assert_eq!(info.device_id.as_ref(), cloister_evidence::device_id(info.ppid.as_ref()));
    assert_eq!(info.os_image_hash.as_ref().len(), 32);
    kms.stop().await;
}

/// Those who ask and go leave work behind, with an agent that never answers for as long as it may take.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_in_onboarding_takes_no_more_than_its_places() {
    const PLACES: usize = 32;
    let lab = Lab::new().await;
    let mut config = lab.place("kms").config();
    let key = lab.dir.path().join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    config.sealing_key_file = Some(key);
    config.agent_socket = lab.dir.path().join("silent");
    let agent = UnixListener::bind(&config.agent_socket).unwrap();
    let kms = Kms::start(config).await.unwrap();
    let ask = async || {
        let mut caller = TcpStream::connect(kms.address()).await.unwrap();
        let question = format!("POST {} HTTP/1.1\r\nhost: kms\r\n\r\n", method::ATTESTATION_INFO);
        caller.write_all(question.as_bytes()).await.unwrap();
        caller
    };
    let (mut callers, mut asked) = (Vec::new(), Vec::new());
    for _ in 0..PLACES {
        // Each stays until its work has begun: who goes before that leaves none.
        callers.push(ask().await);
        asked.push(timeout(Duration::from_secs(20), agent.accept()).await.unwrap().unwrap());
    }
    drop(callers);
    for _ in 0..2 * PLACES {
        ask().await;
    }
    assert!(timeout(Duration::from_secs(2), agent.accept()).await.is_err(), "one more than there are places");
    drop(agent);
    kms.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_kms_takes_the_roots() {
    let lab = Lab::new().await;
    let (source, its_directory, made) = whole(&lab.sharing("source")).await;
    let status: cloister_kms_api::admin::RotationStatus =
        its_directory.admin(START_ROTATION, &()).await.unwrap();
    let current = status.roots.last().unwrap().k256_pubkey.clone();
    let owner = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";
    let set = SetOwners {
        app_id: an_app().app_id,
        owners: Owners::new(1, vec![owner.parse().unwrap()]).unwrap(),
        serial: 7,
        signatures: Vec::new(),
    };
    its_directory.admin::<serde_json::Value>(SET_OWNERS, &set).await.unwrap();
    let place = lab.sharing("replica");
    let replica = place.start().await.unwrap();

    // Another root than the caller expects: the first one is current no more.
    let mut request = onboard_from(source.address());
    request.k256_pubkey = Some(made.k256_pubkey.clone());
    let error = post::<OnboardResponse>(replica.address(), method::ONBOARD, &request).await.unwrap_err();
    assert_eq!(error.code, KmsErrorCode::Unauthorized, "{error}");
    assert!(!place.data_dir.join("state.sealed").exists());

    request.k256_pubkey = Some(current.clone());
    let taken: OnboardResponse = post(replica.address(), method::ONBOARD, &request).await.unwrap();
    assert_eq!(taken.k256_pubkey, current);
    let again = post::<OnboardResponse>(replica.address(), method::ONBOARD, &request).await.unwrap_err();
    assert_eq!(again.error, "KMS has already been bootstrapped");
    assert_eq!(finish(replica.address()).await.unwrap().0, StatusCode::OK);
    let directory = Directory(replica.directory_address());
    let (meta, source_meta) = (directory.meta().await, its_directory.meta().await);
    assert_eq!(meta.roots, source_meta.roots);
    assert_eq!(meta.ca_cert, source_meta.ca_cert);
    assert_eq!(meta.bootstrap_info, None);
    assert_ne!(meta.log_verifier_key, source_meta.log_verifier_key);
    let events = directory.events().await;
    assert!(
        matches!(&events[0], Event::Onboarded { k256_pubkey, .. } if *k256_pubkey == current),
        "{events:?}"
    );
    let handed_over = its_directory.events().await;
    let roots = handed_over.iter().filter(|event| {
        matches!(event, Event::Release { released: cloister_kms_api::log::Released::Roots, .. })
    });
    assert_eq!(roots.count(), 2, "{handed_over:?}");
    // The application's owners are its owners here, too.
    let refused = directory.admin::<serde_json::Value>(ALLOW_APP, &an_app()).await;
    assert_eq!(refused.unwrap_err().code, KmsErrorCode::ApprovalsRequired);
    replica.stop().await;
    source.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kms_that_nobody_registered_gets_no_roots() {
    let lab = Lab::new().await;
    let (source, its_directory, _) = whole(&lab.place("source")).await;
    let place = lab.place("replica");
    let replica = place.start().await.unwrap();
    let request = onboard_from(source.address());
    let error = post::<OnboardResponse>(replica.address(), method::ONBOARD, &request).await.unwrap_err();
    assert_eq!(error.code, KmsErrorCode::MeasurementNotFound, "{error}");
    assert!(!place.data_dir.join("state.sealed").exists());
    let events = its_directory.events().await;
    assert!(events.iter().any(|event| matches!(event, Event::Refusal { .. })), "{events:?}");
    replica.stop().await;
    source.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_on_a_foreign_platform_is_not_believed() {
    let (lab, elsewhere) = (Lab::new().await, Lab::new().await);
    let (source, ..) = whole(&elsewhere.sharing("source")).await;
    let place = lab.sharing("replica");
    let replica = place.start().await.unwrap();
    let request = onboard_from(source.address());
    let error = post::<OnboardResponse>(replica.address(), method::ONBOARD, &request).await.unwrap_err();
    assert_eq!(error.code, KmsErrorCode::Unauthorized, "{error}");
    assert!(!place.data_dir.join("state.sealed").exists());
    replica.stop().await;
    source.stop().await;
}

async fn refusal(config: Config) -> StartError {
    match Kms::start(config).await {
        Err(error) => error,
        Ok(_) => panic!("it started"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_start_says_why() {
    let lab = Lab::new().await;
    let place = lab.place("kms");
    let mut config = place.config();
    config.agent_socket = lab.dir.path().join("nobody");
    assert!(matches!(refusal(config).await, StartError::Agent(_)));

    let mut config = place.config();
    config.production = true;
    assert!(matches!(refusal(config).await, StartError::Trust(_)));

    let mut config = place.config();
    let token = lab.dir.path().join("short");
    std::fs::write(&token, "short").unwrap();
    config.admin_token_file = Some(token);
    assert!(matches!(refusal(config).await, StartError::Open(_)));

    let key = lab.dir.path().join("key");
    for (bytes, sound) in [(31, false), (33, false), (32, true)] {
        std::fs::write(&key, vec![7; bytes]).unwrap();
        let mut config = place.config();
        config.sealing_key_file = Some(key.clone());
        match Kms::start(config).await {
            Ok(kms) => {
                assert!(sound);
                assert!(matches!(refusal(place.config()).await, StartError::State(StateError::Busy(_))));
                parse::<BootstrapResponse>(bootstrap(kms.address()).await).unwrap();
                kms.stop().await;
            }
            Err(error) => assert!(!sound && matches!(error, StartError::SealingKeyLength(_)), "{error}"),
        }
    }
    // That state was sealed by the file, and the agent has another key.
    assert!(matches!(refusal(place.config()).await, StartError::State(StateError::Unseal { .. })));

    let rules = lab.dir.path().join("bad-rules");
    for text in ["", "[]", r#"{"platform":{"allowedTcbStatuses":["Revoked"]},"apps":{}}"#] {
        std::fs::write(&rules, text).unwrap();
        let mut config = lab.place("other").config();
        config.initial_rules = Some(rules.clone());
        let error = refusal(config).await;
        assert!(matches!(error, StartError::RulesForm(..) | StartError::InvalidRules(..)), "{error}");
    }
}

/// Two ports of one machine, which say the same lie.
#[tokio::test(flavor = "multi_thread")]
async fn in_production_no_host_alone_says_what_the_contract_decides() {
    let lab = Lab::new().await;
    for (endpoints, quorum) in
        [(&["http://127.0.0.1:9"][..], 1), (&["http://127.0.0.1:9", "http://127.0.0.1:10"][..], 2)]
    {
        let endpoints: Vec<url::Url> = endpoints.iter().map(|url| url.parse().unwrap()).collect();
        let chain = ChainConfig {
            quorum,
            endpoints: endpoints.clone(),
            ..ChainConfig::development(1, endpoints[0].clone())
        };
        let authorization = Authorization::Chain { chain, kms_contract: Address::ZERO };
        let config = Config { production: true, authorization, ..lab.place("kms").config() };
        let refused = Kms::start(config.clone()).await.map(drop).unwrap_err();
        assert!(matches!(refused, StartError::Chain(InvalidChainConfig::OneHost { .. })), "{refused}");
        Kms::start(Config { production: false, ..config }).await.unwrap().stop().await;
    }
}
