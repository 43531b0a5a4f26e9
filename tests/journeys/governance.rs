//! An application under a contract: nothing runs that its owner did not allow, and what the owner takes back gets no
//! keys any more.

use std::path::Path;

use cloister_tests::command::Up;
use cloister_tests::data_dir::DataDir;
use cloister_tests::hello::with_greeting;
use cloister_tests::http::get_text;
use cloister_tests::{PATIENCE, eventually, paths};
use serde_json::Value;

/// The change waits for those who decide.
const AWAITS_APPROVAL: i32 = 9;
/// What is shown is not what was allowed.
const UNVERIFIED: i32 = 8;

async fn done(up: &Up, arguments: &[&str]) -> Value {
    let ran = up.run(arguments).await;
    assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
    serde_json::from_str(&ran.stdout).unwrap_or(Value::Null)
}

async fn page(url: &str, greeting: &str) {
    eventually(&format!("the page says {greeting:?}"), PATIENCE, async || {
        get_text(url).await.filter(|page| page.contains(greeting))
    })
    .await;
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}"))
}

/// The token in the command that was told to whoever asked for the change.
fn token(words: &str) -> &str {
    let rest = words.split("--token ").nth(1).unwrap_or_else(|| panic!("no token: {words}"));
    rest.split_whitespace().next().unwrap()
}

/// The tenant asks, another account decides, and takes it back.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_that_the_owner_of_the_contract_did_not_allow() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let dir = DataDir::new();
    let up = Up::start_with_chain(dir.path(), Some(&paths::hello())).await;
    let url = text(&up.document["app_url"]).to_owned();
    page(&url, "Hello from hello").await;
    let owner = text(&up.document["chain"]["owner_key"]).to_owned();
    let stranger = text(&up.document["chain"]["operator_key"]).to_owned();
    let first = done(&up, &["--json", "cvms", "get", "hello"]).await;
    let (app, first_hash) = (text(&first["app_id"]).to_owned(), text(&first["compose_hash"]).to_owned());
    let shown = done(&up, &["--json", "chain", "show", &app, "--hash", &first_hash]).await;
    assert_eq!(
        (&shown["registered"], &shown["asked"][0]["allowed"]),
        (&Value::from(true), &Value::from(true))
    );

    // The tenant has no key of the contract: the change waits, and the page stays.
    let second = with_greeting(dir.path(), "second");
    let second = second.to_str().unwrap();
    let asked = up.run(&["update", "hello", "-c", second]).await;
    assert_eq!(asked.code, AWAITS_APPROVAL, "{asked:?}");
    assert!(asked.stderr.contains("addComposeHash(0x"), "{asked:?}");
    let needs = done(&up, &["--json", "chain", "needs", "hello", "-c", second]).await;
    let hash = text(&needs["compose_hash"]).to_owned();
    let call = &needs["transactions"][0];
    assert_eq!(text(&call["data"]), format!("0xdfc77223{hash}"), "the public function, the new document");
    let token = token(&asked.stderr).to_owned();
    let early = up.run(&["commit", "hello", "--token", &token]).await;
    assert_eq!(early.code, AWAITS_APPROVAL, "{early:?}");
    page(&url, "Hello from hello").await;

    // Somebody else's key allows nothing, the owner's does; whoever has the token commits.
    let allow =
        |key: &str| ["chain", "allow-hash", &app, &hash, "--yes", "--key-file", key].map(str::to_owned);
    let refused = up.run(&allow(&stranger).each_ref().map(String::as_str)).await;
    assert_eq!(refused.code, 1, "{refused:?}");
    done(&up, &allow(&owner).each_ref().map(String::as_str)).await;
    done(&up, &["commit", "hello", "--token", &token]).await;
    page(&url, "Hello from second").await;
    let again = up.run(&["commit", "hello", "--token", &token]).await;
    assert_ne!(again.code, 0, "a token is good once: {again:?}");

    // The owner takes the document back: the CVM that runs it gets no keys at its next start, and says why.
    done(&up, &["chain", "remove-hash", &app, &hash, "--yes", "--key-file", &owner]).await;
    // Nor is anything built upon it, whatever the server shows.
    let third = with_greeting(dir.path(), "third");
    let built = up.run(&["chain", "needs", "hello", "-c", third.to_str().unwrap()]).await;
    assert_eq!(built.code, UNVERIFIED, "{built:?}");
    let restarted = up.run(&["cvms", "restart", "hello"]).await;
    assert_ne!(restarted.code, 0, "{restarted:?}");
    let state = up.api().at_rest("hello", PATIENCE).await;
    assert!(text(&state["boot_error"]).contains("MEASUREMENT_NOT_FOUND"), "{state}");
    assert!(
        text(&state["boot_error"]).contains("Compose hash not allowed"),
        "in the contract's words: {state}"
    );
    the_chain_is_remembered(up, dir.path(), &app, &first_hash).await;
}

/// What is on the development chain is there after a restart of the cloud.
async fn the_chain_is_remembered(up: Up, dir: &Path, app: &str, hash: &str) {
    let contract = up.document["chain"]["kms_contract"].clone();
    assert_eq!(up.interrupt().await, 0);
    let up = Up::start_with_chain(dir, None).await;
    assert_eq!(up.document["chain"]["kms_contract"], contract);
    let shown = done(&up, &["--json", "chain", "show", app, "--hash", hash]).await;
    assert_eq!(shown["asked"][0]["allowed"], true, "{shown}");
    assert_eq!(up.interrupt().await, 0);
}
