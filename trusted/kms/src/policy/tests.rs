use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use cloister_app_compose::{AppId, ComposeHash, InstanceId, OsImageHash};
use cloister_chain::{Address, ChainConfig, Clock};
use cloister_kms_api::admin::{PlatformRules, PolicyDocument};
use cloister_kms_api::{Hex, KmsErrorCode};
use cloister_verifier::{TcbStatus, TrustRoot};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::net::TcpListener;
use url::Url;

use super::{
    Authority, BootInfo, ChainAuthority, InvalidRules, Question, Webhook, WebhookError, check_platform_rules,
    decide,
};

fn boot() -> BootInfo {
    BootInfo {
        trust_root: TrustRoot::IntelSgxRootCa,
        tee_variant: "dstack-tdx",
        mr_aggregated: [1; 32],
        mr_system: [2; 32],
        os_image_hash: Some(OsImageHash::from_bytes([3; 32])),
        device_id: [4; 32],
        key_provider_info: Vec::new(),
        app_id: Some(AppId::from_bytes([5; 20])),
        instance_id: Some(InstanceId::from_bytes([6; 20])),
        compose_hash: Some(ComposeHash::from_bytes([7; 32])),
        tcb_status: TcbStatus::UpToDate,
        advisory_ids: vec!["INTEL-SA-00001".to_owned()],
    }
}

fn policy() -> PolicyDocument {
    PolicyDocument {
        platform: PlatformRules {
            os_images: Some(vec![Hex::from([3; 32])]),
            devices: Some(vec![Hex::from([4; 32])]),
            kms_measurements: vec![Hex::from([1; 32])],
            ..PlatformRules::default()
        },
        apps: [(AppId::from_bytes([5; 20]), vec![ComposeHash::from_bytes([7; 32])])].into(),
    }
}

fn code(question: Question, change: impl FnOnce(&mut PolicyDocument, &mut BootInfo)) -> Option<KmsErrorCode> {
    let (mut policy, mut boot) = (policy(), boot());
    change(&mut policy, &mut boot);
    decide(&policy, question, &boot).err().map(|error| error.code)
}

fn app_code(change: impl FnOnce(&mut PolicyDocument, &mut BootInfo)) -> Option<KmsErrorCode> {
    code(Question::App, change)
}

const UNAUTHORIZED: Option<KmsErrorCode> = Some(KmsErrorCode::Unauthorized);
const NOT_FOUND: Option<KmsErrorCode> = Some(KmsErrorCode::MeasurementNotFound);

#[test]
fn who_is_registered_on_a_good_platform_gets_keys() {
    assert_eq!(app_code(|_, _| {}), None);
    assert_eq!(code(Question::Kms, |_, _| {}), None);
    assert_eq!(app_code(|policy, _| policy.platform.devices = None), None);
    assert_eq!(app_code(|_, boot| boot.instance_id = None), None);
}

#[test]
fn a_bad_platform_is_unauthorized() {
    for question in [Question::App, Question::Kms] {
        assert_eq!(code(question, |_, boot| boot.tcb_status = TcbStatus::OutOfDate), UNAUTHORIZED);
        assert_eq!(code(question, |_, boot| boot.device_id = [0; 32]), UNAUTHORIZED);
        assert_eq!(code(question, |policy, _| policy.platform.devices = Some(Vec::new())), UNAUTHORIZED);
        let denied = |policy: &mut PolicyDocument, _: &mut BootInfo| {
            policy.platform.denied_advisory_ids = vec!["INTEL-SA-00001".to_owned()];
        };
        assert_eq!(code(question, denied), UNAUTHORIZED);
    }
    // Whatever the rules say.
    let revoked = |policy: &mut PolicyDocument, boot: &mut BootInfo| {
        policy.platform.allowed_tcb_statuses.push("Revoked".to_owned());
        boot.tcb_status = TcbStatus::Revoked;
    };
    assert_eq!(app_code(revoked), UNAUTHORIZED);
    // The platform counts first.
    let both = |_: &mut PolicyDocument, boot: &mut BootInfo| {
        boot.device_id = [0; 32];
        boot.compose_hash = None;
    };
    assert_eq!(app_code(both), UNAUTHORIZED);
}

/// An image that nobody looked at measures what its maker likes.
#[test]
fn on_hardware_images_must_be_registered() {
    let root = |root: TrustRoot| {
        move |policy: &mut PolicyDocument, boot: &mut BootInfo| {
            policy.platform.os_images = None;
            boot.trust_root = root;
        }
    };
    assert_eq!(app_code(root(TrustRoot::IntelSgxRootCa)), NOT_FOUND);
    assert_eq!(app_code(root(TrustRoot::Development)), None);
    // The measurement of a KMS says more than its image.
    assert_eq!(code(Question::Kms, root(TrustRoot::IntelSgxRootCa)), None);
    let fresh = |policy: &mut PolicyDocument, _: &mut BootInfo| policy.platform = PlatformRules::default();
    assert_eq!(app_code(fresh), NOT_FOUND);
}

#[test]
fn what_nobody_registered_is_not_found() {
    assert_eq!(app_code(|_, boot| boot.app_id = None), NOT_FOUND);
    assert_eq!(app_code(|_, boot| boot.app_id = Some(AppId::from_bytes([0; 20]))), NOT_FOUND);
    assert_eq!(app_code(|_, boot| boot.compose_hash = None), NOT_FOUND);
    assert_eq!(app_code(|_, boot| boot.compose_hash = Some(ComposeHash::from_bytes([0; 32]))), NOT_FOUND);
    assert_eq!(app_code(|_, boot| boot.os_image_hash = None), NOT_FOUND);
    assert_eq!(app_code(|policy, _| policy.platform.os_images = Some(Vec::new())), NOT_FOUND);
    assert_eq!(app_code(|policy, _| policy.apps.clear()), NOT_FOUND);
    assert_eq!(code(Question::Kms, |_, boot| boot.mr_aggregated = [0; 32]), NOT_FOUND);
    // An application that may have keys is no KMS, and the reverse.
    assert_eq!(code(Question::Kms, |policy, _| policy.platform.kms_measurements.clear()), NOT_FOUND);
    assert_eq!(code(Question::Kms, |policy, _| policy.platform = PlatformRules::default()), NOT_FOUND);
}

proptest! {
    #[test]
    fn nothing_is_padded(length in 0..64_usize, value in any::<u8>()) {
        prop_assume!(length != 32 || value != 1);
        let refused = code(Question::Kms, |policy, boot| {
            policy.platform.kms_measurements = vec![Hex::from(vec![value; length])];
            boot.mr_aggregated = [1; 32];
        });
        prop_assert_eq!(refused, NOT_FOUND);
    }
}

#[test]
fn rules_that_can_never_hold_are_refused() {
    let refused = |change: &dyn Fn(&mut PlatformRules)| {
        let mut rules = policy().platform;
        change(&mut rules);
        check_platform_rules(&rules).err()
    };
    assert_eq!(refused(&|_| {}), None);
    assert_eq!(
        refused(&|rules| rules.devices = Some(vec![Hex::from([0; 31])])),
        Some(InvalidRules::Length { list: "devices" })
    );
    assert_eq!(
        refused(&|rules| rules.kms_measurements = vec![Hex::from([0; 32]); 10_001]),
        Some(InvalidRules::TooMany)
    );
    for status in ["Revoked", "up to date", ""] {
        assert_eq!(
            refused(&|rules| rules.allowed_tcb_statuses.push(status.to_owned())),
            Some(InvalidRules::TcbStatus(status.to_owned()))
        );
    }
    assert_eq!(
        refused(&|rules| rules.denied_advisory_ids = vec![String::new()]),
        Some(InvalidRules::Advisory)
    );
}

#[test]
fn answers_that_can_be_forged_on_their_way_are_not_asked_for() {
    let made = |url: &str| Webhook::new(&url.parse().unwrap()).map(drop);
    for good in
        ["https://auth.example", "https://auth.example:8443/v1/", "http://127.0.0.1:9", "http://[::1]:9"]
    {
        made(good).unwrap();
    }
    for plain in ["http://auth.example", "http://10.0.0.1", "http://127.0.0.1.example"] {
        assert!(matches!(made(plain), Err(WebhookError::Plain)), "{plain}");
    }
    for odd in ["ftp://auth.example", "https://auth.example/?a=b", "https://auth.example/#a", "mailto:a@b"] {
        assert!(matches!(made(odd), Err(WebhookError::Address)), "{odd}");
    }
}

pub(crate) type Asked = Arc<Mutex<Vec<(String, serde_json::Value)>>>;

/// A service that always answers the same.
pub(crate) async fn service(status: StatusCode, answer: impl Into<Bytes>) -> (Webhook, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let (answer, asked) = (answer.into(), Asked::default());
    let heard = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (answer, heard) = (answer.clone(), Arc::clone(&heard));
            let service = service_fn(move |request: Request<Incoming>| {
                let (answer, heard) = (answer.clone(), Arc::clone(&heard));
                async move {
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    heard.lock().push((path, serde_json::from_slice(&body).unwrap()));
                    let answer = Response::builder().status(status).body(Full::new(answer)).unwrap();
                    Ok::<_, Infallible>(answer)
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (Webhook::new(&format!("http://{address}/policy").parse::<Url>().unwrap()).unwrap(), asked)
}

#[tokio::test]
async fn the_service_is_asked_in_the_public_form() {
    let answer = r#"{"isAllowed":true,"gatewayAppId":"any","reason":""}"#;
    let (webhook, asked) = service(StatusCode::OK, answer).await;
    assert_eq!(webhook.ask(Question::App, &boot()).await.unwrap().gateway_app_id, "any");
    let bare =
        BootInfo { app_id: None, instance_id: None, compose_hash: None, os_image_hash: None, ..boot() };
    webhook.ask(Question::Kms, &bare).await.unwrap();
    insta::assert_json_snapshot!(*asked.lock());
}

#[tokio::test]
async fn a_refusal_keeps_its_meaning() {
    for (reason, code) in [
        ("TCB status is not up to date", KmsErrorCode::Unauthorized),
        ("Device not allowed", KmsErrorCode::Unauthorized),
        ("KMS is not allowed to boot on this device", KmsErrorCode::Unauthorized),
        ("App not registered", KmsErrorCode::MeasurementNotFound),
        ("OS image is not allowed", KmsErrorCode::MeasurementNotFound),
        ("Aggregated MR not allowed", KmsErrorCode::MeasurementNotFound),
        ("Compose hash not allowed", KmsErrorCode::MeasurementNotFound),
        ("", KmsErrorCode::MeasurementNotFound),
        ("authorization backend unavailable", KmsErrorCode::InternalError),
    ] {
        let answer = serde_json::json!({"isAllowed": false, "gatewayAppId": "", "reason": reason});
        let (webhook, _) = service(StatusCode::OK, answer.to_string()).await;
        let error = webhook.ask(Question::App, &boot()).await.unwrap_err();
        assert_eq!(error.code, code, "{reason}");
        assert!(error.error.contains(reason), "{error}");
    }
    let odd = serde_json::json!({"isAllowed": false, "reason": format!("a\n\u{1b}[2J{}", "ü".repeat(1000))});
    let (webhook, _) = service(StatusCode::OK, odd.to_string()).await;
    let error = webhook.ask(Question::App, &boot()).await.unwrap_err().error;
    assert!(!error.contains(char::is_control) && error.len() < 400, "{error}");
}

#[tokio::test]
async fn whatever_is_not_a_clear_answer_is_no_permission() {
    let yes = r#"{"isAllowed":true}"#;
    for (status, answer) in [
        (StatusCode::INTERNAL_SERVER_ERROR, yes.to_owned()),
        (StatusCode::BAD_REQUEST, yes.to_owned()),
        (StatusCode::FOUND, yes.to_owned()),
        (StatusCode::OK, String::new()),
        (StatusCode::OK, "{}".to_owned()),
        (StatusCode::OK, r#"{"isAllowed":"true"}"#.to_owned()),
        (StatusCode::OK, r#"{"isAllowed":1}"#.to_owned()),
        (StatusCode::OK, format!(r#"{{"isAllowed":true,"x":"{}"}}"#, "a".repeat(70 << 10))),
    ] {
        let (webhook, _) = service(status, answer.clone()).await;
        let error = webhook.ask(Question::App, &boot()).await.unwrap_err();
        assert_eq!(error.code, KmsErrorCode::InternalError, "{status} {answer:.80}");
    }
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let webhook = Webhook::new(&format!("http://{closed}").parse::<Url>().unwrap()).unwrap();
    assert_eq!(webhook.ask(Question::App, &boot()).await.unwrap_err().code, KmsErrorCode::InternalError);
    // One that accepts and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let webhook = Webhook::new(&format!("http://{address}").parse::<Url>().unwrap()).unwrap();
    let error = webhook.ask(Question::App, &boot()).await.unwrap_err();
    assert_eq!(error.code, KmsErrorCode::InternalError);
    assert!(error.error.contains("no answer in time"), "{error}");
    drop(silent);
}

#[tokio::test]
async fn a_revoked_platform_is_refused_before_anybody_is_asked() {
    let (webhook, asked) = service(StatusCode::OK, r#"{"isAllowed":true}"#).await;
    let revoked = BootInfo { tcb_status: TcbStatus::Revoked, ..boot() };
    for authority in [Authority::Webhook(webhook), Authority::Chain(unreachable().await)] {
        for question in [Question::App, Question::Kms] {
            let error = authority.ask(&policy(), question, &revoked).await.unwrap_err();
            assert_eq!(error.code, KmsErrorCode::Unauthorized, "{error}");
        }
    }
    assert!(asked.lock().is_empty());
}

/// A contract whose chain nobody serves.
async fn unreachable() -> ChainAuthority {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let endpoint = format!("http://{closed}/v2/secret-key").parse().unwrap();
    ChainAuthority::new(ChainConfig::development(31337, endpoint), Address::ZERO, Clock::system()).unwrap()
}

#[tokio::test]
async fn a_contract_that_cannot_be_asked_allows_nothing() {
    let authority = Authority::Chain(unreachable().await);
    for question in [Question::App, Question::Kms] {
        let error = authority.ask(&policy(), question, &boot()).await.unwrap_err();
        assert_eq!(error.code, KmsErrorCode::InternalError);
        assert!(!error.error.contains("secret-key"), "{error}");
    }
    for none in [
        BootInfo { app_id: None, ..boot() },
        BootInfo { compose_hash: None, ..boot() },
        BootInfo { os_image_hash: None, ..boot() },
    ] {
        let error = authority.ask(&policy(), Question::App, &none).await.unwrap_err();
        assert_eq!(error.code, KmsErrorCode::MeasurementNotFound);
    }
    assert!(!format!("{authority:?}").contains("secret-key"));
}
