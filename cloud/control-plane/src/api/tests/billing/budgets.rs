//! Budgets.

use super::*;
use crate::billing;
use crate::operations::OperationKind;

impl Installation {
    /// Everything that is due is looked at, by two control planes at the same time.
    async fn look_at_budgets(&self) {
        let (one, other) =
            tokio::join!(Box::pin(billing::round(&self.app)), Box::pin(billing::round(&self.app)));
        one.unwrap();
        other.unwrap();
    }

    /// Events about budgets so far: kind, share, and what was spent.
    async fn told(&self) -> Vec<(String, u64, String)> {
        let rows = self.app.store.events_after(self.tenant_workspace, 0, 1000).await.unwrap();
        let budgets = rows.into_iter().filter(|row| row.event_type.starts_with("app.budget."));
        let told = budgets.map(|row| {
            let data: Value = serde_json::from_str(&row.data).unwrap();
            let spent = data["spent"].as_str().unwrap().to_owned();
            (row.event_type, data["percent"].as_u64().unwrap(), spent)
        });
        told.collect()
    }
}

fn told(kind: &str, percent: u64, spent: &str) -> (String, u64, String) {
    (format!("app.budget.{kind}"), percent, spent.to_owned())
}

#[tokio::test]
async fn each_threshold_is_told_once_in_a_month() {
    on_both(|installation| async move {
        let cvm = installation.serving("tenant-app").await;
        let path = format!("/apps/{}/budget", cvm["app_id"].as_str().unwrap());
        assert_eq!(installation.get(&path).await.summary(), "404 plain");
        // 0.06078 an hour.
        let body = json!({"monthly_limit": "0.6078", "alert_percent": 50});
        let set = installation.call("PUT", &path, body.clone()).await.expect(200).json();
        assert_eq!(
            (&set["state"], &set["spent"], &set["month"]),
            (&json!("ok"), &json!("0"), &json!("2026-01"))
        );
        installation.pass(4 * HOUR + 59 * MINUTE);
        installation.look_at_budgets().await;
        assert!(installation.told().await.is_empty());
        installation.pass(MINUTE);
        installation.look_at_budgets().await;
        installation.look_at_budgets().await;
        let alert = told("alert", 50, "0.3039");
        assert_eq!(installation.told().await, std::slice::from_ref(&alert));
        // The same budget again is no other one.
        installation.call("PUT", &path, body).await.expect(200);
        installation.look_at_budgets().await;
        assert_eq!(installation.told().await.len(), 1);

        installation.pass(5 * HOUR);
        installation.look_at_budgets().await;
        let exceeded = told("exceeded", 100, "0.6078");
        assert_eq!(installation.told().await, [alert.clone(), exceeded.clone()]);
        assert_eq!(installation.get(&path).await.json()["state"], "exceeded");
        assert_eq!(installation.row(&cvm).await.status, CvmStatus::Running, "it only tells");
        installation.pass(24 * HOUR);
        installation.look_at_budgets().await;
        assert_eq!(installation.told().await.len(), 2);
        // A clock that steps back tells nothing again, and a month later all of it is new.
        installation.pass(-24 * HOUR);
        installation.look_at_budgets().await;
        assert_eq!(installation.told().await.len(), 2);
        installation.pass(20 * 24 * HOUR);
        installation.look_at_budgets().await;
        let events = installation.told().await;
        assert_eq!((events.len(), &events[2].0, &events[3].0), (4, &alert.0, &exceeded.0));

        installation.call("DELETE", &path, Value::Null).await.expect(204);
        assert_eq!(installation.call("DELETE", &path, Value::Null).await.summary(), "404 plain");
    })
    .await;
}

#[tokio::test]
async fn a_budget_that_stops_keeps_stopped() {
    on_both(|installation| async move {
        let cvm = installation.serving("tenant-app").await;
        let busy = installation.serving("tenant-busy").await;
        let path = format!("/apps/{}/budget", cvm["app_id"].as_str().unwrap());
        installation.call("PUT", &path, json!({"monthly_limit": "0.06", "stop": true})).await.expect(200);
        installation.pass(HOUR);
        installation.look_at_budgets().await;
        let row = installation.row(&cvm).await;
        assert_eq!(row.status, CvmStatus::ShuttingDown);
        let operation = row.operation_id.unwrap().parse().unwrap();
        let operation = installation.app.store.operation(operation).await.unwrap().unwrap();
        assert_eq!(operation.kind, OperationKind::Shutdown);
        assert_eq!(installation.row(&busy).await.status, CvmStatus::Running, "another application");
        installation.pass(2 * MINUTE);
        installation.look_at_budgets().await;
        // Its guest did not end: the next look takes the power away.
        installation.settle(&cvm, CvmStatus::Error).await;
        installation.pass(2 * MINUTE);
        installation.look_at_budgets().await;
        assert_eq!(installation.row(&cvm).await.status, CvmStatus::Stopping);
        installation.settle(&cvm, CvmStatus::Stopped).await;
        installation.pass(2 * MINUTE);
        installation.look_at_budgets().await;
        assert_eq!(installation.row(&cvm).await.status, CvmStatus::Stopped, "nothing is left to be done");

        let start = format!("/cvms/{}/start", cvm["id"]);
        assert_eq!(installation.call("POST", &start, json!({})).await.summary(), "400 ERR-04-003");
        let replicas = format!("/cvms/{}/replicas", cvm["id"]);
        assert_eq!(installation.call("POST", &replicas, json!({})).await.summary(), "400 ERR-04-003");
        installation.call("PUT", &path, json!({"monthly_limit": "50", "stop": true})).await.expect(200);
        installation.call("POST", &start, json!({})).await.expect(200);
        installation.settle(&cvm, CvmStatus::Running).await;
        installation.look_at_budgets().await;
        assert_eq!(installation.row(&cvm).await.status, CvmStatus::Running);
        assert_eq!(installation.told().await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn bad_budgets_are_refused() {
    let installation = Installation::new().await;
    let cvm = installation.create("tenant-app").await;
    let path = format!("/apps/{}/budget", cvm["app_id"].as_str().unwrap());
    for body in [
        json!({}),
        json!({"monthly_limit": "0"}),
        json!({"monthly_limit": "-5"}),
        json!({"monthly_limit": "lots"}),
        json!({"monthly_limit": "1000000000"}),
        json!({"monthly_limit": "5", "alert_percent": 0}),
        json!({"monthly_limit": "5", "alert_percent": 100}),
        json!({"monthly_limit": "5", "alert_percent": -1}),
        json!({"monthly_limit": "5", "stop": "maybe"}),
    ] {
        assert_eq!(installation.call("PUT", &path, body.clone()).await.summary(), "422 validation", "{body}");
    }
    assert_eq!(installation.get(&path).await.summary(), "404 plain", "nothing was set");
    let foreign = installation.as_admin("PUT", &path, json!({"monthly_limit": "5"})).await;
    assert_eq!(foreign.summary(), "404 plain");
}
