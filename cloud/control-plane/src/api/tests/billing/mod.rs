//! Usage, credit, budgets and estimates over HTTP.

mod budgets;
mod credit;
mod usage;

use cloister_metering::PriceList;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::{Answer, Installation, START};
use crate::clock::Clock;
use crate::operations::CvmStatus;
use crate::store::tests::{embedded, postgres};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const PRICES: &[u8] = include_bytes!("../../../../../../examples/prices.json");

/// Installations that charge, on both engines.
async fn on_both<F: Future<Output = ()>>(test: impl Fn(Installation) -> F) {
    let prices = || PriceList::parse(PRICES).unwrap();
    let clock = || Clock::manual(START.parse().unwrap());
    let data = tempfile::tempdir().unwrap();
    let store = embedded(data.path()).await;
    test(Installation::on(store.with_prices(prices()), clock(), data).await).await;
    let store = postgres().await.with_prices(prices());
    test(Installation::on(store.clone(), clock(), tempfile::tempdir().unwrap()).await).await;
    store.close().await;
}

impl Installation {
    /// A CVM of the tenant that runs.
    async fn serving(&self, name: &str) -> Value {
        let cvm = self.create(name).await;
        self.settle(&cvm, CvmStatus::Running).await;
        cvm
    }

    async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, Value::Null).await
    }

    async fn as_admin(&self, method: &str, path: &str, body: Value) -> Answer {
        self.call_with(&[("x-api-key", &self.admin)], method, path, body).await
    }

    fn pass(&self, ms: i64) {
        self.app.clock.advance_ms(ms);
    }
}

fn decimal(text: &Value) -> Decimal {
    let text = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
    text.parse().unwrap()
}

#[tokio::test]
async fn prices_are_shown_wherever_sizes_are() {
    on_both(|installation| async move {
        let sizes = installation.get("/instance-types/cpu").await.expect(200).json();
        assert_eq!(sizes["items"][0]["hourly_rate"], "0.058");
        let sizes = installation.get("/instance-types/gpu").await.expect(200).json();
        assert_eq!(sizes["items"][1]["hourly_rate"], "7", "with its GPUs");
        let cvm = installation.serving("tenant-app").await;
        let shown = installation.get(&format!("/cvms/{}", cvm["id"])).await.expect(200).json();
        assert_eq!(shown["hourly_rate"], json!({"total": "0.06078", "compute": "0.058", "disk": "0.00278"}));
        assert_eq!(shown["resource"]["compute_billing_price"], "0.058");
        assert_eq!(shown["resource"]["billing_period"], "hourly");
    })
    .await;
}

#[tokio::test]
async fn an_estimate_is_what_it_costs_then() {
    on_both(|installation| async move {
        let estimate = async |body: Value| installation.call("POST", "/cvms/estimate", body).await;
        let one = estimate(json!({"instance_type": "tdx.small"})).await.expect(200).json();
        let cvm = installation.serving("tenant-app").await;
        installation.pass(HOUR);
        let path = format!("/apps/{}/usage", cvm["app_id"].as_str().unwrap());
        let usage = installation.get(&path).await.expect(200).json();
        assert_eq!(decimal(&usage["total_cost"]), decimal(&one["hourly"]));
        assert_eq!(decimal(&one["daily"]), decimal(&one["hourly"]) * Decimal::from(24));
        assert_eq!(one["monthly"], "44.3694");
        assert_eq!(one["monthly_while_stopped"], "2.0294");
        let parts = one["parts"].as_array().unwrap();
        let sum: Decimal = parts.iter().map(|part| decimal(&part["monthly"])).sum();
        assert_eq!(sum, decimal(&one["monthly"]));

        let three = estimate(json!({"vcpu": 3, "memory": 1000, "disk_size": 100, "count": 3})).await;
        let three = three.expect(200).json();
        assert_eq!((&three["instance_type"], &three["hourly"]), (&Value::Null, &json!("0.234883593")));
        let gpus = estimate(json!({"gpus": {"gpus": [], "count": 2, "product_name": "10DE:2901"}})).await;
        assert_eq!(gpus.expect(200).json()["parts"][1]["hourly"], "7.6");
        let size = estimate(json!({"instance_type": "h200.small"})).await.expect(200).json();
        assert_eq!(size["parts"][1]["hourly"], "3.5");
        for (body, expected) in [
            (json!({"instance_type": "nope"}), "400 ERR-02-001"),
            (json!({"vcpu": 0}), "400 ERR-02-008"),
            (json!({"disk_size": 1}), "400 ERR-02-008"),
            (json!({"gpus": {"gpus": [], "attach_mode": "all"}}), "400 ERR-02-008"),
            (json!({"count": 0}), "422 validation"),
            (json!({"count": 1001}), "422 validation"),
            (json!({"vcpu": "x"}), "422 validation"),
            (Value::Null, "422 validation"),
        ] {
            assert_eq!(estimate(body.clone()).await.summary(), expected, "{body}");
        }
    })
    .await;
}
