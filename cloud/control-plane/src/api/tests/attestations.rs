//! Quotes that anybody has verified, and the evidence of CVMs.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Answer, Installation};
use crate::clock::Clock;

const BOUNDARY: &str = "b0undary";

impl Installation {
    async fn post(&self, content_type: &str, body: impl Into<Body>) -> Answer {
        let request = Request::builder().method("POST").uri("/api/v1/attestations/verify");
        self.send(request.header("content-type", content_type).body(body.into()).unwrap()).await
    }

    async fn verify(&self, quote: &[u8]) -> Answer {
        self.post("application/json", json!({"hex": hex::encode(quote)}).to_string()).await
    }

    async fn look(&self, method: &str, path: &str) -> Answer {
        self.call_with(&[], method, &format!("/attestations/{path}"), Value::Null).await
    }
}

/// A form with these parts: name, whether it is a file, content.
fn form(parts: &[(&str, bool, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, is_file, content) in parts {
        let file = if *is_file { "; filename=\"quote.bin\"" } else { "" };
        body.extend(
            format!("--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"{name}\"{file}\r\n\r\n").bytes(),
        );
        body.extend(*content);
        body.extend(b"\r\n");
    }
    body.extend(format!("--{BOUNDARY}--\r\n").bytes());
    body
}

fn multipart() -> String {
    format!("multipart/form-data; boundary={BOUNDARY}")
}

/// The members with their kinds, for comparing shapes.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(map) => map.iter().map(|(name, value)| (name.clone(), shape(value))).collect(),
        Value::Array(items) => items.first().map(shape).into_iter().collect(),
        Value::String(text) if text.starts_with("0x") => format!("0x and {} digits", text.len() - 2).into(),
        Value::String(text) if text.is_empty() => "empty".into(),
        Value::String(_) => "text".into(),
        Value::Number(_) => "number".into(),
        other => other.clone(),
    }
}

#[tokio::test]
async fn a_genuine_quote_in_every_form() {
    for installation in [Installation::new().await, Installation::on_postgres().await] {
        let quote = installation.tee.quote([7; 64]);
        let hex = hex::encode(&quote);
        let first = installation.verify(&quote).await.expect(200).json();
        assert_eq!((&first["success"], &first["quote"]["verified"]), (&json!(true), &json!(true)));
        insta::assert_json_snapshot!("verified", shape(&first));
        assert_eq!(first["checksum"], hex::encode(Sha256::digest(&quote)));
        assert_eq!(first["id"], first["checksum"]);
        assert_eq!(first["quote"]["header"]["tee_type"], 129);
        assert_eq!(first["quote"]["body"]["reportdata"], format!("0x{}", "07".repeat(64)));
        assert_eq!(first["quote"]["body"]["tee_tcb_svn"].as_str().unwrap().len(), 32);
        assert_eq!(first["node_provider"]["ppid"], installation.tee.ppid());
        assert_eq!((&first["tcb_status"], &first["is_hardware"]), (&json!("UpToDate"), &json!(false)));
        assert_eq!(first["trust_root"], "development root (no hardware protection)");

        installation.app.clock.advance_ms(60_000);
        let urlencoded = "application/x-www-form-urlencoded";
        let form_data = multipart();
        let spaced: String = hex.to_uppercase().chars().flat_map(|digit| [digit, '\n']).collect();
        for (name, content_type, body) in [
            ("0x", "application/json", json!({"hex": format!(" 0x{hex}\n")}).to_string().into_bytes()),
            ("white space", "application/json", json!({"hex": spaced}).to_string().into_bytes()),
            ("no content type", "", json!({"hex": hex}).to_string().into_bytes()),
            ("urlencoded", urlencoded, format!("hex=0X{hex}").into_bytes()),
            ("hex part", &form_data, form(&[("hex", false, hex.as_bytes())])),
            ("file", &form_data, form(&[("file", true, &quote)])),
            ("file and empty hex", &form_data, form(&[("file", true, &quote), ("hex", false, b"")])),
            ("hex in a file", &form_data, form(&[("file", true, format!("0x{hex}\n").as_bytes())])),
        ] {
            let again = installation.post(content_type, body).await.expect(200).json();
            assert_eq!(again["checksum"], first["checksum"], "{name}");
            assert_eq!(again["uploaded_at"], first["uploaded_at"], "{name}: it is the stored one");
            assert_eq!(again["success"], true, "{name}");
            assert_eq!(again["verified_at"], "2026-01-21T10:01:00Z", "{name}: it was verified again");
        }
        assert_eq!(installation.look("GET", "recent").await.json().as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn many_who_send_the_same_quote_at_once_get_the_same_record() {
    for installation in [Installation::new().await, Installation::on_postgres().await] {
        let quote = installation.tee.quote([7; 64]);
        let answers = futures_util::future::join_all((0..16).map(|_| installation.verify(&quote))).await;
        for answer in answers {
            let answer = answer.expect(200).json();
            assert_eq!((&answer["success"], &answer["uploaded_at"]), (&json!(true), &json!(super::START)));
        }
        assert_eq!(installation.look("GET", "recent").await.json().as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn what_is_refused() {
    let installation = Installation::new().await;
    let quote = installation.tee.quote([7; 64]);
    let hex = hex::encode(&quote);
    let (urlencoded, form_data) = ("application/x-www-form-urlencoded", multipart());
    for (name, content_type, body, refusal) in [
        ("nothing", "application/json", Vec::new(), "400 plain"),
        ("no hex", "application/json", b"{}".to_vec(), "400 plain"),
        ("null", "application/json", b"{\"hex\": null}".to_vec(), "400 plain"),
        ("empty", "application/json", b"{\"hex\": \" \"}".to_vec(), "400 plain"),
        ("no hex digits", "application/json", b"{\"hex\": \"xyz\"}".to_vec(), "400 plain"),
        ("odd", "application/json", b"{\"hex\": \"0x123\"}".to_vec(), "400 plain"),
        ("a number", "application/json", b"{\"hex\": 12}".to_vec(), "422 validation"),
        ("no JSON", "application/json", b"{\"hex\": ".to_vec(), "422 validation"),
        ("no quote", "application/json", b"{\"hex\": \"00ff\"}".to_vec(), "422 validation"),
        (
            "cut off",
            "application/json",
            json!({"hex": &hex[..2000]}).to_string().into_bytes(),
            "422 validation",
        ),
        ("empty form", urlencoded, Vec::new(), "400 plain"),
        ("twice", urlencoded, format!("hex={hex}&hex={hex}").into_bytes(), "400 plain"),
        ("no parts", &form_data, form(&[]), "400 plain"),
        ("both", &form_data, form(&[("file", true, &quote), ("hex", false, hex.as_bytes())]), "400 plain"),
        ("two files", &form_data, form(&[("file", true, &quote), ("file", true, &quote)]), "400 plain"),
        ("a picture", &form_data, form(&[("file", true, b"\x89PNG\r\n")]), "422 validation"),
        ("broken off", &form_data, b"--b0undary\r\ncontent-dispo".to_vec(), "400 plain"),
        ("no boundary", "multipart/form-data", form(&[]), "400 plain"),
        ("too large", &form_data, form(&[("file", true, &vec![4; 300_000])]), "413 plain"),
        ("too large", "application/json", vec![b' '; 300_000], "413 plain"),
        ("too long a quote", &form_data, form(&[("file", true, &vec![0; 70_000])]), "422 validation"),
    ] {
        let answer = installation.post(content_type, body).await;
        assert_eq!(answer.summary(), refusal, "{name}: {}", answer.text);
    }
    let fault = installation.post(&form_data, form(&[("file", true, b"abc")])).await.json();
    assert_eq!(fault["detail"][0]["loc"], json!(["body", "file"]));
    assert_eq!(installation.look("GET", "recent").await.json(), json!([]), "nothing of it is kept");
}

#[tokio::test]
async fn a_quote_that_is_not_genuine_is_an_answer() {
    let installation = Installation::new().await;
    let mut quote = installation.tee.quote([7; 64]);
    // In the report data, which the signature covers.
    quote[600] ^= 1;
    let answer = installation.verify(&quote).await.expect(200).json();
    assert_eq!((&answer["success"], &answer["quote"]["verified"]), (&json!(false), &json!(false)));
    assert_eq!((&answer["proof_of_cloud"], &answer["trust_root"]), (&json!(false), &Value::Null));
    assert_eq!(answer["node_provider"], json!({"proof_of_cloud": false, "ppid": "", "provider": ""}));
    assert_eq!(answer["reasons"].as_array().unwrap().len(), 1, "{}", answer["reasons"]);
    let checksum = answer["checksum"].as_str().unwrap();
    assert_eq!(installation.look("GET", &format!("collateral/{checksum}")).await.summary(), "400 plain");
    assert_eq!(installation.look("GET", "recent").await.json()[0]["verified"], 0);
    let view = installation.look("GET", &format!("view/{checksum}")).await.expect(200).json();
    assert_eq!(view["verified"], false);

    let foreign = Installation::new().await.tee.quote([7; 64]);
    let answer = installation.verify(&foreign).await.expect(200).json();
    assert_eq!(answer["success"], false, "another installation's development root is not trusted here");
}

#[tokio::test]
async fn how_current_a_platform_is_stands_beside_the_verdict() {
    let installation = Installation::new().await;
    {
        let mut says = installation.tee.says.lock();
        says.status = "OutOfDate";
        says.advisories = vec!["INTEL-SA-00001".to_owned()];
    }
    let answer = installation.verify(&installation.tee.quote([1; 64])).await.expect(200).json();
    assert_eq!((&answer["success"], &answer["tcb_status"]), (&json!(true), &json!("OutOfDate")));
    assert_eq!(answer["advisory_ids"], json!(["INTEL-SA-00001"]));
}

#[tokio::test]
async fn without_collateral_there_is_no_verdict() {
    let installation = Installation::new().await;
    installation.tee.says.lock().is_down = true;
    let quote = installation.tee.quote([1; 64]);
    assert_eq!(installation.verify(&quote).await.summary(), "502 plain");
    assert_eq!(installation.look("GET", "recent").await.json(), json!([]));
}

#[tokio::test]
async fn stored_quotes_are_listed_shown_and_downloaded() {
    let installation = Installation::new().await;
    let mut checksums = Vec::new();
    let quotes = [0, 1, 2].map(|number| installation.tee.quote([number; 64]));
    for quote in &quotes {
        let answer = installation.verify(quote).await.expect(200).json();
        checksums.push(answer["checksum"].as_str().unwrap().to_owned());
        installation.app.clock.advance_ms(1000);
    }
    let recent = installation.look("GET", "recent?limit=2").await.expect(200).json();
    let expected = json!([
        {"checksum": checksums[2], "verified": 1, "created_at": "2026-01-21T10:00:02Z"},
        {"checksum": checksums[1], "verified": 1, "created_at": "2026-01-21T10:00:01Z"},
    ]);
    assert_eq!(recent, expected);
    assert_eq!(installation.look("GET", "recent?skip=2").await.json()[0]["checksum"], checksums[0]);
    for query in ["limit=0", "limit=101", "skip=-1", "limit=x"] {
        assert_eq!(installation.look("GET", &format!("recent?{query}")).await.summary(), "422 validation");
    }

    let view = installation.look("GET", &format!("view/{}", checksums[0])).await.expect(200).json();
    insta::assert_json_snapshot!("viewed", shape(&view));

    let raw = format!("raw/{}", checksums[0]);
    let request = Request::builder().uri(format!("/api/v1/attestations/{raw}")).body(Body::empty()).unwrap();
    let response = tower::ServiceExt::oneshot(installation.router.clone(), request).await.unwrap();
    let headers = response.headers().clone();
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    assert_eq!(bytes, quotes[0]);
    assert_eq!(headers["content-type"], "application/octet-stream");
    assert_eq!(headers["content-disposition"], format!("attachment; filename={}.bin", checksums[0]));
    let head = installation.look("HEAD", &raw).await.expect(200);
    assert_eq!((head.header("content-length"), head.text.as_str()), (bytes.len().to_string().as_str(), ""));

    let path = format!("collateral/{}", checksums[0]);
    let collateral = installation.look("GET", &path).await.expect(200);
    for (name, value) in [
        ("cache-control", "public, max-age=86400".to_owned()),
        ("cdn-cache-control", "public, max-age=86400".to_owned()),
        ("vary", "Accept-Encoding".to_owned()),
        ("etag", format!("\"{}\"", checksums[0])),
    ] {
        assert_eq!(collateral.header(name), value);
    }
    insta::assert_json_snapshot!("collateral", shape(&collateral.json()));
    let tag = collateral.header("etag").to_owned();
    for known in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".to_owned()] {
        let headers = [("if-none-match", known.as_str())];
        let path = format!("/attestations/{path}");
        let answer = installation.call_with(&headers, "GET", &path, Value::Null).await.expect(304);
        assert_eq!((answer.header("etag"), answer.text.as_str()), (tag.as_str(), ""));
    }
    for path in ["view/ab", "raw/ab", "collateral/ab", &format!("view/{}", "0".repeat(64))] {
        assert_eq!(installation.look("GET", path).await.summary(), "404 plain", "{path}");
    }
}

#[tokio::test]
async fn the_state_of_the_list_of_platforms_is_for_administrators() {
    let installation = Installation::with_clock(Clock::manual("2025-07-04T10:00:00Z".parse().unwrap())).await;
    let headers = [("x-api-key", installation.admin.as_str())];
    let state = async || {
        installation.call_with(&headers, "GET", "/admin/platform-list", Value::Null).await.expect(200).json()
    };
    let before = state().await;
    assert_eq!(
        (&before["configured"], &before["usable"], &before["serial"]),
        (&json!(true), &json!(false), &Value::Null)
    );
    installation.app.proof_of_cloud.refresh().await;
    let after = state().await;
    assert_eq!(
        (&after["usable"], &after["serial"], &after["platforms"]),
        (&json!(true), &json!(7), &json!(3))
    );
}

/// Public evidence of real hardware, which is not part of the repository.
fn public_evidence(name: &str) -> Option<Vec<u8>> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/testdata");
    let root = std::env::var("CLOISTER_TESTDATA").unwrap_or_else(|_| beside.to_owned());
    std::fs::read(std::path::Path::new(&root).join("tdx/dcap").join(name)).ok()
}

#[tokio::test]
async fn a_quote_of_registered_hardware_is_proof_of_cloud_while_it_verifies() {
    let (Some(quote), Some(collateral)) =
        (public_evidence("tdx_v4_td10.bin"), public_evidence("tdx_v4_td10.collateral.json"))
    else {
        eprintln!("SKIPPED: set CLOISTER_TESTDATA to the directory of public evidence");
        return;
    };
    let time = jiff::Timestamp::from_second(1_751_624_191).unwrap();
    let installation = Installation::with_clock(Clock::manual(time)).await;
    installation.tee.says.lock().intel = Some(serde_json::from_slice(&collateral).unwrap());
    let unregistered = installation.verify(&quote).await.expect(200).json();
    assert_eq!((&unregistered["success"], &unregistered["proof_of_cloud"]), (&json!(true), &json!(false)));

    installation.app.proof_of_cloud.refresh().await;
    let answer = installation.verify(&quote).await.expect(200).json();
    assert_eq!(answer["checksum"], "c42f9164325024bca2757bc8819b11879a0a369132ea4e2b7c85df4805ea72db");
    assert_eq!((&answer["success"], &answer["proof_of_cloud"]), (&json!(true), &json!(true)));
    assert_eq!(
        answer["node_provider"],
        json!({"proof_of_cloud": true, "ppid": "811dca2a26b952e85bb6448b097ba4fd", "provider": "example"})
    );
    assert_eq!((&answer["trust_root"], &answer["is_hardware"]), (&json!("Intel SGX Root CA"), &json!(true)));
    assert_eq!((&answer["tcb_status"], &answer["advisory_ids"]), (&json!("UpToDate"), &json!([])));

    // The platform's identity still stands in it, and proves nothing any more.
    let mut forged = quote;
    forged[600] ^= 1;
    let answer = installation.verify(&forged).await.expect(200).json();
    assert_eq!((&answer["success"], &answer["proof_of_cloud"]), (&json!(false), &json!(false)));
    assert_eq!(answer["node_provider"], json!({"proof_of_cloud": false, "ppid": "", "provider": ""}));
}

#[tokio::test]
async fn a_quote_of_an_enclave_has_no_measurements_of_a_machine() {
    let (Some(quote), Some(collateral)) =
        (public_evidence("sgx_v3.bin"), public_evidence("sgx_v3.collateral.json"))
    else {
        eprintln!("SKIPPED: set CLOISTER_TESTDATA to the directory of public evidence");
        return;
    };
    let time = jiff::Timestamp::from_second(1_751_624_924).unwrap();
    let installation = Installation::with_clock(Clock::manual(time)).await;
    installation.tee.says.lock().intel = Some(serde_json::from_slice(&collateral).unwrap());
    let answer = installation.verify(&quote).await.expect(200).json();
    assert_eq!(answer["success"], true, "{}", answer["reasons"]);
    assert_eq!(
        (&answer["quote"]["header"]["version"], &answer["quote"]["header"]["tee_type"]),
        (&json!(3), &json!(0))
    );
    assert_eq!(answer["tcb_status"], "ConfigurationAndSWHardeningNeeded");
    let body = answer["quote"]["body"].as_object().unwrap();
    assert!(body.values().all(Value::is_string) && body.len() == 15);
    assert_eq!((&body["mrtd"], body["reportdata"].as_str().unwrap().len()), (&json!(""), 130));
}
