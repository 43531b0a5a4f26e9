//! The life of a CVM by the published libraries: each makes one with a sealed environment, waits for it, reads its evidence and
//! logs, changes its document, its environment and its size, makes a replica and deletes both.

use std::path::{Path, PathBuf};

use cloister_tests::command::Up;
use cloister_tests::data_dir::DataDir;
use cloister_tests::hello::with_greeting;
use cloister_tests::http::get_text;
use cloister_tests::{PATIENCE, eventually, paths, published};
use serde_json::{Value, json};

use super::{Person, SET};

/// Program, name of its CVM, and the newest version that the library knows.
const LIBRARIES: [(&str, &str, &str); 2] =
    [("life.mjs", "from-javascript", "2026-01-21"), ("life.py", "from-python", "2026-06-23")];

/// Does one part, with a compose file.
async fn does(
    person: &Person<'_>,
    (script, cvm, version): (&str, &str, &str),
    part: &str,
    compose: &Path,
) -> Value {
    let mut command = published::program(SET, script, &[part, cvm, version]);
    person.with_access(&mut command);
    command.env("COMPOSE_FILE", compose);
    published::printed(command).await
}

async fn says(person: &Person<'_>, cvm: &str, greeting: &str) {
    let shown = person.up.api().get(&format!("/cvms/{cvm}")).await;
    let page = shown["endpoints"][0]["app"].as_str().unwrap().to_owned();
    eventually(&format!("the page says {greeting:?}"), PATIENCE, async || {
        get_text(&page).await.filter(|page| page.contains(greeting))
    })
    .await;
}

async fn lives(person: &Person<'_>, library: (&str, &str, &str), [first, second]: [&Path; 2]) {
    let (api, cvm) = (person.up.api(), library.1);
    let seen = does(person, library, "begin", first).await;
    let listed = seen["listed"].as_array().unwrap();
    assert!(listed.contains(&json!(cvm)), "{seen:#}");
    assert_eq!((&seen["created"], &seen["status"]), (&json!(cvm), &json!("running")), "{seen:#}");
    assert_eq!((&seen["containers"], &seen["logs"]), (&json!(2), &json!([200, 200])), "{seen:#}");
    assert!(seen["certificates"].as_u64().unwrap() > 0, "{seen:#}");
    says(person, cvm, "Hello from begin").await;

    let seen = does(person, library, "change", second).await;
    assert_eq!(seen["status"], "running", "{seen:#}");
    says(person, cvm, "Hello from the new change").await;
    let shown = api.get(&format!("/cvms/{cvm}")).await;
    assert_eq!(shown["resource"]["memory_in_gb"].as_f64(), Some(1.0), "{shown:#}");

    let seen = does(person, library, "end", second).await;
    assert_eq!(seen["siblings"], 2, "{seen:#}");
    api.gone(cvm, PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn published_libraries_lead_a_cvm_through_its_life() {
    let data_dir = DataDir::new();
    let up = Up::start(data_dir.path(), None).await;
    let image = paths::hello().join("hello.tar");
    let pushed = up.run(&["image", "push", image.to_str().unwrap()]).await;
    assert_eq!(pushed.code, 0, "{pushed:?}");
    let person = Person::logged_in(&up).await;
    let sealed =
        ["${GREETING}", "the new ${GREETING}"].map(|greeting| with_greeting(data_dir.path(), greeting));
    let sealed = sealed.each_ref().map(PathBuf::as_path);
    let [javascript, python] = LIBRARIES.map(|library| lives(&person, library, sealed));
    tokio::join!(javascript, python);
    // The libraries do not wait for the end of their replicas.
    let api = up.api();
    for cvm in api.get("/cvms").await.as_array().unwrap() {
        api.gone(cvm["vm_uuid"].as_str().unwrap(), PATIENCE).await;
    }
    assert_eq!(up.interrupt().await, 0);
}
