//! People who log in by an OpenID provider.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use serde_json::{Value, json};
use url::Url;
use url::form_urlencoded::Serializer;

use super::{Answer, Installation};
use crate::App;
use crate::audit::INSTALLATION;
use crate::openid::tests::config;
use crate::openid::tests::provider::{Fault, Provider, Signer};
use crate::openid::{Openid, OpenidConfig, UnknownPeople};

const SUBJECT: &str = "248289761001";
const FLOW: &str = "__Host-cloister-openid";
const SESSION: &str = "__Host-cloister-session";

/// An installation with a provider.
struct Place {
    installation: Installation,
    provider: Provider,
}

/// A browser, which keeps all cookies.
#[derive(Default, Clone)]
struct Visitor(BTreeMap<String, String>);

/// The same application with a provider.
fn with_openid(old: &App, openid: Openid) -> App {
    App {
        store: old.store.clone(),
        lifecycle: old.lifecycle.clone(),
        fleet: Arc::clone(&old.fleet),
        kmses: Arc::clone(&old.kmses),
        contracts: Arc::clone(&old.contracts),
        os_images: Arc::clone(&old.os_images),
        authority: Arc::clone(&old.authority),
        clock: old.clock.clone(),
        random: old.random,
        public_url: old.public_url.clone(),
        log_url_key: old.log_url_key,
        audit_head_key: old.audit_head_key,
        dns: old.dns.clone(),
        proof_of_cloud: Arc::clone(&old.proof_of_cloud),
        verifier: old.verifier.clone(),
        collateral: Arc::clone(&old.collateral),
        development_vendor: old.development_vendor.clone(),
        outbound: old.outbound.clone(),
        webhook_secrets: Arc::clone(&old.webhook_secrets),
        people: Arc::clone(&old.people),
        oauth_clients: old.oauth_clients.clone(),
        openid: Some(Arc::new(openid)),
        webhook_figures: Arc::default(),
        requests_per_minute: None,
        sunsets: old.sunsets.clone(),
        inference: None,
    }
}

impl Place {
    async fn new(change: impl FnOnce(&mut OpenidConfig)) -> Self {
        Self::on(Installation::new().await, change).await
    }

    async fn on(installation: Installation, change: impl FnOnce(&mut OpenidConfig)) -> Self {
        let provider = Provider::start(&installation.app.clock).await;
        let mut place = Self { installation, provider };
        let config = place.config(change);
        let openid = Openid::open(config, &place.installation.app.clock).unwrap();
        place.serve(openid);
        place
    }

    fn config(&self, change: impl FnOnce(&mut OpenidConfig)) -> OpenidConfig {
        let mut config = config(&self.provider.issuer, self.installation.data.path());
        change(&mut config);
        config
    }

    fn serve(&mut self, openid: Openid) {
        let app = with_openid(&self.installation.app, openid);
        self.installation.serves(Arc::new(app));
    }

    async fn admins(&self, method: &str, path: &str, body: Value) -> Answer {
        self.installation.call_with(&[("x-api-key", &self.installation.admin)], method, path, body).await
    }

    /// The tenant is whom the provider names.
    async fn link_tenant(&self) {
        let body = json!({ "openid_subject": SUBJECT });
        let linked = self.admins("PUT", "/admin/users/tenant/openid", body).await.expect(200).json();
        assert_eq!(linked["openid_subject"], SUBJECT);
    }

    fn claims(&self, more: &Value) {
        let mut claims = json!({ "sub": SUBJECT });
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.provider.does(|script| script.claims = claims);
    }

    async fn send(
        &self,
        visitor: &mut Visitor,
        request: axum::http::request::Builder,
        body: String,
    ) -> Answer {
        let cookies: Vec<_> = visitor.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = request.header("host", "cloud.example").header("cookie", cookies.join("; "));
        let answer = self.installation.send(request.body(Body::from(body)).unwrap()).await;
        for set in answer.headers.get_all("set-cookie") {
            let set = set.to_str().unwrap();
            for part in ["; HttpOnly", "; SameSite=Lax", "; Secure", "; Path=/"] {
                assert!(set.contains(part), "{set}");
            }
            let (name, value) = set.split(';').next().unwrap().split_once('=').unwrap();
            assert_eq!(name == FLOW && !value.is_empty(), set.contains("Max-Age=600"), "{set}");
            visitor.0.insert(name.to_owned(), value.to_owned());
            visitor.0.retain(|_, value| !value.is_empty());
        }
        let policy = answer.header("content-security-policy");
        assert!(policy.is_empty() || policy.starts_with("default-src 'none';"), "{policy}");
        assert!(!answer.text.contains("<script") && !answer.text.contains(" style="), "{}", answer.text);
        answer
    }

    async fn get(&self, visitor: &mut Visitor, path: &str) -> Answer {
        self.send(visitor, Request::get(path), String::new()).await
    }

    async fn post(&self, visitor: &mut Visitor, path: &str, fields: &[(&str, &str)]) -> Answer {
        let request = Request::post(path)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("sec-fetch-site", "same-origin");
        self.send(visitor, request, Serializer::new(String::new()).extend_pairs(fields).finish()).await
    }

    /// Goes to the provider, which lets the person through; where the browser is sent back to.
    async fn go(&self, visitor: &mut Visitor, next: &str) -> String {
        let begun = self.get(visitor, &format!("/login/openid?next={next}")).await.expect(303);
        assert_eq!(begun.header("cache-control"), "no-store");
        let location = begun.header("location");
        let sent_back = self.provider.authorize(location);
        let url = Url::parse(location).unwrap();
        let redirect = url.query_pairs().find(|(name, _)| name == "redirect_uri").unwrap().1;
        assert_eq!(redirect, "https://cloud.example/login/openid/callback");
        back(&[("code", &sent_back.code), ("state", &sent_back.state)])
    }

    async fn log_in(&self, visitor: &mut Visitor) -> Answer {
        let callback = self.go(visitor, "/account").await;
        self.get(visitor, &callback).await
    }

    async fn is_logged_in(&self, visitor: &mut Visitor) -> bool {
        self.get(visitor, "/account").await.status.as_u16() == 200
    }

    /// Operations and kinds of actors of the newest records. No record holds what makes a login.
    async fn recorded(&self, count: usize) -> Vec<String> {
        let store = &self.installation.app.store;
        let records = store.audit_stretch(INSTALLATION, 0, i64::MAX, 10_000).await.unwrap();
        let text = serde_json::to_string(&records).unwrap();
        let token = self.provider.does(|script| script.last_token.clone());
        assert!(!text.contains("code+") && (token.is_empty() || !text.contains(&token)));
        let named = records.iter().map(|record| format!("{} {}", record.operation, record.actor.kind));
        let named: Vec<_> = named.collect();
        named[named.len() - count..].to_vec()
    }
}

fn back(fields: &[(&str, &str)]) -> String {
    format!("/login/openid/callback?{}", Serializer::new(String::new()).extend_pairs(fields).finish())
}

async fn somebody_logs_in(installation: Installation) {
    let place = Place::on(installation, |_| ()).await;
    let mut visitor = Visitor::default();
    let page = place.get(&mut visitor, "/login?next=/device%3Fuser_code%3DA").await.expect(200);
    let link = "href=\"/login/openid?next=%2Fdevice%3Fuser_code%3DA\"";
    assert!(
        page.text.contains(link) && page.text.contains("Log in with Example &lt;ID&gt;"),
        "{}",
        page.text
    );
    assert!(page.text.contains("name=\"password\""));

    // The provider knows somebody who has no account, although name and mail address are those of one.
    place.claims(&json!({
        "preferred_username": "tenant", "email": "tenant@example.org", "email_verified": true,
    }));
    let refused = place.log_in(&mut visitor).await.expect(403);
    assert!(refused.text.contains("cloister accounts link NAME --openid-subject SUBJECT"));
    assert!(refused.text.contains(&format!("<dd>{SUBJECT}</dd>")), "what it is, and not in a command");
    assert!(visitor.0.keys().all(|name| name != SESSION));

    place.link_tenant().await;
    let callback = place.go(&mut visitor, "/device%3Fuser_code%3DA").await;
    let flow = visitor.clone();
    let done = place.get(&mut visitor, &callback).await.expect(303);
    assert_eq!((done.header("location"), done.header("cache-control")), ("/device?user_code=A", "no-store"));
    assert_eq!(visitor.0.keys().collect::<Vec<_>>(), [SESSION]);
    let account = place.get(&mut visitor, "/account").await.expect(200).text;
    assert!(account.contains(SUBJECT) && account.contains("tenant@example.org"));
    // Who is logged in needs no provider.
    let away = place.get(&mut visitor, "/login/openid?next=/device").await.expect(303);
    assert_eq!(away.header("location"), "/device");
    // State and code work once.
    let replayed = place.get(&mut flow.clone(), &callback).await.expect(400);
    assert!(replayed.text.contains("used before"), "{}", replayed.text);
    assert_eq!(place.recorded(2).await, ["admin_set_user_openid key", "log_in person"]);
}

#[tokio::test]
async fn somebody_who_is_linked_logs_in() {
    somebody_logs_in(Installation::new().await).await;
}

#[tokio::test]
async fn somebody_who_is_linked_logs_in_on_postgres() {
    somebody_logs_in(Installation::on_postgres().await).await;
}

#[tokio::test]
async fn an_answer_counts_in_the_browser_that_asked_only() {
    let place = Place::new(|_| ()).await;
    place.link_tenant().await;
    let mut visitor = Visitor::default();
    let callback = place.go(&mut visitor, "/account").await;
    // Somebody else's answer is put under the browser's nose; nothing of its own is used up by that.
    let (mut attacker, mut stranger) = (Visitor::default(), Visitor::default());
    let foreign = place.go(&mut attacker, "/account").await;
    place.get(&mut visitor, &foreign).await.expect(400);
    place.get(&mut stranger, &callback).await.expect(400);
    let state = callback.split("state=").nth(1).unwrap();
    for wrong in [
        "/login/openid/callback".to_owned(),
        back(&[("code", "x"), ("state", "")]),
        back(&[("code", "x"), ("state", &state.to_lowercase())]),
        format!("{callback}&code=another"),
        format!("{callback}&state={state}"),
    ] {
        place.get(&mut visitor, &wrong).await.expect(400);
    }
    assert_eq!(place.provider.count("token"), 0);
    place.get(&mut visitor, &callback).await.expect(303);
    assert!(place.is_logged_in(&mut visitor).await && !place.is_logged_in(&mut attacker).await);
}

#[tokio::test]
async fn a_login_lasts_ten_minutes() {
    let place = Place::new(|_| ()).await;
    place.link_tenant().await;
    let mut visitor = Visitor::default();
    let callback = place.go(&mut visitor, "/account").await;
    place.installation.app.clock.advance_ms(10 * 60 * 1000);
    place.get(&mut visitor, &callback).await.expect(400);
    let callback = place.go(&mut visitor, "/account").await;
    place.installation.app.clock.advance_ms(10 * 60 * 1000 - 1);
    place.get(&mut visitor, &callback).await.expect(303);
}

#[tokio::test]
async fn nobody_is_sent_elsewhere_afterwards() {
    let place = Place::new(|_| ()).await;
    place.link_tenant().await;
    for next in ["https://evil.example/", "//evil.example/", "/%5Cevil.example/", ""] {
        let mut visitor = Visitor::default();
        let callback = place.go(&mut visitor, next).await;
        let done = place.get(&mut visitor, &callback).await.expect(303);
        assert_eq!(done.header("location"), "/account", "{next}");
    }
}

#[tokio::test]
async fn unknown_people_get_an_account_if_the_operator_says_so() {
    let place = Place::new(|config| config.unknown_people = UnknownPeople::Create).await;
    let mut visitor = Visitor::default();
    let claims =
        json!({"preferred_username": "Ada@corp", "email": "ada@example.org", "email_verified": true});
    place.claims(&claims);
    place.log_in(&mut visitor).await.expect(303);
    let account = place.get(&mut visitor, "/account").await.expect(200).text;
    assert!(
        account.contains("ada@example.org")
            && account.contains("ada (ada)")
            && account.contains("use workspaces")
    );
    assert_eq!(place.recorded(2).await, ["join_by_openid person", "log_in person"]);
    // The next time it is the same person, whatever else the provider says.
    place.claims(
        &json!({"preferred_username": "tenant", "email": "tenant@example.org", "email_verified": true}),
    );
    let mut again = Visitor::default();
    place.log_in(&mut again).await.expect(303);
    assert!(place.get(&mut again, "/account").await.expect(200).text.contains("ada@example.org"));
    assert_eq!(place.recorded(1).await, ["log_in person"]);
    let users = place.admins("GET", "/admin/users", Value::Null).await.expect(200).json();
    let ada = users.as_array().unwrap().iter().find(|user| user["username"] == "ada").unwrap();
    assert_eq!((&ada["role"], &ada["openid_subject"]), (&json!("user"), &json!(SUBJECT)));

    // A name that somebody has is nobody else's, and neither is the name of a workspace.
    for name in ["tenant", "operator", "ada"] {
        place.claims(&json!({"sub": "another", "preferred_username": name}));
        let refused = place.log_in(&mut Visitor::default()).await.expect(403);
        assert!(refused.text.contains("already, who may be somebody else"), "{}", refused.text);
    }
    for claims in [json!({"sub": "another"}), json!({"sub": "another", "preferred_username": "../x"})] {
        place.claims(&claims);
        let refused = place.log_in(&mut Visitor::default()).await.expect(403);
        assert!(refused.text.contains("names no user name"), "{}", refused.text);
    }
    // A mail address that the provider does not vouch for is not kept.
    place.claims(&json!({"sub": "eve", "preferred_username": "eve", "email": "tenant@example.org"}));
    let mut eve = Visitor::default();
    place.log_in(&mut eve).await.expect(303);
    assert!(!place.get(&mut eve, "/account").await.expect(200).text.contains("tenant@example.org"));
}

#[tokio::test]
async fn only_those_are_let_in_whom_the_operator_lets_in() {
    let place = Place::new(|config| config.allowed_email_domains = vec!["example.org".into()]).await;
    place.link_tenant().await;
    for (claims, status) in [
        (json!({"email": "a@example.org", "email_verified": true}), 303),
        (json!({"email": "a@example.org", "email_verified": false}), 403),
        (json!({"email": "a@example.com", "email_verified": true}), 403),
    ] {
        place.claims(&claims);
        place.log_in(&mut Visitor::default()).await.expect(status);
    }
}

#[tokio::test]
async fn a_second_factor_belongs_to_this_login_too() {
    let place = Place::new(|_| ()).await;
    place.link_tenant().await;
    let backup = place.installation.logged_in().await.enrol().await;
    let mut visitor = Visitor::default();
    let callback = place.go(&mut visitor, "/device").await;
    let before = visitor.clone();
    let half = place.get(&mut visitor, &callback).await.expect(303);
    assert_eq!(half.header("location"), "/login/openid/code");
    assert!(!place.is_logged_in(&mut visitor).await);
    assert_ne!(before.0[FLOW], visitor.0[FLOW]);
    // What came back is used up, and the former cookie is worth nothing.
    place.get(&mut visitor, &callback).await.expect(400);
    assert_eq!(
        place.get(&mut before.clone(), "/login/openid/code").await.expect(303).header("location"),
        "/login"
    );
    let page = place.get(&mut visitor, "/login/openid/code").await.expect(200);
    assert!(page.text.contains("name=\"code\""));
    for wrong in ["", "000000", "BBBB-BBBB-BBBB"] {
        place.post(&mut visitor, "/login/openid/code", &[("code", wrong)]).await.expect(403);
    }
    let foreign = Request::post("/login/openid/code")
        .header("content-type", "application/x-www-form-urlencoded")
        .header("sec-fetch-site", "cross-site");
    place.send(&mut visitor, foreign, format!("code={}", backup[0])).await.expect(403);
    let waiting = visitor.clone();
    let done = place.post(&mut visitor, "/login/openid/code", &[("code", &backup[0])]).await.expect(303);
    assert_eq!(done.header("location"), "/device");
    assert!(place.is_logged_in(&mut visitor).await);
    assert_eq!(visitor.0.keys().collect::<Vec<_>>(), [SESSION]);
    let again =
        place.post(&mut waiting.clone(), "/login/openid/code", &[("code", &backup[1])]).await.expect(303);
    assert_eq!(again.header("location"), "/login", "once");
    let expected =
        ["refuse_log_in stranger", "refuse_log_in stranger", "refuse_log_in stranger", "log_in person"];
    assert_eq!(place.recorded(4).await, expected);

    // Codes are guessed at as seldom as anywhere.
    let mut guesser = Visitor::default();
    place.log_in(&mut guesser).await.expect(303);
    for _ in 0..5 {
        place.post(&mut guesser, "/login/openid/code", &[("code", "000000")]).await.expect(403);
    }
    let refused = place.post(&mut guesser, "/login/openid/code", &[("code", &backup[2])]).await.expect(429);
    assert_eq!(refused.header("retry-after"), "1");
    // It waits for ten minutes.
    place.installation.app.clock.advance_ms(10 * 60 * 1000);
    let late = place.post(&mut guesser, "/login/openid/code", &[("code", &backup[2])]).await.expect(303);
    assert_eq!(late.header("location"), "/login");
    assert!(!place.is_logged_in(&mut guesser).await);
}

#[tokio::test]
async fn the_second_factor_of_the_provider_counts_where_the_operator_trusts_it() {
    let place = Place::new(|config| config.trusted_amr = vec!["mfa".into()]).await;
    place.link_tenant().await;
    place.installation.logged_in().await.enrol().await;
    for (claims, goes_to) in [
        (json!({"amr": ["pwd", "mfa"]}), "/account"),
        (json!({"amr": ["pwd"]}), "/login/openid/code"),
        (json!({}), "/login/openid/code"),
    ] {
        place.claims(&claims);
        let done = place.log_in(&mut Visitor::default()).await.expect(303);
        assert_eq!(done.header("location"), goes_to, "{claims}");
    }
}

#[tokio::test]
async fn who_is_linked_no_longer_is_logged_out_and_stays_out() {
    let place = Place::new(|_| ()).await;
    place.link_tenant().await;
    let mut visitor = Visitor::default();
    place.log_in(&mut visitor).await.expect(303);
    let removed = place.admins("PUT", "/admin/users/tenant/openid", json!({})).await.expect(200).json();
    assert_eq!(removed["openid_subject"], Value::Null);
    assert!(!place.is_logged_in(&mut visitor).await);
    place.log_in(&mut visitor).await.expect(403);
}

#[tokio::test]
async fn administrators_say_whom_the_provider_means() {
    let place = Place::new(|_| ()).await;
    let ada = json!({"username": "ada", "openid_subject": SUBJECT});
    let made = place.admins("POST", "/admin/users", ada).await.expect(201).json();
    assert_eq!((&made["url"], &made["expires_at"]), (&Value::Null, &Value::Null));
    assert_eq!(made["user"]["openid_subject"], SUBJECT);
    let mut visitor = Visitor::default();
    place.log_in(&mut visitor).await.expect(303);
    let account = place.get(&mut visitor, "/account").await.expect(200).text;
    // There is no password to change, and none to set a second factor up with.
    assert!(!account.contains("type=\"password\""), "{account}");

    let body = |subject: &str| json!({ "openid_subject": subject });
    let path = "/admin/users/tenant/openid";
    let taken = place.admins("PUT", path, body(SUBJECT)).await.expect(400);
    assert!(taken.text.contains("Another user logs in as"), "{}", taken.text);
    let bob = json!({"username": "bob", "openid_subject": SUBJECT});
    place.admins("POST", "/admin/users", bob).await.expect(400);
    for subject in ["", "\u{e4}", "a\n", &"x".repeat(256)] {
        place.admins("PUT", path, body(subject)).await.expect(422);
        let bob = json!({"username": "bob", "openid_subject": subject});
        place.admins("POST", "/admin/users", bob).await.expect(422);
    }
    place.admins("PUT", "/admin/users/nobody/openid", body("1")).await.expect(404);
    place.installation.call("PUT", path, body("1")).await.expect(403);
    let users = place.admins("GET", "/admin/users", Value::Null).await.expect(200).text;
    assert!(!users.contains("\"bob\""), "nothing was done");

    // Where there is no provider, it means nobody, and nobody is sent there.
    let plain = Installation::new().await;
    let admin = [("x-api-key", plain.admin.as_str())];
    let refused = plain.call_with(&admin, "PUT", path, body("1")).await.expect(400);
    assert!(refused.text.contains("--openid-provider-file"), "{}", refused.text);
    for path in ["/login/openid", "/login/openid/callback?code=a&state=b"] {
        plain.send(Request::get(path).body(Body::empty()).unwrap()).await.expect(404);
    }
    let page = plain.send(Request::get("/login").body(Body::empty()).unwrap()).await.expect(200);
    assert!(!page.text.contains("/login/openid"));
}

#[tokio::test]
async fn passwords_can_be_ruled_out() {
    let mut place = Place::new(|_| ()).await;
    let mut known = place.installation.logged_in().await;
    let cookie = known.get("/account").await.expect(200);
    assert!(cookie.text.contains("Change the password"));
    let session = known.cookie.clone();
    let link = place.admins("POST", "/admin/users/tenant/link", Value::Null).await.expect(200).json();
    let link = link["url"].as_str().unwrap().strip_prefix("https://cloud.example").unwrap().to_owned();
    let openid =
        Openid::open(place.config(|config| config.password_login = false), &place.installation.app.clock);
    place.serve(openid.unwrap());
    let mut visitor = Visitor::default();
    let page = place.get(&mut visitor, "/login").await.expect(200).text;
    assert!(page.contains("/login/openid") && !page.contains("type=\"password\""), "{page}");
    let fields = [("username", "tenant"), ("password", "four random words")];
    let refused = place.post(&mut visitor, "/login", &fields).await.expect(403);
    assert!(refused.text.contains("passwords are not used"), "{}", refused.text);
    place.get(&mut visitor, &link).await.expect(403);
    let fields = [("new", "another password"), ("again", "another password")];
    place.post(&mut visitor, &link, &fields).await.expect(403);
    let (name, value) = session.split_once('=').unwrap();
    visitor.0.insert(name.to_owned(), value.to_owned());
    let account = place.get(&mut visitor, "/account").await.expect(200).text;
    assert!(!account.contains("Change the password"), "{account}");
}

#[tokio::test]
async fn a_provider_that_fails_is_told_of_in_words() {
    let discovery = ".well-known/openid-configuration";
    for (what, fault) in [
        (discovery, Fault::Answers(500, String::new())),
        (discovery, Fault::Floods),
        (discovery, Fault::Hangs),
        ("token", Fault::Answers(503, "{}".into())),
        ("keys", Fault::Answers(200, "[]".into())),
    ] {
        let mut place = Place::new(|_| ()).await;
        let another = || Openid::open(place.config(|_| ()), &place.installation.app.clock).unwrap();
        if matches!(fault, Fault::Hangs) {
            let hurried = another().within(Duration::from_millis(300));
            place.serve(hurried);
        }
        place.link_tenant().await;
        place.provider.does(|script| script.faults.insert(what, fault.clone()));
        let mut visitor = Visitor::default();
        let answer = if what == discovery {
            place.get(&mut visitor, "/login/openid").await
        } else {
            place.log_in(&mut visitor).await
        };
        let answer = answer.expect(502);
        assert!(answer.text.contains("does not answer as it should") && !answer.text.contains("code+"));
        assert_eq!(answer.header("retry-after"), "5");
        assert!(!place.is_logged_in(&mut visitor).await);
        place.provider.does(|script| script.faults.clear());
        place.installation.app.clock.advance_ms(5_000);
        if !matches!(fault, Fault::Hangs) {
            place.log_in(&mut visitor).await.expect(303);
        }
    }
}

#[tokio::test]
async fn a_token_that_does_not_count_lets_nobody_in() {
    let place = Place::new(|_| ()).await;
    place.link_tenant().await;
    for claims in
        [json!({"nonce": "another"}), json!({"iss": "https://evil.example"}), json!({"aud": "another"})]
    {
        place.claims(&claims);
        let mut visitor = Visitor::default();
        let refused = place.log_in(&mut visitor).await.expect(403);
        assert!(refused.text.contains("in a way that can be relied on"), "{}", refused.text);
        assert!(!visitor.0.contains_key(SESSION));
    }
    place.claims(&json!({}));
    place.provider.does(|script| script.signer = Signer::None);
    place.log_in(&mut Visitor::default()).await.expect(403);
    // The person changed his mind.
    let mut visitor = Visitor::default();
    let callback = place.go(&mut visitor, "/account").await;
    let state = callback.split("state=").nth(1).unwrap();
    let declined = back(&[("error", "access_denied"), ("error_description", "<b>"), ("state", state)]);
    let refused = place.get(&mut visitor, &declined).await.expect(403);
    assert!(refused.text.contains("did not let you through") && !refused.text.contains("<b>"));
    place.get(&mut visitor, &callback).await.expect(400);
}

#[tokio::test]
async fn an_address_begins_only_so_often() {
    let place = Place::new(|_| ()).await;
    let begin = async |from: &str| {
        let peer: SocketAddr = from.parse().unwrap();
        let request = Request::get("/login/openid").extension(ConnectInfo(peer));
        place.send(&mut Visitor::default(), request, String::new()).await
    };
    for _ in 0..30 {
        begin("192.0.2.1:1000").await.expect(303);
    }
    assert_eq!(begin("192.0.2.1:2000").await.expect(429).header("retry-after"), "2");
    begin("192.0.2.2:1000").await.expect(303);
}
