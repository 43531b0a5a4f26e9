//! Which routes are chosen.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::{Catalogue, Wish};
use crate::body::{Body, Constraints, MaxPrice};
use crate::config::{GatewayConfig, Pricing};
use crate::error::GatewayError;
use crate::lab::machine;

fn catalogue() -> Catalogue {
    let upstream = |name: &str, more: Value| {
        let mut upstream =
            json!({"name": name, "base_url": "https://up.example.com", "models": {"m": "m-1"}});
        upstream.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        upstream
    };
    let config = json!({
        "state_dir": "/tmp/x",
        "upstreams": [
            upstream("plain", json!({"stores_data": true, "models": {"m": "m-1", "n": "n-1"}})),
            upstream("zdr", json!({"zdr": true, "quantization": "fp8", "supported_parameters": ["tools"]})),
            upstream(
                "tee",
                json!({
                    "provider": "aci-service",
                    "priority": 1,
                    "accepted_subjects": [format!("app-id:0x{}", "ab".repeat(20))],
                    "accepted_boot_registers": [machine::boot(&machine::image("kernel"))],
                    "accepted_key_provider_ids": [machine::KEY_PROVIDER],
                    "accepted_kms_root_public_keys": ["02".repeat(33)],
                }),
            ),
        ],
        "models": [{"id": "m", "pricing": {"prompt": "0.000001", "completion": "0.000002"}}],
    });
    Catalogue::new(&GatewayConfig::parse(&serde_json::to_vec(&config).unwrap()).unwrap())
}

fn ask(
    catalogue: &Catalogue,
    model: &str,
    provider: &Value,
    parameters: &[&str],
    random: u64,
) -> Result<Vec<String>, GatewayError> {
    let body = serde_json::to_vec(&json!({"provider": provider})).unwrap();
    let constraints = Constraints::of(&Body::parse(&body).unwrap()).unwrap();
    let wish = Wish { model, constraints: &constraints, parameters, pricing: None, random };
    let routes = catalogue.candidates(&wish)?;
    Ok(routes.iter().map(|route| route.upstream.name.clone()).collect())
}

fn sorted(provider: &Value) -> Vec<String> {
    let mut names = ask(&catalogue(), "m", provider, &["tools"], 1).unwrap_or_default();
    names.sort();
    names
}

#[test]
fn constraints_filter() {
    for (provider, names) in [
        (json!({}), vec!["plain", "tee", "zdr"]),
        (json!({"zdr": true}), vec!["zdr"]),
        (json!({"only": ["plain", "tee"]}), vec!["plain", "tee"]),
        (json!({"ignore": ["plain"]}), vec!["tee", "zdr"]),
        (json!({"data_collection": "deny"}), vec!["tee", "zdr"]),
        (json!({"quantizations": ["fp8", "int4"]}), vec!["zdr"]),
        (json!({"aci_verified": true}), vec!["tee"]),
        (json!({"max_price": {"prompt": 1, "completion": 2.0}}), vec!["plain", "tee", "zdr"]),
        (json!({"max_price": {"prompt": 0.5}}), vec![]),
        (json!({"zdr": true, "aci_verified": true}), vec![]),
        (json!({"only": ["nobody"]}), vec![]),
    ] {
        assert_eq!(sorted(&provider), names, "{provider}");
    }
    let strict = json!({"require_parameters": true});
    assert_eq!(ask(&catalogue(), "m", &strict, &["tools"], 1).unwrap().len(), 3);
    assert_eq!(ask(&catalogue(), "m", &strict, &["tools", "seed"], 1).unwrap().len(), 2);
}

#[test]
fn an_unknown_model_is_another_error_than_a_model_without_a_route() {
    let catalogue = catalogue();
    let unknown = ask(&catalogue, "absent\n", &json!({}), &[], 1).unwrap_err();
    assert_eq!((unknown.status().as_u16(), unknown.kind.row().kind), (400, "model_not_found"));
    assert_eq!(unknown.message, "The model 'absent' does not exist");
    let no_route = ask(&catalogue, "n", &json!({"zdr": true}), &[], 1).unwrap_err();
    assert_eq!((no_route.status().as_u16(), no_route.kind.row().kind), (404, "not_found_error"));
    assert!(no_route.message.contains("zero data retention"));
}

#[test]
fn order_and_fallbacks_are_the_clients() {
    let names = |provider: Value| ask(&catalogue(), "m", &provider, &[], 3).unwrap();
    assert_eq!(names(json!({"order": ["tee", "zdr"]})), ["tee", "zdr", "plain"]);
    assert_eq!(names(json!({"order": ["tee"], "allow_fallbacks": false})), ["tee"]);
    assert_eq!(names(json!({"allow_fallbacks": false})).len(), 1);
    let nobody = json!({"order": ["nobody"], "allow_fallbacks": false});
    assert_eq!(ask(&catalogue(), "m", &nobody, &[], 3).unwrap_err().status(), 404);
}

#[test]
fn the_quickest_first() {
    let catalogue = catalogue();
    let routes = &catalogue.model("m").unwrap().routes;
    let second = Duration::from_secs(1);
    routes[1].speed.note(Duration::from_millis(20), 10, second);
    routes[2].speed.note(Duration::from_millis(10), 5, second);
    let names = |sort: &str| ask(&catalogue, "m", &json!({"sort": sort}), &[], 3).unwrap();
    assert_eq!(names("latency"), ["tee", "zdr", "plain"]);
    assert_eq!(names("throughput"), ["zdr", "tee", "plain"]);
    assert_eq!(names("price"), ["plain", "zdr", "tee"]);
}

#[test]
fn the_cheapest_first_and_none_beyond_a_limit() {
    let upstream = |name: &str, priority: u32, pricing: Value| json!({"name": name, "base_url": "http://up", "models": {"m": "m"}, "priority": priority, "pricing": pricing});
    let price = |prompt: &str, completion: &str| json!({"m": {"prompt": prompt, "completion": completion}});
    let config = json!({
        "state_dir": "/tmp/x",
        "upstreams": [
            upstream("dear", 0, price("0.000002", "0.000009")),
            upstream("usual-later", 2, json!({})),
            upstream("usual", 1, json!({})),
            upstream("cheap", 3, price("0.0000005", "0.000003")),
        ],
        "models": [{"id": "m", "pricing": {"prompt": "0.000001", "completion": "0.000004"}}],
    });
    let catalogue = Catalogue::new(&GatewayConfig::parse(&serde_json::to_vec(&config).unwrap()).unwrap());
    let names = |provider: Value| ask(&catalogue, "m", &provider, &[], 3).unwrap_or_default();
    assert_eq!(names(json!({"sort": "price"})), ["cheap", "usual", "usual-later", "dear"]);
    assert_eq!(names(json!({"sort": "price", "order": ["dear"]}))[..2], ["dear", "cheap"]);
    assert_eq!(names(json!({"max_price": {"prompt": 1}})), ["usual", "usual-later", "cheap"]);
    assert_eq!(names(json!({"max_price": {"prompt": 1, "completion": 3.5}})), ["cheap"]);
    assert_eq!(names(json!({"max_price": {"completion": 2.9}})), [""; 0]);
    // The one that is cheapest of all is asked, also where it is the only one to be.
    assert_eq!(names(json!({"sort": "price", "allow_fallbacks": false})), ["cheap"]);
    // Prices of a key hold everywhere, whatever a control plane says that they are.
    let body = Body::parse(br#"{"provider":{"sort":"price","max_price":{"prompt":0.1}}}"#).unwrap();
    let constraints = Constraints::of(&body).unwrap();
    let candidates = |own: &Pricing| {
        let pricing = Some(own);
        catalogue.candidates(&Wish {
            model: "m",
            constraints: &constraints,
            parameters: &[],
            pricing,
            random: 3,
        })
    };
    let most = Pricing { prompt: Decimal::MAX, completion: Decimal::MAX, ..Pricing::default() };
    assert_eq!(candidates(&most).unwrap_err().status(), 404);
    let any = Constraints { max_price: MaxPrice::default(), ..constraints.clone() };
    let dear = Wish { model: "m", constraints: &any, parameters: &[], pricing: Some(&most), random: 3 };
    assert_eq!(catalogue.candidates(&dear).unwrap().len(), 4);
    let routes = candidates(&Pricing::default()).unwrap();
    let names: Vec<&str> = routes.iter().map(|route| route.upstream.name.as_str()).collect();
    assert_eq!(names, ["dear", "usual", "usual-later", "cheap"]);
}

#[test]
fn routes_that_rest_come_last() {
    let catalogue = catalogue();
    let model = catalogue.model("m").unwrap();
    for _ in 0..5 {
        model.routes[0].breaker.failed(Duration::ZERO);
    }
    for random in 0..50 {
        let names = ask(&catalogue, "m", &json!({}), &[], random).unwrap();
        assert_eq!((names[0].as_str(), names[2].as_str()), ("zdr", "plain"));
    }
}

#[test]
fn shares_go_by_weight_within_a_priority() {
    let upstream = |name: &str, weight: u32, priority: u32| json!({"name": name, "base_url": "http://up", "models": {"m": "m"}, "weight": weight, "priority": priority});
    let config = json!({
        "state_dir": "/tmp/x",
        "upstreams": [upstream("one", 1, 0), upstream("three", 3, 0), upstream("later", 100, 1)],
    });
    let catalogue = Catalogue::new(&GatewayConfig::parse(&serde_json::to_vec(&config).unwrap()).unwrap());
    let mut first: HashMap<String, u32> = HashMap::new();
    for random in 0..8000_u64 {
        let names = ask(&catalogue, "m", &json!({}), &[], random).unwrap();
        assert_eq!(names[2], "later");
        *first.entry(names[0].clone()).or_default() += 1;
    }
    let three = f64::from(first["three"]) / 8000.0;
    assert!((0.72..0.78).contains(&three), "{three}");
}

proptest! {
    /// No route is named twice, none that does not fit, and the choice for one number is always the same.
    #[test]
    fn choices_are_permutations(random in any::<u64>()) {
        let catalogue = catalogue();
        let first = ask(&catalogue, "m", &json!({}), &[], random).unwrap();
        prop_assert_eq!(&first, &ask(&catalogue, "m", &json!({}), &[], random).unwrap());
        let mut names = first;
        names.sort();
        prop_assert_eq!(names, ["plain", "tee", "zdr"]);
    }
}
