//! What a CVM used, as its history and the test's own clock say: minutes between the earliest and the latest moment
//! at which each stretch can have begun and ended.

use std::collections::BTreeSet;

use cloister_tests::api::Api;
use cloister_tests::command::Up;
use jiff::Timestamp;
use serde_json::Value;

/// Not before, and not after.
pub(crate) type Moment = (Timestamp, Timestamp);

/// When something happened that the test did between two looks at the clock.
#[expect(clippy::disallowed_methods, reason = "the clock of the processes under test is the machine's")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// Each stretch in which a CVM served, from its history; `begins` and `ends` are those that no operation brought.
pub(crate) async fn served(up: &Up, name: &str, begins: &[Moment], ends: &[Moment]) -> Vec<(Moment, Moment)> {
    let history = up.run(&["--json", "operations", "list", name]).await.json();
    let (mut began, mut ended) = (begins.to_vec(), ends.to_vec());
    for operation in history["items"].as_array().unwrap() {
        let time = |value: &Value| value.as_str().unwrap().parse::<Timestamp>().unwrap();
        let (started, completed) = (time(&operation["started_at"]), time(&operation["completed_at"]));
        match operation["operation_type"].as_str().unwrap() {
            // Its creation counts when it has succeeded.
            "create" => began.push((completed, completed)),
            "shutdown" | "power_off" => ended.push((started, completed)),
            _ => {
                let events = operation["events"].as_array().unwrap();
                let up = events
                    .iter()
                    .find(|event| event["event_type"].as_str().unwrap().ends_with(".await_boot"));
                began.extend(up.map(|event| (time(&event["timestamp"]), completed)));
            }
        }
    }
    began.sort_unstable();
    ended.sort_unstable();
    assert_eq!(began.len(), ended.len(), "{history}");
    began.into_iter().zip(ended).collect()
}

/// The usage of an application is what its CVM used, to the minute, and some of its disk: a minute has to end while it is there.
pub(crate) async fn check(api: &Api, app_id: &str, served: &[(Moment, Moment)], existed: (Moment, Moment)) {
    let usage = api.get(&format!("/apps/{app_id}/usage?limit=5000")).await;
    let records = usage["usage"].as_array().unwrap();
    assert_eq!(usage["total"], records.len());
    let keys: BTreeSet<_> = records.iter().map(|record| record["billing_key"].as_str().unwrap()).collect();
    assert_eq!(keys.len(), records.len());
    for (usage_type, stretches) in [("compute", served), ("storage", std::slice::from_ref(&existed))] {
        let own = records.iter().filter(|record| record["usage_type"] == usage_type);
        let minutes: i64 = own.map(|record| record["duration_minutes"].as_i64().unwrap()).sum();
        let minute = |at: Timestamp| at.as_second().div_euclid(60);
        let least: i64 =
            stretches.iter().map(|(began, ended)| (minute(ended.0) - minute(began.1)).max(0)).sum();
        let most: i64 = stretches.iter().map(|(began, ended)| minute(ended.1) - minute(began.0)).sum();
        assert!((least..=most).contains(&minutes), "{usage_type}: {minutes} of {stretches:?}");
    }
    assert!(records.iter().any(|record| record["usage_type"] == "storage"), "{usage}");
}
