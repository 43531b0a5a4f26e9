//! What the operator reads of what was used.

use super::*;

#[tokio::test]
async fn the_operator_reads_what_was_used_page_by_page() {
    let bench = Bench::plain().await;
    bench.leave.add_permits(5);
    for _ in 0..5 {
        assert_eq!(reply(bench.chat("vendor/model")).await.status, StatusCode::OK);
    }
    let page = async |query: &str| bench.get(&format!("/v1/admin/usage{query}"), Some(TOKEN)).await.json();
    let whole = page("").await;
    assert_eq!((whole["rows"].as_array().unwrap().len(), &whole["next"]), (5, &json!(5)));
    let first = &whole["rows"][0];
    for (member, value) in [
        ("number", json!(0)),
        ("apiKeyHash", json!(KeyHash::of(KEY).to_string())),
        ("virtualKeyId", json!("test")),
        ("requestModel", json!("vendor/model")),
        ("status", json!(200)),
        ("promptTokens", json!(1)),
        ("completionTokens", json!(1)),
        ("cost", json!("0.00000150")),
    ] {
        assert_eq!(first[member], value, "{member}");
    }
    let some = page("?since=3&limit=1").await;
    assert_eq!(
        (&some["rows"][0], &some["rows"][1], &some["next"]),
        (&whole["rows"][3], &Value::Null, &json!(4))
    );
    assert_eq!(page("?since=5").await, json!({"rows": [], "next": 5}));
    assert_eq!(page("?set_aside=true").await, json!({"rows": [], "next": 0}));
    for query in ["?limit=0", "?limit=10001", "?limit=x", "?since=-1", "?other=1"] {
        let refused = bench.get(&format!("/v1/admin/usage{query}"), Some(TOKEN)).await;
        assert_eq!(refused.error().0, 400, "{query}");
    }
    for (key, status) in [(None, 401), (Some(KEY), 403)] {
        assert_eq!(bench.get("/v1/admin/usage", key).await.status.as_u16(), status);
    }
    // Without a control plane nobody is to be told.
    let figures = bench.get("/v1/metrics", Some(TOKEN)).await;
    assert!(!String::from_utf8_lossy(&figures.body).contains("untold"));
}
