//! Devices that a person lets in.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::{Answer, Installation};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

impl Installation {
    pub(super) async fn begin_login(&self) -> Value {
        self.begin_login_as("phala-cli", "user:profile cvms:* nodes:*").await
    }

    pub(super) async fn begin_login_as(&self, name: &str, scope: &str) -> Value {
        let body = json!({"client_id": name, "scope": scope});
        self.call_with(&[], "POST", "/auth/device/code", body).await.expect(200).json()
    }

    pub(super) async fn ask_for_token(&self, codes: &Value) -> Answer {
        let body = json!({"device_code": codes["device_code"], "grant_type": GRANT});
        self.call_with(&[], "POST", "/auth/device/token", body).await
    }

    async fn decide(&self, codes: &Value, approve: bool) -> Answer {
        let body = json!({"user_code": codes["user_code"], "approve": approve});
        self.call("POST", "/auth/device/decision", body).await
    }
}

/// In both forms that clients look for, and without a code that would end their waiting.
#[track_caller]
pub(super) fn refused(answer: Answer, error: &str) {
    let answer = answer.expect(400).json();
    assert_eq!((&answer["error"], &answer["detail"]["error"]), (&json!(error), &json!(error)));
    assert!(answer["error_description"].is_string() && answer["detail"]["error_description"].is_string());
    assert!(answer.get("error_code").is_none() && answer["detail"].get("error_code").is_none());
}

#[tokio::test]
async fn a_device_that_is_let_in_gets_a_key_of_the_workspace() {
    let installation = Installation::new().await;
    let codes = installation.begin_login().await;
    let user_code = codes["user_code"].as_str().unwrap();
    assert_eq!(codes["verification_uri"], "https://cloud.example/device");
    assert_eq!(
        codes["verification_uri_complete"],
        format!("https://cloud.example/device?user_code={user_code}")
    );
    assert_eq!((&codes["expires_in"], &codes["interval"]), (&json!(600), &json!(5)));
    refused(installation.ask_for_token(&codes).await, "authorization_pending");

    let typed = user_code.to_lowercase().replace('-', "");
    let waiting = installation.call("GET", &format!("/auth/device/{typed}"), Value::Null).await.expect(200);
    let waiting = waiting.json();
    assert_eq!((&waiting["client_id"], &waiting["scope"]), (&json!("phala-cli"), &json!("deploy")));
    let decided = installation.decide(&codes, true).await.expect(200).json();
    assert_eq!(decided, json!({"client_id": "phala-cli", "approved": true, "scope": "deploy"}));

    let audit = installation.call("GET", "/workspace/audit", Value::Null).await.expect(200).json();
    let record = &audit["items"][0];
    assert_eq!(
        (&record["operation"], &record["target"]["kind"]),
        (&json!("decide_device_login"), &json!("api_key"))
    );

    // An answer that got lost is given again.
    let token = installation.ask_for_token(&codes).await.expect(200).json();
    assert_eq!(installation.ask_for_token(&codes).await.expect(200).json(), token);
    assert_eq!(
        (&token["token_type"], &token["expires_in"], &token["scope"]),
        (&json!("bearer"), &json!(7_776_000), &json!("deploy"))
    );
    let key = token["access_token"].as_str().unwrap();
    let with_key = async |method: &str, path: &str| {
        installation.call_with(&[("x-api-key", key)], method, path, Value::Null).await
    };
    let me = with_key("GET", "/auth/me").await.expect(200).json();
    assert_eq!(me["user"]["username"], "tenant");
    with_key("GET", "/workspace/audit").await.expect(403);
    let keys = installation.call("GET", "/tokens", Value::Null).await.json();
    let made = keys.as_array().unwrap().iter().find(|key| key["name"] == "phala-cli").unwrap();
    assert_eq!((&made["scope"], made["expires_at"].is_string()), (&json!("deploy"), true));
    with_key("DELETE", "/tokens/self").await.expect(204);
    with_key("GET", "/auth/me").await.expect(401);
    refused(installation.ask_for_token(&codes).await, "access_denied");
}

#[tokio::test]
async fn a_device_that_is_refused_gets_nothing() {
    let installation = Installation::new().await;
    let codes = installation.begin_login().await;
    let decided = installation.decide(&codes, false).await.expect(200).json();
    assert_eq!((&decided["approved"], &decided["scope"]), (&json!(false), &Value::Null));
    refused(installation.ask_for_token(&codes).await, "access_denied");
    // There is one decision.
    installation.decide(&codes, true).await.expect(404);
    refused(installation.ask_for_token(&codes).await, "access_denied");
    assert_eq!(installation.call("GET", "/tokens", Value::Null).await.json().as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_device_that_asks_for_less_gets_less_unless_somebody_says_more() {
    let installation = Installation::new().await;
    for (asked, said, gets) in [
        ("read", Value::Null, "read"),
        ("inference", Value::Null, "inference"),
        ("admin", Value::Null, "deploy"),
        ("read", json!("admin"), "admin"),
    ] {
        let codes = installation.begin_login_as("tool", asked).await;
        let body = json!({"user_code": codes["user_code"], "approve": true, "scope": said});
        let decided = installation.call("POST", "/auth/device/decision", body).await.expect(200).json();
        assert_eq!(decided["scope"], gets, "{asked}");
    }
}

#[tokio::test]
async fn nobody_waits_for_ever_and_asks_all_the_time() {
    let installation = Installation::new().await;
    let codes = installation.begin_login().await;
    refused(installation.ask_for_token(&codes).await, "authorization_pending");
    refused(installation.ask_for_token(&codes).await, "slow_down");
    installation.app.clock.advance_ms(5_000);
    refused(installation.ask_for_token(&codes).await, "authorization_pending");
    installation.app.clock.advance_ms(600_000);
    refused(installation.ask_for_token(&codes).await, "expired_token");
    installation.decide(&codes, true).await.expect(404);
    refused(installation.ask_for_token(&json!({"device_code": "unknown"})).await, "expired_token");
}

#[tokio::test]
async fn only_who_may_make_keys_lets_devices_in() {
    let installation = Installation::new().await;
    let codes = installation.begin_login().await;
    let key = installation.call("POST", "/tokens", json!({"name": "ci", "scope": "deploy"})).await.json();
    let body = json!({"user_code": codes["user_code"], "approve": true});
    for (headers, status) in [(vec![], 401), (vec![("x-api-key", key["token"].as_str().unwrap())], 403)] {
        installation.call_with(&headers, "POST", "/auth/device/decision", body.clone()).await.expect(status);
        let path = format!("/auth/device/{}", codes["user_code"].as_str().unwrap());
        installation.call_with(&headers, "GET", &path, Value::Null).await.expect(status);
    }
    refused(installation.ask_for_token(&codes).await, "authorization_pending");
}

#[tokio::test]
async fn bodies_are_forms_too_and_faults_are_named() {
    let installation = Installation::new().await;
    let post = async |path: &str, form: &'static str| {
        let request = Request::post(format!("/api/v1/auth/device/{path}"))
            .header("content-type", "application/x-www-form-urlencoded; charset=utf-8");
        installation.send(request.body(Body::from(form)).unwrap()).await
    };
    let codes = post("code", "client_id=my%20tool").await.expect(200).json();
    assert!(codes["device_code"].is_string());
    refused(post("token", "device_code=x&grant_type=password").await, "unsupported_grant_type");
    for (path, form) in
        [("code", ""), ("code", "client_id=%0a"), ("token", "device_code=x"), ("token", "grant_type=x")]
    {
        refused(post(path, form).await, "invalid_request");
    }
}

#[tokio::test]
async fn only_so_many_devices_begin_to_wait_and_codes_are_tried() {
    let installation = Installation::new().await;
    for _ in 0..60 {
        installation.begin_login().await;
    }
    let body = json!({"client_id": "one more"});
    let refused = installation.call_with(&[], "POST", "/auth/device/code", body).await.expect(429);
    assert_eq!(refused.header("retry-after"), "1");
    installation.app.clock.advance_ms(1_000);
    let codes = installation.begin_login().await;

    let wrong = json!({"user_code": "BBBB-BBBB", "approve": true});
    for guess in 0..10 {
        let answer = if guess % 2 == 0 {
            installation.call("POST", "/auth/device/decision", wrong.clone()).await
        } else {
            installation.call("GET", "/auth/device/BBBB-BBBB", Value::Null).await
        };
        answer.expect(404);
    }
    assert_eq!(installation.decide(&codes, true).await.expect(429).header("retry-after"), "6");
    // Wrong codes take nothing of the keys that may be made.
    installation.call("POST", "/tokens", json!({"name": "ci"})).await.expect(201);
    installation.app.clock.advance_ms(6_000);
    installation.decide(&codes, true).await.expect(200);
}

#[tokio::test]
async fn the_page_for_people_asks_only_its_own_server() {
    let installation = Installation::new().await;
    let get = async |path: &str| {
        installation.send(Request::get(path).body(Body::empty()).unwrap()).await.expect(200)
    };
    let page = get("/device?user_code=BCDF-GHJK").await;
    assert_eq!(page.text, get("/device/key?user_code=BCDF-GHJK").await.text);
    assert!(page.header("content-security-policy").starts_with("default-src 'none';"));
    for inline in ["<script>", "<style>", " style=", " onclick=", "http://", "https://"] {
        assert!(!page.text.contains(inline), "{inline}");
    }
    assert!(!get("/device.js").await.text.contains("innerHTML"));
}
