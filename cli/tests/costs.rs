//! What things cost, and who pays.

use serde_json::{Value, json};

use crate::support::Fake;

const APP: &str = "0101010101010101010101010101010101010101";

fn fake() -> Fake {
    let record = json!({
        "instance_id": "6f3c1a52-8b1e-4c57-9d43-0a1b2c3d4e5f", "project_id": 1, "team_id": 1,
        "timestamp": "2026-11-22T05:30:00Z", "event_type": "usage", "cost": 0.029, "details": "{\"parts\":[]}",
        "usage_type": "compute", "billing_start": "2026-11-22T05:00:00Z", "billing_end": "2026-11-22T05:30:00Z",
        "duration_minutes": 30, "billing_key": "k", "billing_hour": "2026-11-22T05:00:00Z",
        "billing_day": "2026-11-22",
    });
    let credit = json!({ "id": cloister_management_api::CreditId(1), "kind": "payment", "amount": "50",
        "reason": "invoice 2026-11", "idempotency_key": "invoice-2026-11", "created_at": "2026-11-01T00:00:00Z" });
    let budget = json!({ "app_id": APP, "currency": "USD", "monthly_limit": "100", "alert_percent": 75,
        "stop": true, "month": "2026-11", "spent": "75.5", "state": "alert", "updated_at": "2026-11-01T00:00:00Z" });
    let part = |kind: &str, what: &str, hourly: &str| json!({ "usage_type": kind, "what": what, "hourly": hourly, "daily": "1", "monthly": "30" });
    Fake::start()
        .on(&format!("GET /apps/{APP}/usage"), 200, json!({"usage": [record], "total": 2, "total_cost": 0.1}))
        .on("GET /workspace/billing", 200, json!({
            "workspace_id": cloister_management_api::WorkspaceId(1), "currency": "USD", "is_post_paid": false,
            "balance": "-1.5", "granted_balance": "0", "outstanding_amount": "1.5", "credited": "50",
            "used": "51.5", "month": {"month": "2026-11", "cost": "20", "inference_cost": "2.5"}, "hourly_rate": "0.06078",
            "empty_at": "2026-11-22T05:00:00Z", "can_start": false, "credits": [credit],
        }))
        .on("GET /workspace/inference-usage", 200, json!({
            "usage": [{
                "hour": "2026-11-22T05:00:00Z", "model": "demo/model",
                "token_id": cloister_management_api::TokenId(1), "token_name": "chat", "requests": 12,
                "failed_attempts": 1, "prompt_tokens": 1200, "completion_tokens": 340, "cost": "0.00135",
            }],
            "total": 2, "total_cost": "0.0027", "currency": "USD",
        }))
        .on(&format!("GET /apps/{APP}/budget"), 200, budget.clone())
        .on(&format!("PUT /apps/{APP}/budget"), 200, budget)
        .on(&format!("DELETE /apps/{APP}/budget"), 204, Value::Null)
        .on("GET /instance-types", 200, json!({"result": [{"name": "cpu", "total": 1, "items": [{
            "id": "tdx.small", "name": "Small", "description": "2 vCPU, 4 GB memory", "vcpu": 2,
            "memory_mb": 4096, "hourly_rate": "0.058", "requires_gpu": false, "gpu_count": 0,
            "default_disk_size_gb": 20, "family": "cpu",
        }]}]}))
        .on("POST /cvms/estimate", 200, json!({
            "currency": "USD", "instance_type": "tdx.small", "vcpu": 2, "memory_mb": 4096, "disk_gb": 40,
            "gpu_count": 0, "count": 1, "hourly": "0.06356", "daily": "1.52544", "monthly": "46.3988",
            "monthly_while_stopped": "4.0588",
            "parts": [part("compute", "2 vCPU, 4096 MiB memory", "0.058"), part("storage", "40 GiB data disk", "0.00556")],
        }))
}

#[test]
fn what_things_cost_is_shown_in_words_and_tables() {
    let fake = fake();
    let lines = [
        format!("usage {APP} --from 2026-11-01"),
        "billing".to_owned(),
        "instance-types".to_owned(),
        "deploy --estimate -t tdx.small --disk 40G --node 3".to_owned(),
        format!("budget set 0x{APP} 100.00 --alert-percent 75 --stop"),
        format!("budget show {APP}"),
        format!("budget remove {APP}"),
        format!("budget set {APP} lots"),
        format!("usage {APP} --csv --limit 5"),
        "usage --inference --from 2026-11-01 --limit 1".to_owned(),
    ];
    insta::assert_snapshot!(lines.map(|line| fake.run(&line)).concat());
    let seen = fake.seen();
    let body = |line: &str| &seen.iter().find(|seen| seen.line.starts_with(line)).unwrap().body;
    assert_eq!(*body("POST /cvms/estimate"), json!({"instance_type": "tdx.small", "disk_size": 40}));
    assert_eq!(*body("PUT"), json!({"monthly_limit": "100", "alert_percent": 75, "stop": true}));
    assert!(seen.iter().all(|seen| !seen.line.contains("provision")), "nothing is deployed");
}

#[test]
fn programs_get_the_documents_and_spreadsheets_the_bytes() {
    let fake = fake();
    let shown = |line: &str| String::from_utf8(fake.command(line).output().unwrap().stdout).unwrap();
    for line in [
        "billing",
        "instance-types",
        "deploy --estimate",
        &format!("usage {APP}"),
        "usage --inference",
        &format!("budget show {APP}"),
    ] {
        let document: Value = serde_json::from_str(&shown(&format!("{line} --json"))).unwrap();
        assert!(document.is_object(), "{line}");
    }
    // Whatever the server sends, as it is.
    let bytes = shown(&format!("usage {APP} --csv"));
    assert!(bytes.contains("\"total_cost\":0.1"), "{bytes}");
    assert!(fake.seen().iter().any(|seen| seen.line.ends_with("usage?format=csv")));
}
