//! Agents that answer what they should not, or nothing.

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

use super::{Agent, AgentError, KeyName, MAX_ANSWER_BYTES};

/// Nothing that an agent says may be repeated: it may be a key.
const SECRET: &str = "cafebabecafebabecafebabecafebabecafebabecafebabecafebabecafebabe";

const SEALING: KeyName = KeyName { path: "kms/state", purpose: "sealing", algorithm: "secp256k1" };

/// An agent that answers everybody with these bytes, and then ends the connection or keeps it.
fn saying(answer: impl Into<Vec<u8>>, stays: bool) -> (TempDir, Agent) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let answer = answer.into();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = vec![0; 4096];
            let _ = stream.read(&mut asked).await;
            // Who has heard enough may be gone.
            let _ = stream.write_all(&answer).await;
            if stays {
                kept.push(stream);
            }
        }
    });
    (dir, Agent::new(&socket))
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

async fn refusals(answer: impl Into<Vec<u8>>, stays: bool) -> [AgentError; 2] {
    let (_dir, agent) = saying(answer, stays);
    let errors = [agent.key(&SEALING).await.unwrap_err(), agent.quote(&[0; 64]).await.unwrap_err()];
    for error in &errors {
        let said = format!("{error} {error:?}");
        assert!(!said.contains("cafe") && said.len() < 1000, "{said}");
    }
    errors
}

#[tokio::test]
async fn a_key_is_32_bytes_in_hex() {
    let (_dir, agent) = saying(ok(&format!(r#"{{"key":"{SECRET}","signature_chain":[]}}"#)), false);
    assert_eq!(hex::encode(*agent.key(&SEALING).await.unwrap().secret), SECRET);
    for key in [String::new(), SECRET[2..].to_owned(), format!("{SECRET}ca"), format!("{}xy", &SECRET[2..])] {
        let [error, _] = refusals(ok(&format!(r#"{{"key":"{key}"}}"#)), false).await;
        assert!(matches!(error, AgentError::Answer("/GetKey")), "{key}: {error}");
    }
}

#[tokio::test]
async fn what_cannot_be_understood_is_refused_and_not_repeated() {
    for body in
        ["", "{}", "[]", "cafe", r#"{"key":7,"quote":"cafe"}"#, r#"{"quote":"cafx","event_log":"[]"}"#]
    {
        let errors = refusals(ok(body), false).await;
        assert!(errors.iter().all(|error| matches!(error, AgentError::Answer(_))), "{body}: {errors:?}");
    }
    for answer in ["", "cafe", "HTTP/1.1 200 OK\r\nx: cafe", "HTTP/1.1 999999 cafe\r\n\r\n"] {
        let errors = refusals(answer, false).await;
        assert!(errors.iter().all(|error| matches!(error, AgentError::Http(_))), "{answer}: {errors:?}");
    }
    let errors = refusals("HTTP/1.1 200 OK\r\ncontent-length: 80\r\n\r\ncafe", false).await;
    assert!(errors.iter().all(|error| matches!(error, AgentError::Answer(_))), "{errors:?}");
    let refused = format!("HTTP/1.1 403 Forbidden\r\ncontent-length: {}\r\n\r\n{SECRET}", SECRET.len());
    let errors = refusals(refused, false).await;
    assert!(
        errors.iter().all(|error| matches!(error, AgentError::Refused { status: 403, .. })),
        "{errors:?}"
    );
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_it() {
    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", " ".repeat(MAX_ANSWER_BYTES + 1));
    let errors = refusals(endless, true).await;
    assert!(errors.iter().all(|error| matches!(error, AgentError::Answer(_))), "{errors:?}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_falls_silent_is_given_up() {
    for answer in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 80\r\n\r\n{\"key\":\""] {
        let errors = refusals(answer, true).await;
        assert!(errors.iter().all(|error| matches!(error, AgentError::TimedOut)), "{answer}: {errors:?}");
    }
}

#[tokio::test]
async fn what_a_machine_says_about_itself() {
    let tcb_info = serde_json::json!({"app_compose": "{\"name\": \"é\"}", "rtmr0": ""}).to_string();
    let body = serde_json::json!({"app_id": "0a", "tcb_info": tcb_info, "more": 1}).to_string();
    let (_dir, agent) = saying(ok(&body), false);
    let info = agent.info().await.unwrap();
    assert_eq!((&*info.app_id, &*info.app_compose), ("0a", "{\"name\": \"é\"}"));
    let (_dir, agent) = saying(ok(r#"{"app_id":"0a","tcb_info":""}"#), false);
    assert_eq!(agent.info().await.unwrap().app_compose, "");
    for body in ["{}", r#"{"app_id":"0a","tcb_info":"cafe"}"#] {
        let (_dir, agent) = saying(ok(body), false);
        assert!(matches!(agent.info().await, Err(AgentError::Answer("/Info"))), "{body}");
    }
}

#[tokio::test]
async fn evidence_of_a_platform_without_quotes() {
    let body = r#"{"quote":"","event_log":"[]","vm_config":"{}","attestation":"0001"}"#;
    let (_dir, agent) = saying(ok(body), false);
    let evidence = agent.quote(&[0; 64]).await.unwrap();
    assert_eq!((evidence.quote.len(), evidence.attestation.as_deref()), (0, Some(&[0, 1][..])));
}
