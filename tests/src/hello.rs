//! The example application with what tests want of it.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::paths;

/// What the compose file says where the greeting comes from.
const GREETING: &str = "${DSTACK_APP_NAME:-hello}";
const SMALL_SERVICE: &str = "command: [\"api\"]";
/// Port of the small service.
pub const SMALL_PORT: u16 = 8080;

/// Writes the example's compose file with a greeting of its own, and with its small service reachable from
/// outside: a page that costs a guest without hardware virtualisation next to nothing.
///
/// # Panics
/// If the example is not what it was.
#[must_use]
pub fn with_greeting(dir: &Path, greeting: &str) -> PathBuf {
    let text = std::fs::read_to_string(paths::hello().join("compose.yaml")).expect("the example");
    assert!(text.contains(GREETING) && text.contains(SMALL_SERVICE), "the example changed");
    let ports = format!("{SMALL_SERVICE}\n    ports: [\"{SMALL_PORT}:{SMALL_PORT}\"]");
    let text = text.replacen(GREETING, greeting, 1).replacen(SMALL_SERVICE, &ports, 1);
    let file = dir.join(format!("{greeting}.yaml"));
    std::fs::write(&file, text).expect("room for a file");
    file
}

/// URL of the page of a CVM's application, and that of its small page, from the CVM's document.
///
/// # Panics
/// If the document shows none.
#[must_use]
pub fn urls(cvm: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let (app_id, page) = (text(&cvm["app_id"]), text(&cvm["endpoints"][0]["app"]));
    let small = page.replacen(&app_id, &format!("{app_id}-{SMALL_PORT}"), 1);
    let small = format!("{}/line.txt", small.trim_end_matches('/'));
    (page, small)
}
