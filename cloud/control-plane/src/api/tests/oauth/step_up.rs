//! What tokens of applications do only after a code of the second factor.

use serde_json::{Value, json};

use super::super::Installation;
use super::{address, asked, told};

#[tokio::test]
async fn a_token_of_a_person_shows_no_secret_without_a_code() {
    let installation = Installation::new().await;
    let mut browser = installation.logged_in().await;
    let token = installation.exchange(&browser.code("admin").await, &[]).await.expect(200).json();
    let hook = json!({"url": "https://hooks.example.org/", "events": ["cvm.created"]});
    let hook = installation.call("POST", "/workspace/webhooks", hook).await.expect(201).json();
    let paths = ["reveal-secret", "rotate-secret"]
        .map(|what| format!("/workspace/webhooks/{}/{what}", hook["id"].as_str().unwrap()));
    let step_up = async |code: &str| {
        installation.as_app(&token, "POST", "/auth/step-up", json!({ "totp_code": code })).await
    };
    for path in &paths {
        installation.as_app(&token, "POST", path, Value::Null).await.expect(403);
    }
    step_up("000000").await.expect(403);
    let backup = browser.enrol().await;
    for path in &paths {
        let refused = installation.as_app(&token, "POST", path, Value::Null).await;
        assert_eq!(refused.summary(), "428 plain");
    }
    // What outlives the token.
    let key = installation.call("POST", "/tokens", json!({"name": "old", "scope": "read"})).await.json();
    let longer = format!("/tokens/{}/refresh", key["id"].as_str().unwrap());
    let codes = installation.begin_login().await;
    let device = json!({"user_code": codes["user_code"], "approve": true, "scope": "read"});
    let lasting = [
        ("/tokens", json!({"name": "ci", "scope": "read"}), 201),
        (longer.as_str(), json!({"expires_in_days": 365}), 200),
        ("/auth/device/decision", device, 200),
    ];
    for (path, body, _) in &lasting {
        installation.as_app(&token, "POST", path, body.clone()).await.expect(428);
    }
    step_up("000000").await.expect(403);
    step_up(&backup[0]).await.expect(200);
    step_up(&backup[0]).await.expect(403);
    let shown = installation.as_app(&token, "POST", &paths[0], Value::Null).await.expect(200).json();
    assert_eq!(shown["secret"], hook["secret"]);
    let rotated = installation.as_app(&token, "POST", &paths[1], Value::Null).await.expect(200).json();
    assert_ne!(rotated["secret"], hook["secret"]);
    for (path, body, status) in lasting {
        installation.as_app(&token, "POST", path, body).await.expect(status);
    }
    installation.app.clock.advance_ms(300_000);
    installation.as_app(&token, "POST", &paths[0], Value::Null).await.expect(428);
    step_up(&installation.code().await).await.expect(200);
    installation.as_app(&token, "POST", &paths[0], Value::Null).await.expect(200);

    // API keys belong to machines.
    installation.call("POST", &paths[0], Value::Null).await.expect(200);
    installation.call("POST", "/auth/step-up", json!({"totp_code": "000000"})).await.expect(400);
    for _ in 0..5 {
        step_up("000000").await.expect(403);
    }
    step_up("000000").await.expect(429);
    let log = installation.call("GET", "/workspace/audit/export", Value::Null).await.expect(200).text;
    let records = |operation: &str| log.matches(&format!("\"operation\":\"{operation}\"")).count();
    assert_eq!((records("step_up"), records("refuse_log_in")), (2, 0));
    assert!(!log.contains(&backup[0]));
    // Whoever stole what the token is renewed with has shown no code.
    let renewed = installation.renew(&token, &[]).await.expect(200).json();
    installation.as_app(&renewed, "POST", &paths[0], Value::Null).await.expect(428);
}

#[tokio::test]
async fn a_token_of_an_administrator_makes_no_login_without_a_code() {
    let installation = Installation::new().await;
    let mut browser = installation.logged_in_as("operator").await;
    let fields = asked(&[]);
    let decision = [("workspace", "operator"), ("allowed", "admin"), ("decision", "allow")];
    let page = address(&fields);
    let fields: Vec<_> = fields.into_iter().chain(decision).collect();
    let answer = browser.submit(&page, "/oauth/authorize", &fields).await.expect(303);
    let code = told(&answer, "code").unwrap();
    let token = installation.exchange(&code, &[]).await.expect(200).json();
    let backup = browser.enrol().await;
    let mallory = json!({"username": "mallory", "administers": true});
    let reset = json!({"remove_second_factor": true});
    let attempts = [("/admin/users", mallory, 201), ("/admin/users/operator/link", reset, 200)];
    for (path, body, _) in &attempts {
        installation.as_app(&token, "POST", path, body.clone()).await.expect(428);
    }
    let right = json!({"totp_code": backup[0]});
    installation.as_app(&token, "POST", "/auth/step-up", right).await.expect(200);
    for (path, body, status) in &attempts {
        installation.as_app(&token, "POST", path, body.clone()).await.expect(*status);
    }
}
