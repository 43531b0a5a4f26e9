//! People who let devices in on the page where they are logged in.

use axum::http::Request;
use serde_json::{Value, json};

use super::devices::refused;
use super::people::Browser;
use super::{Answer, Installation};
use crate::audit::INSTALLATION;

impl Browser<'_> {
    /// Types a code in.
    async fn look(&mut self, code: &str) -> Answer {
        self.submit("/device", "/device", &[("user_code", code)]).await
    }

    async fn settle(&mut self, code: &str, fields: &[(&str, &str)]) -> Answer {
        let fields: Vec<_> = [("user_code", code)].into_iter().chain(fields.iter().copied()).collect();
        self.submit("/device", "/device/decision", &fields).await
    }
}

const ALLOW: [(&str, &str); 3] = [("workspace", "tenant"), ("allowed", "read"), ("decision", "allow")];

async fn a_person_lets_a_device_in(installation: Installation) {
    let codes = installation.begin_login_as("a <tool>", "deploy").await;
    let code = codes["user_code"].as_str().unwrap();
    let mut browser = installation.logged_in().await;

    // Whoever is not logged in does that first, or takes an API key.
    let page =
        codes["verification_uri_complete"].as_str().unwrap().strip_prefix("https://cloud.example").unwrap();
    let away = installation.browser().get(page).await.expect(303);
    let login = away.header("location").to_owned();
    assert_eq!(login, format!("/login?next=%2Fdevice%3Fuser_code%3D{code}"));
    let login = installation.browser().get(&login).await.expect(200);
    assert!(login.text.contains(&format!("href=\"/device/key?user_code={code}\"")));

    // The code of an address is filled in, and nothing is told of it.
    let request = Request::get(page).header("sec-fetch-site", "cross-site");
    let shown = browser.send(request, String::new()).await.expect(200);
    assert!(shown.text.contains(&format!("value=\"{code}\"")) && !shown.text.contains("tool"));
    assert!(shown.header("content-security-policy").contains("frame-ancestors 'none'"));

    let shown = browser.look(&code.to_lowercase().replace('-', " ")).await.expect(200);
    assert!(shown.text.contains("a &lt;tool&gt;") && shown.text.contains(code));
    assert!(shown.text.contains("value=\"deploy\" selected") && !shown.text.contains("value=\"admin\""));
    refused(installation.ask_for_token(&codes).await, "authorization_pending");

    let done = browser.settle(code, &ALLOW).await.expect(200);
    assert!(done.text.contains("was let in"));
    let token = installation.ask_for_token(&codes).await.expect(200).json();
    assert_eq!(token["scope"], "read");
    let key = token["access_token"].as_str().unwrap();
    let me = installation.call_with(&[("x-api-key", key)], "GET", "/auth/me", Value::Null).await.expect(200);
    assert_eq!(me.json()["user"]["username"], "tenant");
    let audit = installation.call("GET", "/workspace/audit", Value::Null).await.expect(200);
    let record = &audit.json()["items"][0];
    assert_eq!(
        [&record["operation"], &record["actor"]["kind"], &record["actor"]["name"]],
        [&json!("decide_device_login"), &json!("person"), &json!("tenant")]
    );
    assert!(!audit.text.contains(key));
    // There is one decision.
    browser.settle(code, &ALLOW).await.expect(404);
}

#[tokio::test]
async fn a_person_lets_a_device_in_on_sqlite() {
    a_person_lets_a_device_in(Installation::new().await).await;
}

#[tokio::test]
async fn a_person_lets_a_device_in_on_postgresql() {
    a_person_lets_a_device_in(Installation::on_postgres().await).await;
}

#[tokio::test]
async fn a_device_gets_what_it_asked_for_at_most_and_what_it_is_refused_it_never_gets() {
    let installation = Installation::new().await;
    let codes = installation.begin_login_as("tool", "read").await;
    let code = codes["user_code"].as_str().unwrap();
    let mut browser = installation.logged_in().await;
    for (workspace, allowed) in
        [("tenant", "deploy"), ("tenant", "inference"), ("tenant", ""), ("operator", "read")]
    {
        let fields = [("workspace", workspace), ("allowed", allowed), ("decision", "allow")];
        let refused = browser.settle(code, &fields).await.expect(400);
        assert!(refused.text.contains("Choose one of your workspaces"), "{workspace} {allowed}");
    }
    refused(installation.ask_for_token(&codes).await, "authorization_pending");
    let done = browser.settle(code, &[("decision", "refuse")]).await.expect(200);
    assert!(done.text.contains("was refused"));
    refused(installation.ask_for_token(&codes).await, "access_denied");
    let records = installation.app.store.audit_stretch(INSTALLATION, 0, i64::MAX, 10_000).await.unwrap();
    let record = records.last().unwrap();
    assert_eq!(
        (record.operation.as_str(), record.actor.name.as_deref()),
        ("decide_device_login", Some("tenant"))
    );
}

#[tokio::test]
async fn nobody_else_sends_the_forms() {
    let installation = Installation::new().await;
    let codes = installation.begin_login_as("tool", "read").await;
    let code = codes["user_code"].as_str().unwrap();
    let mut browser = installation.logged_in().await;
    for path in ["/device", "/device/decision"] {
        let fields: Vec<_> = [("user_code", code)].into_iter().chain(ALLOW).collect();
        // Without the value of the session, and of another site.
        browser.post(path, &fields).await.expect(403);
        let request = Request::post(path)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("sec-fetch-site", "cross-site");
        browser.send(request, format!("user_code={code}&decision=allow")).await.expect(403);
        let away = installation.browser().post(path, &fields).await.expect(303);
        assert_eq!(away.header("location"), "/login?next=%2Faccount");
    }
    refused(installation.ask_for_token(&codes).await, "authorization_pending");
}

#[tokio::test]
async fn a_person_tries_only_so_many_codes_whichever_way() {
    let installation = Installation::new().await;
    let codes = installation.begin_login_as("tool", "read").await;
    let code = codes["user_code"].as_str().unwrap();
    let mut browser = installation.logged_in().await;
    for guess in 0..10 {
        let shown = match guess % 2 {
            0 => browser.look("BBBB-BBBB").await,
            _ => browser.settle("BBBB-BBBB", &ALLOW).await,
        };
        assert!(shown.expect(404).text.contains("No device that waits shows this code"));
    }
    assert_eq!(browser.look(code).await.expect(429).header("retry-after"), "6");
    assert_eq!(browser.settle(code, &ALLOW).await.expect(429).header("retry-after"), "6");
    // With a key of the same person, too.
    installation.call("GET", &format!("/auth/device/{code}"), Value::Null).await.expect(429);
    installation.app.clock.advance_ms(6_000);
    browser.look(code).await.expect(200);
}
