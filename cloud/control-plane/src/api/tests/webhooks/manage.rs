//! Making, showing, changing and deleting webhooks; their secrets; what is refused.

use serde_json::{Value, json};

use super::super::Installation;
use super::{BASE, INSIDE};
use crate::clock::Clock;

const HOOK: &str = "https://hooks.example.org/cloister";

async fn life(installation: Installation) {
    let made = installation.webhook(HOOK, &["cvm.stopped", "cvm.created", "cvm.stopped"]).await;
    let secret = made["secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_") && secret.len() == 50, "{secret}");
    assert_eq!(made["events"], json!(["cvm.stopped", "cvm.created"]));
    assert_eq!((&made["url"], &made["enabled"], &made["name"]), (&json!(HOOK), &json!(true), &Value::Null));

    let masked = format!("whsec_****…{}", &secret[secret.len() - 4..]);
    let shown = installation.of_webhook("GET", &made, "", Value::Null).await.expect(200).json();
    assert_eq!(shown["secret"], masked);
    assert_eq!(installation.call("GET", BASE, Value::Null).await.expect(200).json(), json!([shown]));

    let change = json!({ "url": "https://more.example.org/", "events": ["cvm.deleted"], "name": "ops", "enabled": false });
    let changed = installation.of_webhook("PUT", &made, "", change.clone()).await.expect(200).json();
    for (member, value) in change.as_object().unwrap() {
        assert_eq!(&changed[member], value);
    }
    assert_eq!(changed["secret"], masked);
    let nothing = json!({ "url": null, "events": null, "name": null, "enabled": null });
    for body in [json!({}), nothing] {
        assert_eq!(installation.of_webhook("PUT", &made, "", body).await.expect(200).json(), changed);
    }
    let unnamed = installation.of_webhook("PUT", &made, "", json!({ "name": "" })).await.expect(200).json();
    assert_eq!((&unnamed["name"], &unnamed["enabled"]), (&Value::Null, &json!(false)));

    installation.of_webhook("DELETE", &made, "", Value::Null).await.expect(204);
    for (method, rest) in [("GET", ""), ("DELETE", ""), ("POST", "/reveal-secret"), ("GET", "/stats")] {
        assert_eq!(installation.of_webhook(method, &made, rest, Value::Null).await.summary(), "404 plain");
    }
    assert_eq!(installation.call("GET", BASE, Value::Null).await.json(), json!([]));
}

#[tokio::test]
async fn a_webhook_is_made_shown_changed_and_deleted() {
    life(Installation::new().await).await;
}

#[tokio::test]
async fn a_webhook_lives_the_same_on_postgres() {
    life(Installation::on_postgres().await).await;
}

#[tokio::test]
async fn secrets_are_shown_in_full_only_where_they_are_made_or_revealed() {
    let clock = Clock::manual("2026-01-21T10:00:00Z".parse().unwrap());
    let installation = Installation::with_clock(clock.clone()).await;
    let own = "a*secret*of*my*own";
    let body = json!({ "url": HOOK, "events": ["cvm.created"], "secret": own });
    let made = installation.call("POST", BASE, body).await.expect(201).json();
    assert_eq!(made["secret"], own);
    assert_eq!(made["previous_secret_until"], Value::Null);
    let reveal = async || {
        installation.of_webhook("POST", &made, "/reveal-secret", Value::Null).await.expect(200).json()
    };
    assert_eq!(reveal().await["secret"], own);

    let rotated =
        installation.of_webhook("POST", &made, "/rotate-secret", Value::Null).await.expect(200).json();
    let new = rotated["secret"].as_str().unwrap();
    assert!(new.starts_with("whsec_") && new != own);
    assert_eq!(rotated["previous_secret_until"], "2026-01-22T10:00:00Z");
    assert_eq!(reveal().await["secret"], new);
    let list = installation.call("GET", BASE, Value::Null).await.text;
    assert!(!list.contains(new) && !list.contains(own), "{list}");
    clock.advance_ms(24 * 60 * 60 * 1000);
    assert_eq!(reveal().await["previous_secret_until"], Value::Null);

    let row = installation.app.store.webhooks(installation.tenant_workspace).await.unwrap().remove(0);
    for sealed in [&row.sealed_secret, row.previous_sealed_secret.as_ref().unwrap()] {
        assert!(!sealed.contains(own) && !sealed.contains(new) && !sealed.contains("whsec"));
    }
}

#[tokio::test]
async fn wrong_input_is_refused_at_its_place() {
    let installation = Installation::new().await;
    let right = json!({ "url": HOOK, "events": ["cvm.created"] });
    let made = installation.call("POST", BASE, right.clone()).await.expect(201).json();
    let mut table = String::new();
    for (member, value) in [
        ("url", json!("http://hooks.example.org/")),
        ("url", json!("https://me:pw@hooks.example.org/")),
        ("url", json!("https://10.0.0.1/")),
        ("url", json!("https://167772161/")),
        ("url", json!("https://[::ffff:10.0.0.1]/")),
        ("url", json!("https://localhost/")),
        ("url", json!("https://hooks.example.org:22/")),
        ("url", json!("https://hooks.example.org/#x")),
        ("url", json!(format!("https://hooks.example.org/{}", "x".repeat(2048)))),
        ("url", json!("not a url")),
        ("url", json!(7)),
        ("url", json!("https://mute.example.org/")),
        ("url", json!("https://both.example.org/")),
        ("events", json!([])),
        ("events", json!(["cvm.created", "cvm.exploded"])),
        ("events", json!("cvm.created")),
        ("name", json!("x".repeat(101))),
        ("name", json!("a\u{7}b")),
        ("secret", json!("short")),
        ("secret", json!("0123456789 abcdef")),
        ("enabled", json!("perhaps")),
    ] {
        let mut body = right.clone();
        body[member] = value.clone();
        let created = installation.call("POST", BASE, body).await;
        let changed = installation.of_webhook("PUT", &made, "", json!({ member: value })).await;
        let text: String = value.to_string().chars().take(60).collect();
        for (verb, answer) in [("create", created), ("change", changed)] {
            // Members of the other request are unknown, and unknown ones are ignored.
            let ignored = (verb, member) == ("create", "enabled") || (verb, member) == ("change", "secret");
            assert_eq!(answer.status.is_success(), ignored, "{verb} {text}");
            if !ignored {
                table += &format!("{verb} {member} {text}: {} {}\n", answer.status.as_u16(), answer.text);
            }
        }
    }
    insta::assert_snapshot!(table);
    let after = installation.of_webhook("GET", &made, "", Value::Null).await.json();
    assert_eq!((&after["url"], &after["events"]), (&made["url"], &made["events"]));
}

#[tokio::test]
async fn nothing_tells_what_names_inside_lead_to() {
    let installation = Installation::new().await;
    let refuse = async |host: &str| {
        let body = json!({ "url": format!("https://{host}/"), "events": ["cvm.created"] });
        let answer = installation.call("POST", BASE, body).await;
        assert_eq!(answer.summary(), "400 plain", "{host}");
        assert!(!answer.text.contains(INSIDE), "{}", answer.text);
        answer.text
    };
    let inside = refuse("inside.example.org").await;
    assert_eq!(inside, refuse("nowhere.example.org").await, "a name that is there and one that is not");
    assert_eq!(inside, refuse("both.example.org").await);
}

#[tokio::test]
async fn a_workspace_has_at_most_twenty_webhooks() {
    let installation = Installation::new().await;
    let first = installation.webhook(HOOK, &["cvm.created"]).await;
    for _ in 1..20 {
        installation.webhook(HOOK, &["cvm.created"]).await;
    }
    let body = json!({ "url": HOOK, "events": ["cvm.created"] });
    assert_eq!(installation.call("POST", BASE, body.clone()).await.summary(), "400 plain");
    // Another workspace has its own.
    let other = [("x-api-key", installation.admin.as_str())];
    installation.call_with(&other, "POST", BASE, body.clone()).await.expect(201);
    installation.of_webhook("DELETE", &first, "", Value::Null).await.expect(204);
    installation.call("POST", BASE, body).await.expect(201);
}

#[tokio::test]
async fn the_kinds_come_with_schemas_and_examples() {
    let installation = Installation::new().await;
    let kinds =
        installation.call("GET", "/workspace/webhooks/event-types", Value::Null).await.expect(200).json();
    assert_eq!(kinds.as_array().unwrap().len(), cloister_webhooks::EventKind::ALL.len());
    for kind in kinds.as_array().unwrap() {
        assert_eq!(kind["schema"]["properties"]["event"]["const"], kind["event"]);
        assert_eq!(kind["example"]["event"], kind["event"]);
    }
}
