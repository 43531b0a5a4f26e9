//! The reference: the interface that public clients were written for. It is not part of the repository.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::Value;

use super::OURS;
use super::description::{Answer, Description};
use super::deviations::{DEVIATIONS, Deviation};

/// The reference with our deviations; `None`, said loudly, where it is not at hand.
pub(super) static REFERENCE: LazyLock<Option<Description>> =
    LazyLock::new(|| with_deviations(&DEVIATIONS.places));

/// The reference with these deviations.
pub(super) fn with_deviations<'a>(
    deviations: impl IntoIterator<Item = &'a Deviation>,
) -> Option<Description> {
    let mut document = load()?;
    for deviation in deviations {
        deviation.apply(&mut document);
    }
    DEVIATIONS.tolerate_failures(&mut document);
    Some(Description::new(document))
}

/// The document as it was published.
pub(super) fn load() -> Option<Value> {
    let given = std::env::var_os("CLOISTER_REFERENCE").map(PathBuf::from);
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference");
    let file = given.unwrap_or_else(beside).join("management-api.openapi.json");
    let Ok(text) = std::fs::read(&file) else {
        eprintln!(
            "SKIPPED: no reference document at {}; name its folder by CLOISTER_REFERENCE",
            file.display()
        );
        return None;
    };
    Some(serde_json::from_slice(&text).unwrap())
}

/// What the reference finds wrong with an answer.
pub(super) fn check(answer: &Answer) -> Vec<String> {
    REFERENCE.as_ref().map(|reference| against(reference, answer)).unwrap_or_default()
}

/// The same of a reference with other deviations.
pub(super) fn against(reference: &Description, answer: &Answer) -> Vec<String> {
    // Operations of ours only are described by us only.
    let theirs = reference.operation(&answer.method, &answer.path).map(|operation| shape(&operation.path));
    let ours = OURS.operation(&answer.method, &answer.path).map(|operation| shape(&operation.path));
    if theirs.is_none() || theirs != ours {
        return Vec::new();
    }
    let found = reference.violations(answer);
    found.into_iter().map(|violation| format!("reference: {violation}")).collect()
}

/// A path whose parameters have no names.
fn shape(path: &str) -> Vec<Option<&str>> {
    path.split('/').map(|segment| Some(segment).filter(|segment| !segment.starts_with('{'))).collect()
}

/// The part of a schema that describes answers in a version: the reference lists those of all versions.
pub(super) fn of_version(mut schema: Value, version: &str) -> Value {
    let is_dated = |schema: &Value| {
        let text = schema.to_string();
        text.contains("v20251028")
            || text.contains("v20260121")
            || text.contains("Hosted")
            || text.contains("CvmInfos")
    };
    let is_new = |schema: &Value| {
        let text = schema.to_string();
        text.contains("v20260121") || text.contains("CvmInfos")
    };
    if let Some(Value::Array(forms)) = schema.get_mut("anyOf") {
        forms.retain(|form| !is_dated(form) || is_new(form) == (version > "2025-10-28"));
    }
    schema
}
