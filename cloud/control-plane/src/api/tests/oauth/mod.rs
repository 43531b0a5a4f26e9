//! Applications that people let in.

mod native;
mod step_up;
mod twice;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use url::Url;
use url::form_urlencoded::Serializer;

use super::people::{Browser, PASSWORD};
use super::{Answer, Installation};
use crate::api::OauthClient;

/// RFC 7636 appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const CALLBACK: &str = "https://app.example/callback?from=cloister";

/// Applications that the operator configured.
pub(super) fn apps() -> Vec<OauthClient> {
    let app = |id: &str, name: &str, uri: &str| OauthClient {
        id: id.into(),
        name: name.into(),
        redirect_uris: vec![uri.into()],
    };
    vec![
        app("app", "An <app>", CALLBACK),
        app("phone", "Of phones", native::CALLBACK),
        app("desktop", "Of desktops", "http://127.0.0.1/callback"),
    ]
}

/// A request for a code, in which some parameters are others.
fn asked<'a>(changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut asked = vec![
        ("client_id", "app"),
        ("redirect_uri", CALLBACK),
        ("response_type", "code"),
        ("state", "x&y"),
        ("scope", "admin"),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
    ];
    asked.retain(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
    asked.extend(changes.iter().filter(|(_, value)| !value.is_empty()));
    asked
}

fn address(asked: &[(&str, &str)]) -> String {
    format!("/oauth/authorize?{}", Serializer::new(String::new()).extend_pairs(asked).finish())
}

/// What an answer tells the application.
fn told(answer: &Answer, name: &str) -> Option<String> {
    let url = Url::parse(answer.header("location")).unwrap();
    url.query_pairs().find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
}

impl Browser<'_> {
    /// Lets the application in.
    async fn allow(&mut self, changes: &[(&str, &str)], scope: &str) -> Answer {
        let asked = asked(changes);
        let page = address(&asked);
        let decision = [("workspace", "tenant"), ("allowed", scope), ("decision", "allow")];
        let fields: Vec<_> = asked.into_iter().chain(decision).collect();
        self.submit(&page, "/oauth/authorize", &fields).await
    }

    async fn code(&mut self, scope: &str) -> String {
        told(&self.allow(&[], scope).await.expect(303), "code").unwrap()
    }
}

impl Installation {
    async fn form(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let body = Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = Request::post(path).header("content-type", "application/x-www-form-urlencoded");
        self.send(request.body(Body::from(body)).unwrap()).await
    }

    async fn exchange(&self, code: &str, changes: &[(&str, &str)]) -> Answer {
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("client_id", "app"),
            ("redirect_uri", CALLBACK),
            ("code", code),
            ("code_verifier", VERIFIER),
        ];
        fields.retain(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
        fields.extend(changes);
        self.form("/api/v1/token", &fields).await
    }

    async fn renew(&self, token: &Value, changes: &[(&str, &str)]) -> Answer {
        let token = token["refresh_token"].as_str().unwrap();
        let mut fields =
            vec![("grant_type", "refresh_token"), ("client_id", "app"), ("refresh_token", token)];
        fields.retain(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
        fields.extend(changes);
        self.form("/token", &fields).await
    }

    /// A request with an access token.
    async fn as_app(&self, token: &Value, method: &str, path: &str, body: Value) -> Answer {
        let bearer = format!("Bearer {}", token["access_token"].as_str().unwrap());
        self.call_with(&[("authorization", &bearer)], method, path, body).await
    }

    async fn me(&self, token: &Value) -> u16 {
        self.as_app(token, "GET", "/auth/me", Value::Null).await.status.as_u16()
    }
}

#[track_caller]
fn refused(answer: Answer, error: &str) {
    let answer = answer.expect(400);
    assert_eq!(answer.header("cache-control"), "no-store");
    let body = answer.json();
    assert_eq!(body["error"], error);
    assert!(body["error_description"].is_string());
}

async fn a_person_lets_an_application_in(installation: Installation) {
    let page = address(&asked(&[]));
    let away = installation.browser().get(&page).await.expect(303);
    assert!(away.header("location").starts_with("/login?next=%2Foauth%2Fauthorize%3Fclient_id%3Dapp"));

    let mut browser = installation.logged_in().await;
    let shown = browser.get(&page).await.expect(200);
    assert!(shown.text.contains("An &lt;app&gt;") && shown.text.contains("app.example"));
    let policy = shown.header("content-security-policy");
    assert!(policy.contains("form-action 'self' https://app.example;"), "{policy}");

    let answer = browser.allow(&[], "deploy").await.expect(303);
    assert!(answer.header("location").starts_with(&format!("{CALLBACK}&")));
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(told(&answer, "state").as_deref(), Some("x&y"));
    assert_eq!(told(&answer, "iss").as_deref(), Some("https://cloud.example"));
    let token = installation.exchange(&told(&answer, "code").unwrap(), &[]).await.expect(200);
    assert_eq!(token.header("cache-control"), "no-store");
    let token = token.json();
    assert_eq!(
        (&token["token_type"], &token["expires_in"], &token["scope"]),
        (&json!("Bearer"), &json!(3600), &json!("deploy"))
    );
    let me = installation.as_app(&token, "GET", "/auth/me", Value::Null).await.expect(200).json();
    assert_eq!(me["user"]["username"], "tenant");
    installation.as_app(&token, "GET", "/workspace/audit", Value::Null).await.expect(403);

    let keys = installation.call("GET", "/tokens", Value::Null).await.expect(200).json();
    let key = keys.as_array().unwrap().iter().find(|key| key["name"] == "An <app>").unwrap();
    assert_eq!((&key["scope"], &key["is_active"]), (&json!("deploy"), &json!(true)));
    let audit = installation.call("GET", "/workspace/audit", Value::Null).await.expect(200);
    for secret in ["access_token", "refresh_token"] {
        assert!(!audit.text.contains(token[secret].as_str().unwrap()));
    }
    let records = audit.json();
    let newest = |at: usize| {
        let record = &records["items"][at];
        [&record["operation"], &record["actor"]["kind"], &record["actor"]["name"]].map(ToString::to_string)
    };
    assert_eq!(newest(0), ["\"get_oauth_token\"", "\"person\"", "\"tenant\""]);
    assert_eq!(newest(1), ["\"allow_application\"", "\"person\"", "\"tenant\""]);

    // An access token works for an hour, its renewal for another one.
    installation.app.clock.advance_ms(3_600_000);
    assert_eq!(installation.me(&token).await, 401);
    let renewed = installation.renew(&token, &[("scope", "read")]).await.expect(200).json();
    assert_eq!((installation.me(&renewed).await, &renewed["scope"]), (200, &json!("read")));
    // It may have all that was allowed when it asks again.
    let renewed = installation.renew(&renewed, &[]).await.expect(200).json();
    assert_eq!((installation.me(&renewed).await, &renewed["scope"]), (200, &json!("deploy")));
    // Only the application gives it more time.
    let id = key["id"].as_str().unwrap();
    let longer = json!({"expires_in_days": 365});
    installation.call("POST", &format!("/tokens/{id}/refresh"), longer).await.expect(404);
    // Deleting the key ends everything.
    installation.call("DELETE", &format!("/tokens/{id}"), Value::Null).await.expect(204);
    assert_eq!(installation.me(&renewed).await, 401);
    refused(installation.renew(&renewed, &[]).await, "invalid_grant");
}

#[tokio::test]
async fn a_person_lets_an_application_in_on_sqlite() {
    a_person_lets_an_application_in(Installation::new().await).await;
}

#[tokio::test]
async fn a_person_lets_an_application_in_on_postgresql() {
    a_person_lets_an_application_in(Installation::on_postgres().await).await;
}

#[tokio::test]
async fn whoever_is_not_known_is_sent_nothing() {
    let installation = Installation::new().await;
    let mut browser = installation.logged_in().await;
    for changes in [
        vec![("client_id", "")],
        vec![("client_id", "other")],
        vec![("redirect_uri", "")],
        vec![("redirect_uri", "https://app.example/callback")],
        vec![("redirect_uri", "https://evil.example/callback?from=cloister")],
        vec![("client_id", "app"), ("client_id", "app")],
        vec![("redirect_uri", CALLBACK), ("redirect_uri", CALLBACK)],
        vec![("client_id", "desktop")],
    ] {
        let refused = browser.get(&address(&asked(&changes))).await.expect(400);
        assert!(
            refused.header("location").is_empty() && refused.text.contains("Nothing was allowed"),
            "{changes:?}"
        );
    }
}

#[tokio::test]
async fn an_application_is_told_what_is_wrong() {
    let installation = Installation::new().await;
    let mut browser = installation.logged_in().await;
    let long = "s".repeat(2049);
    for (changes, error) in [
        (vec![("response_type", "token")], "unsupported_response_type"),
        (vec![("response_type", "")], "unsupported_response_type"),
        (vec![("code_challenge", "")], "invalid_request"),
        (vec![("code_challenge", "short")], "invalid_request"),
        (vec![("code_challenge_method", "plain")], "invalid_request"),
        (vec![("code_challenge_method", "")], "invalid_request"),
        (vec![("scope", "everything")], "invalid_scope"),
        (vec![("scope", "read"), ("scope", "read")], "invalid_request"),
        (vec![("state", long.as_str())], "invalid_request"),
    ] {
        let refused = browser.get(&address(&asked(&changes))).await.expect(303);
        assert_eq!(told(&refused, "error").as_deref(), Some(error), "{changes:?}");
        assert_eq!(told(&refused, "iss").as_deref(), Some("https://cloud.example"));
        assert!(refused.header("location").len() < 2048 && told(&refused, "code").is_none());
    }
    // The same holds for what a page sends that somebody changed.
    let page = address(&asked(&[]));
    for (changes, status) in [
        (vec![("decision", "refuse")], 303),
        (vec![("decision", "allow"), ("workspace", "operator"), ("allowed", "read")], 400),
        (vec![("decision", "allow"), ("workspace", "tenant"), ("allowed", "everything")], 400),
    ] {
        let fields: Vec<_> = asked(&[]).into_iter().chain(changes).collect();
        browser.submit(&page, "/oauth/authorize", &fields).await.expect(status);
    }
    let decision = [("decision", "allow"), ("workspace", "tenant"), ("allowed", "admin")];
    let fields: Vec<_> = asked(&[("scope", "read")]).into_iter().chain(decision).collect();
    browser.submit(&page, "/oauth/authorize", &fields).await.expect(400);
    // And a form without the session's value allows nothing.
    browser.post("/oauth/authorize", &fields).await.expect(403);
    let refuse: Vec<_> = asked(&[]).into_iter().chain([("decision", "refuse")]).collect();
    let refused = browser.submit(&page, "/oauth/authorize", &refuse).await.expect(303);
    assert_eq!(told(&refused, "error").as_deref(), Some("access_denied"));
}

#[tokio::test]
async fn who_comes_from_another_site_is_known_there_and_comes_back_from_the_login() {
    let installation = Installation::new().await;
    let page = address(&asked(&[]));
    let from_elsewhere = |method: &str| {
        let request = Request::builder().method(method).header("sec-fetch-site", "cross-site");
        request.header("sec-fetch-mode", "navigate").header("sec-fetch-dest", "document")
    };
    let mut browser = installation.logged_in().await;
    let shown = browser.send(from_elsewhere("GET").uri(&page), String::new()).await.expect(200);
    assert!(shown.text.contains("An &lt;app&gt;"));
    // What a browser looks at before it shows the page within another one.
    assert!(shown.header("content-security-policy").contains("frame-ancestors 'none'"));

    let form = |page: &Answer, name: &str| {
        let (_, rest) = page.text.split_once(&format!("name=\"{name}\" value=\"")).unwrap();
        rest.split('"').next().unwrap().replace("&amp;", "&")
    };
    let value = form(&shown, "form");
    let decision = [("form", &*value), ("workspace", "tenant"), ("allowed", "admin"), ("decision", "allow")];
    let fields: Vec<_> = asked(&[]).into_iter().chain(decision).collect();
    let body = Serializer::new(String::new()).extend_pairs(&fields).finish();
    let request = from_elsewhere("POST").uri("/oauth/authorize");
    let request = request.header("content-type", "application/x-www-form-urlencoded");
    let refused = browser.send(request, body).await.expect(403);
    assert!(refused.header("location").is_empty());
    // The value of one session is worth nothing in another one.
    let mut other = installation.logged_in_as("operator").await;
    other.post("/oauth/authorize", &fields).await.expect(403);

    let mut stranger = installation.browser();
    let login = stranger.send(from_elsewhere("GET").uri(&page), String::new()).await.expect(303);
    let login = stranger.get(login.header("location")).await.expect(200);
    let next = form(&login, "next");
    let known = [("username", "tenant"), ("password", PASSWORD), ("next", &*next)];
    let back = stranger.post("/login", &known).await.expect(303);
    let shown = stranger.get(back.header("location")).await.expect(200);
    assert!(shown.text.contains("An &lt;app&gt;") && form(&shown, "state") == "x&y");
}

#[tokio::test]
async fn a_code_is_good_once_for_whom_it_is_for() {
    let installation = Installation::new().await;
    let mut browser = installation.logged_in().await;
    let other = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
    for changes in [
        vec![("code_verifier", other)],
        vec![("client_id", "desktop")],
        vec![("redirect_uri", "https://app.example/callback")],
    ] {
        let code = browser.code("read").await;
        refused(installation.exchange(&code, &changes).await, "invalid_grant");
        // It is used up by that.
        refused(installation.exchange(&code, &[]).await, "invalid_grant");
    }
    let code = browser.code("read").await;
    installation.app.clock.advance_ms(60_000);
    refused(installation.exchange(&code, &[]).await, "invalid_grant");

    let code = browser.code("read").await;
    let token = installation.exchange(&code, &[]).await.expect(200).json();
    assert_eq!(installation.me(&token).await, 200);
    refused(installation.exchange(&code, &[]).await, "invalid_grant");
    assert_eq!(installation.me(&token).await, 401, "what came of it ends");

    refused(installation.exchange("unknown", &[]).await, "invalid_grant");
    refused(installation.exchange("x", &[("grant_type", "password")]).await, "unsupported_grant_type");
    for missing in ["code", "code_verifier", "grant_type", "client_id"] {
        let fields = [
            ("grant_type", "authorization_code"),
            ("client_id", "app"),
            ("code", "x"),
            ("code_verifier", VERIFIER),
        ];
        let fields: Vec<_> = fields.into_iter().filter(|(name, _)| *name != missing).collect();
        refused(installation.form("/token", &fields).await, "invalid_request");
    }
}

#[tokio::test]
async fn a_refresh_token_is_good_once_and_who_uses_it_twice_loses_everything() {
    let installation = Installation::new().await;
    let mut browser = installation.logged_in().await;
    let first = installation.exchange(&browser.code("deploy").await, &[]).await.expect(200).json();
    refused(installation.renew(&first, &[("client_id", "desktop")]).await, "invalid_grant");
    refused(installation.renew(&first, &[("scope", "admin")]).await, "invalid_scope");
    let second = installation.renew(&first, &[]).await.expect(200).json();
    assert_ne!(first["refresh_token"], second["refresh_token"]);
    assert_eq!((installation.me(&first).await, installation.me(&second).await), (401, 200));
    refused(installation.renew(&first, &[]).await, "invalid_grant");
    assert_eq!(installation.me(&second).await, 401);
    refused(installation.renew(&second, &[]).await, "invalid_grant");
    let audit = installation.call("GET", "/workspace/audit", Value::Null).await.expect(200).json();
    let record = &audit["items"][0];
    assert_eq!([&record["operation"], &record["actor"]["name"]], ["revoke_oauth_token", "tenant"]);

    let token = installation.exchange(&browser.code("deploy").await, &[]).await.expect(200).json();
    installation.app.clock.advance_ms(30 * 24 * 60 * 60 * 1000);
    refused(installation.renew(&token, &[]).await, "invalid_grant");
    let now_ms = installation.app.clock.now_ms();
    let mut change = installation.app.store.upkeep().await.unwrap();
    assert!(change.delete_expired_grants(now_ms).await.unwrap() > 0);
    change.commit().await.unwrap();
    let keys = installation.call("GET", "/tokens", Value::Null).await.expect(200).json();
    assert_eq!(keys.as_array().unwrap().len(), 1, "the first key alone");
}

#[tokio::test]
async fn tokens_are_given_back_and_end_with_the_password() {
    let installation = Installation::new().await;
    let mut browser = installation.logged_in().await;
    for which in ["access_token", "refresh_token"] {
        let token = installation.exchange(&browser.code("read").await, &[]).await.expect(200).json();
        let given = token[which].as_str().unwrap();
        let revoke = async |client: &str, given: &str| {
            let fields = [("client_id", client), ("token", given), ("token_type_hint", which)];
            installation.form("/api/v1/oauth/revoke", &fields).await.expect(200);
        };
        revoke("desktop", given).await;
        revoke("app", "unknown").await;
        assert_eq!(installation.me(&token).await, 200);
        revoke("app", given).await;
        assert_eq!(installation.me(&token).await, 401);
        refused(installation.renew(&token, &[]).await, "invalid_grant");
    }
    // An API key is nobody's to revoke there.
    let fields = [("client_id", "app"), ("token", installation.tenant.as_str())];
    installation.form("/api/v1/oauth/revoke", &fields).await.expect(200);
    installation.call("GET", "/auth/me", Value::Null).await.expect(200);
    refused(installation.form("/api/v1/oauth/revoke", &[("token", "x")]).await, "invalid_request");

    let token = installation.exchange(&browser.code("read").await, &[]).await.expect(200).json();
    let code = browser.code("read").await;
    let (old, new) = ("four random words", "five other random words");
    let change = [("current", old), ("new", new), ("again", new)];
    browser.submit("/account", "/account/password", &change).await.expect(303);
    assert_eq!(installation.me(&token).await, 401);
    refused(installation.exchange(&code, &[]).await, "invalid_grant");
}

#[tokio::test]
async fn programs_find_where_everything_is() {
    let installation = Installation::new().await;
    let request = Request::get("/.well-known/oauth-authorization-server").body(Body::empty()).unwrap();
    let metadata = installation.send(request).await.expect(200).json();
    insta::assert_json_snapshot!(metadata);
}
