//! An application under a contract with the published command line: it makes the contract, prepares a change of the document,
//! commits it when its owner has allowed it, and lets every device run it. What the client asks a chain through a
//! contract for many questions (`multicall3`) is not shown: it knows none on a development chain.

use std::path::Path;

use cloister_tests::command::Up;
use cloister_tests::data_dir::DataDir;
use cloister_tests::hello::with_greeting;
use cloister_tests::http::get_text;
use cloister_tests::{PATIENCE, eventually, paths};
use serde_json::Value;

use super::Person;

const NAME: &str = "governed";

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}"))
}

/// What a command of the person printed as JSON; it has to succeed.
async fn printed(person: &Person<'_>, arguments: &[&str]) -> Value {
    let (succeeded, text) = person.ran(arguments).await;
    assert!(succeeded, "phala {arguments:?}: {text}");
    let start = text.find('{').unwrap_or_else(|| panic!("phala {arguments:?} prints no JSON: {text}"));
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter();
    values.next().unwrap().unwrap_or_else(|error| panic!("phala {arguments:?}: {error}: {text}"))
}

/// Runs a command whose last arguments are others each time.
async fn run(person: &Person<'_>, arguments: &[&str], more: &[&str], shown: &[&str]) {
    person.runs(&[arguments, more].concat(), shown).await;
}

async fn says(person: &Person<'_>, greeting: &str) {
    let cvm = person.up.api().get(&format!("/cvms/{NAME}")).await;
    let page = text(&cvm["endpoints"][0]["app"]).to_owned();
    eventually(&format!("the page says {greeting:?}"), PATIENCE, async || {
        get_text(&page).await.filter(|page| page.contains(greeting))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_published_client_governs_an_application_by_its_contract() {
    let data_dir = DataDir::new();
    let up = Up::start_with_chain(data_dir.path(), None).await;
    let image = paths::hello().join("hello.tar");
    let pushed = up.run(&["image", "push", image.to_str().unwrap()]).await;
    assert_eq!(pushed.code, 0, "{pushed:?}");
    let (api, chain) = (up.api(), &up.document["chain"]);
    let key = std::fs::read_to_string(Path::new(text(&chain["owner_key"]))).unwrap();
    let key = format!("0x{}", key.trim().trim_start_matches("0x"));
    let wallet = ["--private-key", &key, "--rpc-url", text(&chain["rpc_url"])];
    let person = Person::logged_in(&up).await;
    let files: Vec<_> = ["first", "second"]
        .iter()
        .map(|greeting| with_greeting(data_dir.path(), greeting).to_str().unwrap().to_owned())
        .collect();

    // It makes the contract of the application, which allows the document and the device, and then the CVM.
    let deploy = ["deploy", "-c", &files[0], "-n", NAME, "--kms-id", text(&chain["kms"])];
    run(&person, &deploy, &wallet, &["CVM created"]).await;
    api.runs(NAME, PATIENCE).await;
    says(&person, "first").await;
    let cvm = api.get(&format!("/cvms/{NAME}")).await;

    // Another document is prepared, allowed by whoever has the key, and committed by whoever has the token.
    let prepared =
        printed(&person, &["deploy", "--cvm-id", NAME, "-c", &files[1], "--prepare-only", "--json"]).await;
    assert_eq!(prepared["onchain_status"]["compose_hash_allowed"], false, "{prepared:#}");
    let commit = ["deploy", "--cvm-id", NAME, "--commit", "--token", text(&prepared["commit_token"])];
    person.is_refused(&commit, "not").await;
    let hash = text(&prepared["compose_hash"]);
    let allow =
        ["chain", "allow-hash", text(&cvm["app_id"]), hash, "--yes", "--key-file", text(&chain["owner_key"])];
    let allowed = up.run(&allow).await;
    assert_eq!(allowed.code, 0, "{allowed:?}");
    person.runs(&commit, &["committed successfully"]).await;
    api.runs(NAME, PATIENCE).await;
    says(&person, "second").await;

    // Devices are the owner's to allow, too.
    let any = ["allow-devices", "allow-any", NAME, "--enable"];
    run(&person, &any, &wallet, &["enabled successfully"]).await;
    let allowlist = api.get(&format!("/apps/{}/device-allowlist", text(&cvm["app_id"]))).await;
    assert_eq!(allowlist["allow_any_device"], true, "{allowlist:#}");
    person.runs(&["cvms", "delete", NAME, "--force"], &[]).await;
    api.gone(NAME, PATIENCE).await;
    assert_eq!(up.interrupt().await, 0);
}
