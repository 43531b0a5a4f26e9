//! Records of what the table of all operations has no successful answer of.

use super::*;

type Told = (String, Option<String>, Option<String>);

impl Installation {
    /// Operations of the records about something, oldest first, with both hashes.
    async fn audit_told(&self, chain: i64, kind: &str, id: &str) -> Vec<Told> {
        let all = self.audit_records(chain).await.into_iter();
        let about = all.filter(|record| record.target.kind == kind && record.target.id == id);
        about.map(|record| (record.operation, record.before, record.after)).collect()
    }

    async fn as_operator(&self, method: &str, path: &str, body: Value) -> Answer {
        self.call_with(&[("x-api-key", &self.admin)], method, path, body).await
    }
}

fn operations(told: &[Told]) -> Vec<&str> {
    told.iter().map(|(operation, ..)| operation.as_str()).collect()
}

#[tokio::test]
async fn a_webhook_has_records_from_its_first_to_its_last_day() {
    let installation = Installation::new().await;
    let new = json!({"url": "https://hooks.example.org/", "events": ["cvm.created"]});
    let made = installation.call("POST", "/workspace/webhooks", new).await.expect(201).json();
    let id = made["id"].as_str().unwrap();
    let call = async |method: &str, below: &str, body: Value, status: u16| {
        installation.call(method, &format!("/workspace/webhooks/{id}{below}"), body).await.expect(status)
    };
    call("PUT", "", json!({"name": "of the team"}), 200).await;
    let secret = call("POST", "/rotate-secret", Value::Null, 200).await.json()["secret"].clone();
    let shown = call("POST", "/reveal-secret", Value::Null, 200).await.json();
    assert_eq!(shown["secret"], secret);
    let sent = call("POST", "/test", Value::Null, 200).await.json();
    let again = format!("/deliveries/{}/resend", sent["event_id"].as_str().unwrap());
    call("POST", &again, Value::Null, 200).await;
    call("DELETE", "", Value::Null, 204).await;
    call("DELETE", "", Value::Null, 404).await;
    let told = installation.audit_told(installation.tenant_workspace, "webhook", id).await;
    assert_eq!(
        operations(&told),
        [
            "create_webhook",
            "update_webhook",
            "rotate_webhook_secret",
            "reveal_webhook_secret",
            "test_webhook",
            "resend_webhook_delivery",
            "delete_webhook"
        ]
    );
    let changes: Vec<_> = [0, 1, 2, 6].map(|place: usize| told[place].clone()).into();
    assert_eq!((&changes[0].1, &changes[3].2), (&None, &None));
    for (earlier, later) in changes.iter().zip(changes.iter().skip(1)) {
        assert!(earlier.2.is_some() && earlier.2 == later.1 && later.1 != later.2, "{}", later.0);
    }
    // Nothing in the log leads to the secret.
    let secret = secret.as_str().unwrap();
    assert!(installation.audit_lines().await.iter().all(|line| !line.contains(secret)));
}

#[tokio::test]
async fn what_is_so_already_leaves_no_record() {
    let installation = Installation::new().await;
    let billing = "/admin/workspaces/tenant/billing";
    let credit = json!({"amount": "5", "reason": "paid by wire", "idempotency_key": "a"});
    for (prepaid, status) in [(true, 201), (true, 200)] {
        installation.as_operator("PUT", billing, json!({"prepaid": prepaid})).await.expect(200);
        let answer =
            installation.as_operator("POST", "/admin/workspaces/tenant/credits", credit.clone()).await;
        answer.expect(status);
        let on = json!({"maintenance": true});
        installation.as_operator("POST", "/admin/nodes/local/maintenance", on).await.expect(200);
    }
    let id = cloister_management_api::WorkspaceId(installation.tenant_workspace).to_string();
    let told = installation.audit_told(INSTALLATION, "billing", &id).await;
    assert_eq!(operations(&told), ["admin_set_billing", "admin_credit"]);
    assert!(told[0].2.is_some() && told[0].2 == told[1].1 && told[1].1 != told[1].2);

    installation.as_operator("POST", "/admin/nodes/local/drain", Value::Null).await.expect(202);
    for _ in 0..2 {
        installation.as_operator("DELETE", "/admin/nodes/local/drain", Value::Null).await.expect(200);
    }
    let told = installation.audit_told(INSTALLATION, "node", "local").await;
    let expected = ["admin_set_node_maintenance", "admin_drain_node", "admin_end_node_drain"];
    assert_eq!(operations(&told), expected);
    assert_eq!((&told[0].2, &told[1].2), (&told[1].1, &told[2].1));
}
