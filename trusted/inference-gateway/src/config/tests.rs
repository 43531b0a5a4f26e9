//! Good and bad files.

use serde_json::{Value, json};

use super::{GatewayConfig, ProviderKind, Timeouts};

fn good() -> Value {
    json!({
        "state_dir": "/tmp/state",
        "keys": [{"name": "ci", "sha256": "ab".repeat(32), "requests_per_minute": 60, "credit": "1.5"}],
        "upstreams": [{
            "name": "one",
            "base_url": "https://one.example.com",
            "models": {"vendor/model": "model-1"},
            "bearer_token": "s3cret",
            "zdr": true,
        }],
        "models": [{"id": "vendor/model", "pricing": {"prompt": "0.000001", "completion": "0.000002"}}],
    })
}

fn parse(value: &Value) -> Result<GatewayConfig, String> {
    GatewayConfig::parse(&serde_json::to_vec(value).unwrap()).map_err(|error| error.to_string())
}

#[test]
fn a_short_file_says_enough() {
    let config = parse(&good()).unwrap();
    assert_eq!(config.bind.to_string(), "127.0.0.1:8086");
    let upstream = &config.upstreams[0];
    assert_eq!((upstream.provider, upstream.weight), (ProviderKind::OpenaiCompatible, 1));
    assert_eq!(upstream.timeouts, Timeouts::default());
    assert_eq!(upstream.bearer_token.as_ref().unwrap().expose(), "s3cret");
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn broken_rules_are_named_by_their_place() {
    for (pointer, value, at) in [
        ("/upstreams", json!([]), "upstreams"),
        ("/keys/0/sha256", json!("AB".repeat(32)), "keys[0].sha256"),
        ("/keys/0/name", json!(""), "keys[0].name"),
        ("/keys/0/requests_per_minute", json!(0), "keys[0].requests_per_minute"),
        ("/keys/0/credit", json!("-1"), "keys[0].credit"),
        ("/upstreams/0/name", json!("a:b"), "upstreams[0].name"),
        ("/upstreams/0/name", json!("a b"), "upstreams[0].name"),
        ("/upstreams/0/base_url", json!("ftp://one.example.com"), "upstreams[0].base_url"),
        ("/upstreams/0/base_url", json!("https://user:pass@one.example.com"), "upstreams[0].base_url"),
        ("/upstreams/0/base_url", json!("https://one.example.com/?key=x"), "upstreams[0].base_url"),
        (
            "/upstreams/0/base_url",
            json!("https://one.example.com/v1"),
            "upstreams[0].base_url: is without /v1",
        ),
        (
            "/upstreams/0/base_url",
            json!("https://one.example.com/api/v1/"),
            "upstreams[0].base_url: is without /v1",
        ),
        ("/upstreams/0/models", json!({}), "upstreams[0].models"),
        ("/upstreams/0/bearer_token", json!("a\nb"), "upstreams[0].bearer_token"),
        ("/models/0/id", json!("other"), "models[0]: no upstream"),
        ("/models/0/pricing/prompt", json!("-0.1"), "models[0].pricing"),
    ] {
        let mut bad = good();
        *bad.pointer_mut(pointer).unwrap() = value;
        let error = parse(&bad).unwrap_err();
        assert!(error.starts_with(at), "{pointer}: {error}");
    }
    let mut bad = good();
    bad["metrics_bind"] = json!("127.0.0.1:8086");
    assert!(parse(&bad).unwrap_err().starts_with("metrics_bind: has to be another"));
    for (name, most) in [("busy_poll_us", 1000), ("read_on_ms", 600_000), ("capacity_retry_ms", 5000)] {
        let mut config = good();
        config[name] = json!(most);
        parse(&config).unwrap();
        config[name] = json!(most + 1);
        assert!(parse(&config).unwrap_err().starts_with(name), "{name}");
    }
    for (name, value, at) in [
        ("provider", json!("anthropic"), "upstreams[0].path"),
        ("path", json!("v1"), "upstreams[0].path"),
        ("path", json!(""), "upstreams[0].path"),
        ("path", json!("/v1/chat?key=x"), "upstreams[0].path"),
        ("path", json!("/v1/chat#x"), "upstreams[0].path"),
        ("path", json!("/v1 /chat"), "upstreams[0].path"),
        ("path", json!("/v1/../chat"), "upstreams[0].path"),
        ("path", json!("/v1/\u{e9}"), "upstreams[0].path"),
        ("weight", json!(0), "upstreams[0].weight"),
        ("stores_data", json!(true), "upstreams[0]: "),
        ("pricing", json!({"vendor/other": {"prompt": "0", "completion": "0"}}), "upstreams[0].pricing"),
        ("pricing", json!({"vendor/model": {"prompt": "0", "completion": "-0.1"}}), "upstreams[0].pricing"),
        (
            "pricing",
            json!({"vendor/model": {"prompt": "0.1"}}),
            "upstreams[0].pricing.vendor/model: missing field `completion`",
        ),
        ("timeouts", json!({"idle": 0}), "upstreams[0].timeouts"),
        ("timeouts", json!({"verification": 0}), "upstreams[0].timeouts"),
    ] {
        let mut bad = good();
        bad["upstreams"][0][name] = value;
        let error = parse(&bad).unwrap_err();
        assert!(error.starts_with(at), "{name}: {error}");
    }
}

#[test]
fn a_certificate_is_in_two_files_or_of_the_gateways_making() {
    for (tls, files) in [
        (json!({"certificate": "c", "key": "k"}), Some(true)),
        (json!({"self_signed": true}), Some(false)),
        (json!({"certificate": "c", "key": "k", "self_signed": true}), None),
        (json!({"certificate": "c", "self_signed": true}), None),
        (json!({"certificate": "c"}), None),
        (json!({"key": "k"}), None),
        (json!({"self_signed": false}), None),
        (json!({}), None),
    ] {
        let mut config = good();
        config["tls"] = tls.clone();
        let parsed = parse(&config);
        assert_eq!(
            parsed.as_ref().ok().map(|config| config.tls.as_ref().unwrap().files().is_some()),
            files,
            "{tls}"
        );
        assert!(files.is_some() || parsed.unwrap_err().starts_with("tls: needs"), "{tls}");
    }
}

#[test]
fn two_of_a_name_are_refused() {
    for list in ["keys", "upstreams", "models"] {
        let mut bad = good();
        let twice = good()[list][0].clone();
        bad[list].as_array_mut().unwrap().push(twice.clone());
        let name = twice["name"].as_str().or(twice["id"].as_str()).unwrap();
        let error = parse(&bad).unwrap_err();
        assert!(error.starts_with(list) && error.ends_with(&format!(": {name}")), "{list}: {error}");
    }
}

#[test]
fn what_is_seldom_meant_is_remarked() {
    type Edit = fn(&mut Value);
    let remarks = |change: Edit| {
        let mut config = good();
        config["agent_socket"] = json!("/run/agent.sock");
        change(&mut config);
        GatewayConfig::parse(&serde_json::to_vec(&config).unwrap()).unwrap().remarks()
    };
    assert!(remarks(|_| {}).is_empty());
    for loopback in ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost", "http://echo.localhost"] {
        let mut config = good();
        (config["agent_socket"], config["upstreams"][0]["base_url"]) =
            (json!("/run/agent.sock"), json!(loopback));
        assert!(parse(&config).unwrap().remarks().is_empty(), "{loopback}");
    }
    let changes: [(Edit, &str); 7] = [
        (
            |config| config["upstreams"][0]["base_url"] = json!("http://one.example.com"),
            "upstreams[0].base_url: ",
        ),
        (|config| config["keys"] = json!([]), "keys: there are none"),
        (|config| config["agent_socket"] = Value::Null, "agent_socket: there is none"),
        (|config| config["bind"] = json!("0.0.0.0:8086"), "bind: without tls"),
        (
            |config| config["keys"][0]["models"] = json!(["vendor/model", "vendor/none"]),
            "keys[0].models: nobody serves vendor/none",
        ),
        (|config| config["models"] = json!([]), "models: without a price, and so free: vendor/model"),
        (
            |config| config["models"][0]["pricing"] = json!({}),
            "models: without a price, and so free: vendor/model",
        ),
    ];
    for (change, said) in changes {
        let remarks = remarks(change);
        assert!(remarks.len() == 1 && remarks[0].starts_with(said), "{said}: {remarks:?}");
    }
    assert!(
        remarks(|config| {
            config["models"] = json!([]);
            config["upstreams"][0]["pricing"] =
                json!({"vendor/model": {"prompt": "0.1", "completion": "0.1"}});
        })
        .is_empty()
    );
}

#[test]
fn what_cannot_be_read_is_named_and_never_quoted() {
    const SECRET: &str = "s3cret, expected u32";
    for (pointer, value, said) in [
        (
            "/upstreams/0/weight",
            json!(SECRET),
            "upstreams[0].weight: has to be a whole number from 0 to 4294967295 (line 1, column ",
        ),
        (
            "/upstreams/0/weight",
            json!(-1),
            "upstreams[0].weight: has to be a whole number from 0 to 4294967295 (line",
        ),
        ("/upstreams/0/base_url", json!(SECRET), "upstreams[0].base_url: has to be an absolute URL, such as"),
        ("/upstreams/0/zdr", json!(SECRET), "upstreams[0].zdr: has to be a boolean ("),
        (
            "/upstreams/0/provider",
            json!(SECRET),
            "upstreams[0].provider: has to be one of `openai-compatible`, ",
        ),
        ("/upstreams/0/bearer_token", json!([SECRET]), "upstreams[0].bearer_token: has to be a string ("),
        (
            "/models/0/pricing/prompt",
            json!(0.5),
            "models[0].pricing.prompt: has to be a decimal number as text, ",
        ),
        ("/keys/0/credit", json!(25), "keys[0].credit: has to be a decimal number as text, "),
        ("/upstreams/0/weigth", json!(1), "upstreams[0].weigth: unknown field `weigth` (line"),
        ("/bnd", json!(1), "bnd: unknown field `bnd` (line"),
    ] {
        let mut bad = good();
        let (holder, name) = pointer.rsplit_once('/').unwrap();
        bad.pointer_mut(holder).unwrap()[name] = value;
        let error = parse(&bad).unwrap_err();
        assert!(error.starts_with(said) && !error.contains("s3cret"), "{pointer}: {error}");
    }
    let twice = good().to_string().replacen('{', r#"{"upstreams":[],"#, 1);
    let error = GatewayConfig::parse(twice.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("duplicate field `upstreams`"), "{error}");
    let mut bad = good();
    bad.as_object_mut().unwrap().remove("state_dir");
    assert!(parse(&bad).unwrap_err().starts_with("the configuration: missing field `state_dir`"));
    let more = format!("{} x", good());
    for (text, said) in [("{", "the text ends too early"), ("x", "not JSON"), (&more, "not JSON")] {
        let error = GatewayConfig::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("the configuration: {said} (line 1, column ")), "{text}: {error}");
    }
}

fn boot() -> Value {
    json!({"mrtd": "aa".repeat(48), "rtmr0": "bb".repeat(48), "rtmr1": "cc".repeat(48), "rtmr2": "dd".repeat(48)})
}

fn service() -> Value {
    let mut good = good();
    for (name, value) in [
        ("provider", json!("aci-service")),
        ("accepted_subjects", json!([format!("app-id:0x{}", "ab".repeat(20))])),
        ("accepted_boot_registers", json!([boot()])),
        ("accepted_key_provider_ids", json!(["3059"])),
        ("accepted_kms_root_public_keys", json!(["02".repeat(33)])),
    ] {
        good["upstreams"][0][name] = value;
    }
    good
}

#[test]
fn what_verifies_an_upstream_is_complete() {
    let config = parse(&service()).unwrap();
    assert_eq!(config.upstreams[0].verification_lifetime_s, 300);
    assert_eq!(config.tee_upstreams().count(), 1);
    for (name, value, at) in [
        ("base_url", json!("http://one.example.com"), "upstreams[0].base_url"),
        ("accepted_subjects", json!([]), "upstreams[0].accepted_subjects"),
        ("accepted_subjects", json!(["app-id:abcd"]), "upstreams[0].accepted_subjects"),
        ("accepted_image_digests", json!(["sha256:AB"]), "upstreams[0].accepted_image_digests"),
        ("accepted_compose_hashes", json!(["sha256:ab"]), "upstreams[0].accepted_compose_hashes"),
        ("accepted_boot_registers", json!([]), "upstreams[0].accepted_os_image_hashes"),
        ("accepted_boot_registers", json!([{}]), "upstreams[0].accepted_boot_registers"),
        ("accepted_os_image_hashes", json!(["ab"]), "upstreams[0].accepted_os_image_hashes"),
        ("accepted_key_provider_ids", json!([]), "upstreams[0].accepted_key_provider_ids"),
        ("accepted_key_provider_ids", json!(["305"]), "upstreams[0].accepted_key_provider_ids"),
        ("accepted_kms_root_public_keys", json!([]), "upstreams[0].accepted_kms_root_public_keys"),
        ("accepted_kms_root_public_keys", json!(["02"]), "upstreams[0].accepted_kms_root_public_keys"),
        ("verification_lifetime_s", json!(59), "upstreams[0].verification_lifetime_s"),
        ("verifier_command", json!(["/bin/verify"]), "upstreams[0].verifier_command"),
        ("provider", json!("openai-compatible"), "upstreams[0]: only"),
    ] {
        let mut bad = service();
        bad["upstreams"][0][name] = value;
        let error = parse(&bad).unwrap_err();
        assert!(error.starts_with(at), "{name}: {error}");
    }
}

/// A boot of which anything is left open is open to whoever builds a machine of his own.
#[test]
fn what_a_service_may_have_booted_is_said_in_full() {
    for register in ["mrtd", "rtmr0", "rtmr1", "rtmr2"] {
        let mut bad = service();
        bad["upstreams"][0]["accepted_boot_registers"][0].as_object_mut().unwrap().remove(register);
        let error = parse(&bad).unwrap_err();
        assert!(error.starts_with("upstreams[0].accepted_boot_registers"), "{register}: {error}");
    }
    // On hardware no image leads to registers.
    let mut images = service();
    images["upstreams"][0]["accepted_boot_registers"] = json!([]);
    images["upstreams"][0]["accepted_os_image_hashes"] = json!(["ab".repeat(32)]);
    assert!(parse(&images).unwrap_err().starts_with("upstreams[0].accepted_boot_registers"));
    images["trust"] =
        json!({"development_root": "/etc/root.pem", "development_pccs_url": "http://127.0.0.1:1/"});
    parse(&images).unwrap();
    images["upstreams"][0]["accepted_boot_registers"] = json!([boot()]);
    images.as_object_mut().unwrap().remove("trust");
    parse(&images).unwrap();
}

#[test]
fn a_verifying_program_is_named_by_its_path_and_can_be_enforced() {
    let mut config = good();
    config["upstreams"][0]["verifier_command"] = json!(["/bin/verify", "--strict"]);
    config["upstreams"][0]["verifier_scope"] = json!("model");
    config["upstreams"][0]["require_verified"] = json!(true);
    config["models"][0]["require_verified"] = json!(true);
    assert!(parse(&config).unwrap().upstreams[0].is_tee());
    for (pointer, value, at) in [
        ("/upstreams/0/verifier_command/0", json!("verify"), "upstreams[0].verifier_command"),
        ("/upstreams/0/base_url", json!("http://one.example.com"), "upstreams[0].verifier_command"),
        ("/upstreams/0/verifier_command", json!([]), "upstreams[0].verifier_options"),
    ] {
        let mut bad = config.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        let error = parse(&bad).unwrap_err();
        assert!(error.starts_with(at), "{pointer}: {error}");
    }
    let mut bad = good();
    bad["upstreams"][0]["require_verified"] = json!(true);
    assert!(parse(&bad).unwrap_err().starts_with("upstreams[0].require_verified"));
    let mut bad = good();
    bad["models"][0]["require_verified"] = json!(true);
    assert!(parse(&bad).unwrap_err().starts_with("models[0].require_verified"));
}

#[test]
fn what_prompts_begin_with_is_one_of_the_features_of_a_request() {
    let mut config = good();
    config.as_object_mut().unwrap().remove("keys");
    config["control"] =
        json!({"url": "https://c.example.com", "token_file": "t", "prefix_hash_secret_file": "s"});
    parse(&config).unwrap();
    config["control"]["send_request_features"] = json!(false);
    assert!(parse(&config).unwrap_err().starts_with("control.prefix_hash_secret_file"));
}

#[test]
fn what_is_answered_for_is_in_the_same_machine() {
    let mut direct = good();
    direct["direct_serving"] = json!(true);
    direct["agent_socket"] = json!("/var/run/dstack.sock");
    direct["models"][0]["require_verified"] = json!(true);
    direct["upstreams"][0]["require_verified"] = json!(true);
    for here in ["http://127.0.0.1:8000", "http://2130706433", "https://[::1]:8000/engine"] {
        direct["upstreams"][0]["base_url"] = json!(here);
        assert_eq!(parse(&direct).unwrap().tee_upstreams().count(), 1, "{here}");
    }
    for there in [
        "http://localhost:8000",
        "http://engine:8000",
        "https://one.example.com",
        "http://10.0.2.2",
        "http://127.0.0.11",
        "http://0.0.0.0",
        "http://[::ffff:127.0.0.1]",
    ] {
        let mut bad = direct.clone();
        bad["upstreams"][0]["base_url"] = json!(there);
        let error = parse(&bad).unwrap_err();
        assert!(error.starts_with("upstreams[0].base_url: has to be at 127.0.0.1"), "{there}: {error}");
    }
    let mut bad = direct.clone();
    bad["upstreams"][0]["base_url"] = json!("https://127.0.0.1:8000");
    bad["upstreams"][0]["verifier_command"] = json!(["/bin/verify"]);
    assert!(parse(&bad).unwrap_err().starts_with("upstreams[0]: may not be one that proves"));
    let mut bad = service();
    bad["direct_serving"] = json!(true);
    bad["agent_socket"] = json!("/var/run/dstack.sock");
    assert!(parse(&bad).unwrap_err().starts_with("upstreams[0]: may not be one that proves"));
    direct.as_object_mut().unwrap().remove("agent_socket");
    assert!(parse(&direct).unwrap_err().starts_with("direct_serving: needs agent_socket"));
}

#[test]
fn production_and_a_development_root_exclude_each_other() {
    let trust = |trust: Value| {
        let mut config = good();
        config["trust"] = trust;
        parse(&config)
    };
    let development =
        json!({"development_root": "/etc/root.pem", "development_pccs_url": "http://127.0.0.1:1/"});
    trust(development.clone()).unwrap();
    trust(json!({"production": true})).unwrap();
    let mut both = development;
    both["production"] = json!(true);
    assert!(trust(both).unwrap_err().starts_with("trust.development_root"));
    assert!(trust(json!({"development_root": "/etc/root.pem"})).unwrap_err().starts_with("trust: "));
}
