//! Credit, and what is not started without.

use super::*;

async fn prepaid(installation: &Installation) {
    let path = "/admin/workspaces/tenant/billing";
    let shown = installation.as_admin("PUT", path, json!({"prepaid": true})).await.expect(200).json();
    assert_eq!((&shown["is_post_paid"], &shown["can_start"]), (&json!(false), &json!(false)));
}

fn credit(amount: &str, key: &str) -> Value {
    json!({"amount": amount, "reason": "paid by wire", "idempotency_key": key})
}

const CREDITS: &str = "/admin/workspaces/tenant/credits";

#[tokio::test]
async fn a_prepaid_workspace_starts_nothing_without_credit() {
    on_both(|installation| async move {
        let old = installation.serving("tenant-old").await;
        let off = installation.serving("tenant-off").await;
        installation.call("POST", &format!("/cvms/{}/stop", off["id"]), json!({})).await.expect(200);
        installation.settle(&off, CvmStatus::Stopped).await;
        prepaid(&installation).await;

        let provision = installation.provision("tenant-new").await;
        let create = json!({"app_id": provision["app_id"], "compose_hash": provision["compose_hash"]});
        let off_start = format!("/cvms/{}/start", off["id"]);
        let old_path = |action: &str| format!("/cvms/{}/{action}", old["id"]);
        let resize = json!({"vcpu": 3});
        let attempts = [
            ("POST", "/cvms".to_owned(), create.clone()),
            ("POST", off_start.clone(), json!({})),
            ("POST", old_path("restart"), json!({})),
            ("POST", old_path("replicas"), json!({})),
            ("PATCH", old_path("resources"), resize.clone()),
        ];
        for (method, path, body) in &attempts {
            let refused = installation.call(method, path, body.clone()).await;
            assert_eq!(refused.summary(), "400 ERR-04-001", "{path}");
        }
        // What runs goes on, what is off may be changed and everything may be stopped.
        assert_eq!(installation.row(&old).await.status, CvmStatus::Running);
        let path = format!("/cvms/{}/resources", off["id"]);
        installation.call("PATCH", &path, resize).await.expect(202);
        installation.settle(&off, CvmStatus::Stopped).await;

        installation.as_admin("POST", CREDITS, credit("0.000000001", "a")).await.expect(201);
        installation.call("POST", "/cvms", create.clone()).await.expect(200);
        // The same request again finds the CVM, whatever is left.
        installation.pass(HOUR);
        assert_eq!(installation.call("POST", &off_start, json!({})).await.summary(), "400 ERR-04-001");
        installation.call("POST", "/cvms", create).await.expect(200);
        installation.call("POST", &old_path("shutdown"), json!({})).await.expect(200);
        installation.as_admin("POST", CREDITS, credit("10", "b")).await.expect(201);
        installation.call("POST", &off_start, json!({})).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn credit_is_written_once_and_what_was_used_is_taken_from_it() {
    on_both(|installation| async move {
        prepaid(&installation).await;
        let first = installation.as_admin("POST", CREDITS, credit("1.5", "invoice-1")).await.expect(201);
        let again = installation.as_admin("POST", CREDITS, credit("1.50", "invoice-1")).await.expect(200);
        assert_eq!(first.json(), again.json());
        let other = installation.as_admin("POST", CREDITS, credit("2", "invoice-1")).await;
        assert_eq!(other.summary(), "400 plain");
        let grant = json!({"amount": 0.5, "kind": "grant", "reason": "welcome", "idempotency_key": "grant-1"});
        installation.as_admin("POST", CREDITS, grant).await.expect(201);
        let fix = json!({"amount": "-0.25", "kind": "correction", "reason": "typo", "idempotency_key": "fix"});
        installation.as_admin("POST", CREDITS, fix).await.expect(201);

        installation.serving("tenant-app").await;
        let billing = installation.get("/workspace/billing").await.expect(200).json();
        assert_eq!((&billing["balance"], &billing["granted_balance"]), (&json!("1.75"), &json!("0.5")));
        assert_eq!((&billing["hourly_rate"], &billing["used"]), (&json!("0.06078"), &json!("0")));
        // 1.75 / 0.06078 hours later.
        assert_eq!(billing["empty_at"], "2026-01-22T14:47:32.517Z");
        installation.pass(10 * HOUR);
        let billing = installation.get("/workspace/billing").await.expect(200).json();
        assert_eq!((&billing["balance"], &billing["granted_balance"]), (&json!("1.1422"), &json!("0")));
        assert_eq!((&billing["used"], &billing["month"]["cost"]), (&json!("0.6078"), &json!("0.6078")));
        assert_eq!(billing["empty_at"], "2026-01-22T14:47:32.517Z", "it is a forecast that holds");
        assert_eq!(billing["credits"].as_array().unwrap().len(), 3);
        assert_eq!(billing["credits"][2], first.json(), "newest first");

        installation.pass(30 * HOUR);
        let billing = installation.get("/workspace/billing").await.expect(200).json();
        assert_eq!((&billing["balance"], &billing["outstanding_amount"]), (&json!("-0.6812"), &json!("0.6812")));
        assert_eq!((&billing["can_start"], &billing["month"]["month"]), (&json!(false), &json!("2026-01")));
        let me = installation.get("/auth/me").await.expect(200).json();
        assert_eq!(
            me["credits"],
            json!({
                "balance": "-0.6812", "granted_balance": "0", "is_post_paid": false, "outstanding_amount": "0.6812",
            })
        );
        let flat = installation.get_in("2025-10-28", "/auth/me").await.expect(200).json();
        assert_eq!((&flat["credits"], &flat["granted_credits"]), (&json!(-0.6812), &json!(0.0)));
        let seen = installation.as_admin("GET", "/admin/workspaces/tenant/billing", Value::Null).await;
        assert_eq!(seen.expect(200).json(), billing);
    })
    .await;
}

#[tokio::test]
async fn whoever_is_no_administrator_credits_nobody_and_bad_credits_are_refused() {
    let installation = Installation::new().await;
    for (method, path, body) in [
        ("POST", CREDITS, credit("5", "a")),
        ("PUT", "/admin/workspaces/tenant/billing", json!({"prepaid": false})),
        ("GET", "/admin/workspaces/tenant/billing", Value::Null),
    ] {
        assert_eq!(installation.call(method, path, body).await.summary(), "403 plain", "{method} {path}");
    }
    let with = |name: &str, value: Value| {
        let mut body = credit("5", "a");
        body[name] = value;
        body
    };
    for body in [
        with("amount", json!("0")),
        with("amount", json!("-1")),
        with("amount", json!("1000000000")),
        with("amount", json!("0.0000000001")),
        with("amount", json!("five")),
        with("amount", json!(1e20)),
        with("kind", json!("gift")),
        with("reason", json!("")),
        with("reason", json!("x".repeat(501))),
        with("reason", json!("a\u{0}b")),
        with("idempotency_key", json!(" ")),
        with("idempotency_key", json!("x".repeat(101))),
        json!({"amount": "5"}),
    ] {
        assert_eq!(
            installation.as_admin("POST", CREDITS, body.clone()).await.summary(),
            "422 validation",
            "{body}"
        );
    }
    let billing = installation.get("/workspace/billing").await.expect(200).json();
    assert_eq!((&billing["credited"], &billing["is_post_paid"]), (&json!("0"), &json!(true)));
    let missing = installation.as_admin("POST", "/admin/workspaces/nobody/credits", credit("5", "a")).await;
    assert_eq!(missing.summary(), "404 plain");
    // By its id and by its number, too.
    let id = billing["workspace_id"].as_str().unwrap();
    for name in [id.to_owned(), installation.tenant_workspace.to_string()] {
        let path = format!("/admin/workspaces/{name}/billing");
        installation.as_admin("GET", &path, Value::Null).await.expect(200);
    }
}
