//! Endpoint 18.

use std::collections::BTreeSet;

use super::super::report;
use super::*;

/// Some lives of an hour and more: one CVM runs on, one was stopped, one was deleted.
async fn lives(installation: &Installation) -> String {
    let cvm = installation.serving("tenant-app").await;
    installation.pass(17 * MINUTE + 1);
    let app = cvm["app_id"].as_str().unwrap().to_owned();
    let path = format!("/cvms/{}/replicas", cvm["id"]);
    let mut others = Vec::new();
    for _ in 0..2 {
        installation.report(&report(65536, false)).await;
        let replica = installation.call("POST", &path, json!({})).await.expect(200).json();
        installation.settle(&replica, CvmStatus::Running).await;
        installation.pass(31 * MINUTE + 999);
        others.push(replica);
    }
    installation.call("POST", &format!("/cvms/{}/stop", others[0]["id"]), json!({})).await.expect(200);
    installation.settle(&others[0], CvmStatus::Stopped).await;
    installation.pass(3 * HOUR + 7 * MINUTE);
    let row = installation.row(&others[1]).await;
    let mut change = installation.app.store.change().await.unwrap();
    change.delete_cvm(&row, installation.app.clock.now_ms()).await.unwrap();
    change.commit().await.unwrap();
    installation.pass(2 * HOUR + 13 * MINUTE);
    app
}

#[tokio::test]
async fn pages_make_up_the_total_and_the_table_says_the_same() {
    on_both(|installation| async move {
        let app = lives(&installation).await;
        let path = |query: &str| format!("/apps/{app}/usage?{query}");
        let whole = installation.get(&path("limit=5000")).await.expect(200).json();
        let records = whole["usage"].as_array().unwrap();
        assert_eq!(whole["total"], records.len());
        assert!(records.len() > 30, "{}", records.len());
        let sum: Decimal = records.iter().map(|record| decimal(&record["cost"])).sum();
        assert_eq!(sum, decimal(&whole["total_cost"]));
        let keys: BTreeSet<_> =
            records.iter().map(|record| record["billing_key"].as_str().unwrap()).collect();
        assert_eq!(keys.len(), records.len());
        let hours: Vec<_> = records.iter().map(|record| record["billing_hour"].as_str().unwrap()).collect();
        assert!(hours.is_sorted_by(|newer, older| newer >= older), "newest first: {hours:?}");
        let owners: BTreeSet<_> =
            records.iter().map(|record| record["instance_id"].as_str().unwrap()).collect();
        assert_eq!(owners.len(), 3, "deleted CVMs count");

        for limit in [1, 7, 500] {
            let (mut paged, mut offset) = (Vec::new(), 0);
            while offset < records.len() {
                let page = installation.get(&path(&format!("limit={limit}&offset={offset}"))).await;
                let page = page.expect(200).json();
                assert_eq!((&page["total"], &page["total_cost"]), (&whole["total"], &whole["total_cost"]));
                paged.extend(page["usage"].as_array().unwrap().clone());
                offset += limit;
            }
            assert_eq!(&paged, records, "pages of {limit}");
        }
        let beyond = installation.get(&path("offset=100000")).await.expect(200).json();
        assert_eq!((&beyond["usage"], &beyond["total"]), (&json!([]), &whole["total"]));

        let headers = [("x-api-key", installation.tenant.as_str()), ("accept", "text/csv")];
        let named = installation.call_with(&headers, "GET", &path("limit=1"), Value::Null).await.expect(200);
        let table = installation.get(&path("format=csv")).await.expect(200);
        assert_eq!(table.header("content-type"), "text/csv; charset=utf-8");
        assert_eq!(named.text, table.text, "all of it, whatever the page");
        let mut lines: Vec<_> = table.text.lines().collect();
        assert!(lines.remove(0).starts_with("instance_id,project_id,team_id,timestamp,"));
        assert_eq!(lines.len(), records.len());
        for record in records {
            let key = record["billing_key"].as_str().unwrap();
            let line = lines.iter().find(|line| line.contains(key)).unwrap();
            let details = record["details"].as_str().unwrap().replace('"', "\"\"");
            let fields = [
                record["instance_id"].as_str().unwrap(),
                &record["cost"].to_string(),
                &format!("\"{details}\""),
                record["billing_start"].as_str().unwrap(),
                &record["duration_minutes"].to_string(),
            ];
            for field in fields {
                assert!(line.contains(&format!("{field},")), "{field} in {line}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn windows_are_seven_days_unless_they_are_named() {
    on_both(|installation| async move {
        let cvm = installation.serving("tenant-app").await;
        let app = cvm["app_id"].as_str().unwrap().to_owned();
        installation.pass(20 * 24 * HOUR);
        let minutes = async |query: &str| {
            let path = format!("/apps/{app}/usage?limit=5000&{query}");
            let usage = installation.get(&path).await.expect(200).json();
            let records = usage["usage"].as_array().unwrap();
            let storage = records.iter().filter(|record| record["usage_type"] == "storage");
            storage.map(|record| record["duration_minutes"].as_i64().unwrap()).sum::<i64>()
        };
        let days = |days: i64| days * 24 * 60;
        // START is 2026-01-21T10:00:00Z.
        assert_eq!(minutes("").await, days(7));
        assert_eq!(minutes("start_date=2026-01-22").await, days(7));
        assert_eq!(minutes("start_date=2026-01-14T10:00:00Z").await, 0);
        assert_eq!(minutes("end_date=2026-01-22T10:00:00").await, days(1));
        assert_eq!(minutes("start_date=2026-01-01&end_date=2026-12-31").await, days(20));
        assert_eq!(minutes("start_date=2026-01-22T12:00:00%2B02:00&end_date=2026-01-22T10:30:00Z").await, 60);
        assert_eq!(minutes("start_date=2026-01-22T10:30:00Z&end_date=2026-01-22T10:30:00Z").await, 0);
        assert_eq!(minutes("start_date=2026-01-23&end_date=2026-01-23").await, 0);
        assert_eq!(minutes("start_date=2027-01-01").await, 0, "nothing is used in the future");
    })
    .await;
}

#[tokio::test]
async fn a_record_is_the_same_in_every_window() {
    on_both(|installation| async move {
        let cvm = installation.serving("tenant-app").await;
        let app = cvm["app_id"].as_str().unwrap().to_owned();
        installation.pass(9 * 24 * HOUR + 41 * MINUTE);
        let records = async |query: &str| {
            let path = format!("/apps/{app}/usage?limit=5000&{query}");
            installation.get(&path).await.expect(200).json()["usage"].as_array().unwrap().clone()
        };
        let all = records("start_date=2026-01-01&end_date=2026-12-31").await;
        for query in ["", "start_date=2026-01-22T10:15:00Z&end_date=2026-01-22T12:45:00Z"] {
            let some = records(query).await;
            assert!(some.len() > 4 && some.len() < all.len(), "{query}: {}", some.len());
            assert!(some.iter().all(|record| all.contains(record)), "{query}");
        }
    })
    .await;
}

#[tokio::test]
async fn bad_input_is_refused_in_its_form() {
    let installation = Installation::new().await;
    let cvm = installation.create("tenant-app").await;
    let app = cvm["app_id"].as_str().unwrap();
    for (query, expected) in [
        ("limit=0", "422 validation"),
        ("limit=5001", "422 validation"),
        ("limit=-1", "422 validation"),
        ("limit=ten", "422 validation"),
        ("limit=", "422 validation"),
        ("limit=99999999999999999999", "422 validation"),
        ("offset=-1", "422 validation"),
        ("offset=4294967296", "422 validation"),
        ("offset=1.5", "422 validation"),
        ("start_date=yesterday", "422 validation"),
        ("start_date=2026-13-01", "422 validation"),
        ("end_date=1795323600", "422 validation"),
        ("format=xml", "422 validation"),
        ("start_date=2025-01-01&end_date=2026-12-31", "422 validation"),
        ("start_date=-009999-01-01&end_date=9999-12-30", "422 validation"),
        ("start_date=2026-02-01&end_date=2026-01-01", "400 plain"),
        ("start_date=2026-02-01&end_date=2026-01-01&format=csv", "400 plain"),
        ("limit=5000&offset=4294967295", "200"),
        ("unknown=1", "200"),
    ] {
        let answer = installation.get(&format!("/apps/{app}/usage?{query}")).await;
        assert_eq!(answer.summary(), expected, "{query}");
    }
    for app in ["0000000000000000000000000000000000000000", "x", "0x"] {
        assert_eq!(installation.get(&format!("/apps/{app}/usage")).await.summary(), "404 plain");
    }
    let foreign = installation.as_admin("GET", &format!("/apps/{app}/usage"), Value::Null).await;
    assert_eq!(foreign.summary(), "404 plain", "also for administrators of another workspace");
}

#[tokio::test]
async fn a_workspace_reads_few_tables_at_a_time() {
    let installation = Installation::new().await;
    let cvm = installation.create("tenant-app").await;
    let path = format!("/apps/{}/usage?format=csv", cvm["app_id"].as_str().unwrap());
    let workspace = installation.tenant_workspace;
    let held: Vec<_> = (0..2).map(|_| installation.api.usage_tables.take(workspace).unwrap()).collect();
    let refused = installation.get(&path).await;
    assert_eq!(refused.summary(), "429 plain");
    assert!(!refused.header("retry-after").is_empty());
    drop(held);
    for _ in 0..5 {
        installation.get(&path).await.expect(200);
    }
}
