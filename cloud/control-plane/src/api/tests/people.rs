//! People who log in with a browser.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use serde_json::{Value, json};
use url::form_urlencoded::Serializer;

use super::{Answer, Installation};
use crate::audit::INSTALLATION;

const PASSWORD: &str = "four random words";
const OTHER: &str = "five other random words";

/// A browser, which keeps a cookie.
pub(super) struct Browser<'a> {
    installation: &'a Installation,
    pub(super) cookie: String,
}

impl Installation {
    pub(super) fn browser(&self) -> Browser<'_> {
        Browser { installation: self, cookie: String::new() }
    }

    async fn admins(&self, method: &str, path: &str, body: Value) -> Answer {
        self.call_with(&[("x-api-key", &self.admin)], method, path, body).await
    }

    /// A link for the tenant.
    async fn link(&self, body: Value) -> String {
        let made = self.admins("POST", "/admin/users/tenant/link", body).await.expect(200).json();
        let url = made["url"].as_str().unwrap();
        url.strip_prefix("https://cloud.example").unwrap().to_owned()
    }

    /// The tenant's browser after the tenant has set a password and logged in.
    pub(super) async fn logged_in(&self) -> Browser<'_> {
        let mut browser = self.browser();
        let link = self.link(Value::Null).await;
        browser.post(&link, &[("new", PASSWORD), ("again", PASSWORD)]).await.expect(303);
        browser.log_in(PASSWORD, "").await.expect(303);
        browser
    }

    /// What the tenant's authenticator shows.
    pub(super) async fn code(&self) -> String {
        let id = self.app.store.user_named("tenant").await.unwrap().unwrap();
        let sealed = self.app.store.second_factor(id).await.unwrap().unwrap().sealed_secret;
        self.app.people.shown(id, &sealed, self.app.clock.now_ms())
    }

    /// Operations of the newest records of the installation, and who did them.
    async fn recorded(&self, count: usize) -> Vec<(String, String)> {
        let records = self.app.store.audit_stretch(INSTALLATION, 0, i64::MAX, 10_000).await.unwrap();
        let text = serde_json::to_string(&records).unwrap();
        assert!(!text.contains(PASSWORD) && !text.contains("argon2"));
        let named = |record: &cloister_management_api::AuditRecord| {
            (record.operation.clone(), record.actor.kind.clone())
        };
        records[records.len() - count..].iter().map(named).collect()
    }
}

impl Browser<'_> {
    pub(super) async fn send(&mut self, request: axum::http::request::Builder, body: String) -> Answer {
        let mut request = request.header("host", "cloud.example");
        if !self.cookie.is_empty() {
            request = request.header("cookie", &self.cookie);
        }
        let answer = self.installation.send(request.body(Body::from(body)).unwrap()).await;
        if let Some(set) = answer.headers.get("set-cookie") {
            let set = set.to_str().unwrap();
            for part in ["__Host-cloister-session=", "; HttpOnly", "; SameSite=Lax", "; Secure", "; Path=/"] {
                assert!(set.contains(part), "{set}");
            }
            self.cookie = set.split(';').next().unwrap().to_owned();
        }
        let policy = answer.header("content-security-policy");
        assert!(policy.is_empty() || policy.starts_with("default-src 'none';"), "{policy}");
        // Forms of a page that sends no referrer come from nowhere, where browsers do not say more.
        assert_ne!(answer.header("referrer-policy"), "no-referrer");
        assert!(!answer.text.contains("<script") && !answer.text.contains(" style="), "{}", answer.text);
        answer
    }

    pub(super) async fn get(&mut self, path: &str) -> Answer {
        self.send(Request::get(path), String::new()).await
    }

    /// Sends a form as it is.
    pub(super) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let request = Request::post(path)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("sec-fetch-site", "same-origin");
        let body = Serializer::new(String::new()).extend_pairs(fields).finish();
        self.send(request, body).await
    }

    /// Sends a form of a page of this session.
    pub(super) async fn submit(&mut self, page: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        let page = self.get(page).await.expect(200).text;
        let (_, rest) = page.split_once("name=\"form\" value=\"").unwrap();
        let form = rest.split('"').next().unwrap();
        let fields: Vec<_> = [("form", form)].into_iter().chain(fields.iter().copied()).collect();
        self.post(path, &fields).await
    }

    async fn log_in(&mut self, password: &str, code: &str) -> Answer {
        let fields = [("username", "tenant"), ("password", password), ("code", code), ("next", "/account")];
        self.post("/login", &fields).await
    }

    /// Sets an authenticator up; the backup codes.
    pub(super) async fn enrol(&mut self) -> Vec<String> {
        let (account, factor) = ("/account", "/account/second-factor");
        self.submit(account, factor, &[("password", PASSWORD)]).await.expect(303);
        let code = self.installation.code().await;
        let shown =
            self.submit(factor, "/account/second-factor/confirm", &[("code", &code)]).await.expect(200);
        codes(&shown.text)
    }

    async fn is_logged_in(&mut self) -> bool {
        self.get("/account").await.status.as_u16() == 200
    }
}

fn codes(page: &str) -> Vec<String> {
    page.split("<li>").skip(1).map(|part| part.split('<').next().unwrap().to_owned()).collect()
}

fn pair(operation: &str, actor: &str) -> (String, String) {
    (operation.to_owned(), actor.to_owned())
}

#[tokio::test]
async fn somebody_with_a_link_sets_a_password_and_logs_in() {
    let installation = Installation::new().await;
    let made =
        installation.admins("POST", "/admin/users", json!({"username": "ada", "email": "ada@example.org"}));
    let made = made.await.expect(201).json();
    assert_eq!(made["user"]["workspaces"], json!(["ada"]));
    assert_eq!(made["user"]["has_password"], false);
    let link = made["url"].as_str().unwrap().strip_prefix("https://cloud.example").unwrap().to_owned();
    let mut browser = installation.browser();
    assert!(browser.get(&link).await.expect(200).text.contains("value=\"ada\""));
    for (new, again, words) in [
        ("short", "short", "at least 12 characters"),
        (PASSWORD, OTHER, "are not the same"),
        ("", "", "at least 12 characters"),
    ] {
        let refused = browser.post(&link, &[("new", new), ("again", again)]).await.expect(400);
        assert!(refused.text.contains(words), "{}", refused.text);
    }
    let set = browser.post(&link, &[("new", PASSWORD), ("again", PASSWORD)]).await.expect(303);
    assert_eq!(set.header("location"), "/login");
    // It works once.
    browser.post(&link, &[("new", OTHER), ("again", OTHER)]).await.expect(404);
    browser.get(&link).await.expect(404);

    let fields = [("username", "Ada "), ("password", PASSWORD), ("next", "/device?user_code=A")];
    let logged_in = browser.post("/login", &fields).await.expect(303);
    assert_eq!(logged_in.header("location"), "/device?user_code=A");
    let account = browser.get("/account").await.expect(200).text;
    assert!(account.contains("ada@example.org") && !account.contains(PASSWORD));
    // Who is logged in needs no form.
    assert_eq!(browser.get("/login?next=/device").await.expect(303).header("location"), "/device");

    browser.submit("/account", "/logout", &[]).await.expect(303);
    assert_eq!(browser.cookie, "__Host-cloister-session=");
    let away = browser.get("/account").await.expect(303);
    assert_eq!(away.header("location"), "/login?next=%2Faccount");
    let expected = [
        ("admin_create_user", "key"),
        ("set_password", "person"),
        ("log_in", "person"),
        ("log_out", "person"),
    ];
    assert_eq!(installation.recorded(4).await, expected.map(|(operation, actor)| pair(operation, actor)));
}

#[tokio::test]
async fn the_account_says_how_one_logs_in() {
    let installation = Installation::new().await;
    let members = async || {
        let user = installation.call("GET", "/auth/me", Value::Null).await.expect(200).json()["user"].clone();
        [&user["flag_has_password"], &user["totp_enabled"], &user["has_backup_codes"]]
            .map(|flag| flag == true)
    };
    assert_eq!(members().await, [false, false, false]);
    let mut browser = installation.logged_in().await;
    assert_eq!(members().await, [true, false, false]);
    browser.enrol().await;
    assert_eq!(members().await, [true, true, true]);
    let users = installation.admins("GET", "/admin/users", Value::Null).await.expect(200).json();
    let tenant = users.as_array().unwrap().iter().find(|user| user["username"] == "tenant").unwrap();
    assert_eq!((&tenant["has_password"], &tenant["totp_enabled"]), (&json!(true), &json!(true)));
}

#[tokio::test]
async fn nothing_tells_a_wrong_password_from_a_user_that_is_not_there() {
    let installation = Installation::new().await;
    let mut browser = installation.logged_in().await;
    browser.cookie.clear();
    let mut words = Vec::new();
    for username in ["tenant", "operator", "nobody", ""] {
        let fields = [("username", username), ("password", "a wrong password")];
        let refused = browser.post("/login", &fields).await.expect(403);
        words.push(refused.text.replace(&format!("value=\"{username}\""), ""));
    }
    assert!(words.iter().all(|text| *text == words[0]));
    assert!(browser.cookie.is_empty());
    // Records are about users that there are.
    let expected = [("log_in", "person"), ("refuse_log_in", "stranger"), ("refuse_log_in", "stranger")];
    assert_eq!(installation.recorded(3).await, expected.map(|(operation, actor)| pair(operation, actor)));
}

#[tokio::test]
async fn who_guesses_wrong_has_to_wait_and_so_has_the_next() {
    let installation = Installation::new().await;
    let mut browser = installation.logged_in().await;
    browser.cookie.clear();
    for name in ["tenant", "nobody"] {
        let fields = [("username", name), ("password", "a wrong password")];
        for _ in 0..5 {
            browser.post("/login", &fields).await.expect(403);
        }
        let refused = browser.post("/login", &fields).await.expect(429);
        assert_eq!(refused.header("retry-after"), "1");
    }
    // The right password has to wait, too.
    browser.log_in(PASSWORD, "").await.expect(429);
    installation.app.clock.advance_ms(1_000);
    browser.log_in("a wrong password", "").await.expect(403);
    assert_eq!(browser.log_in(PASSWORD, "").await.expect(429).header("retry-after"), "2");
    installation.app.clock.advance_ms(2_000);
    browser.log_in(PASSWORD, "").await.expect(303);
    // A right guess ends it.
    browser.cookie.clear();
    for _ in 0..5 {
        browser.log_in("a wrong password", "").await.expect(403);
    }
}

#[tokio::test]
async fn an_address_guesses_only_so_often() {
    let installation = Installation::new().await;
    let mut browser = installation.browser();
    let mut guess = async |from: &str, name: String| {
        let peer: SocketAddr = from.parse().unwrap();
        let request = Request::post("/login")
            .header("content-type", "application/x-www-form-urlencoded")
            .extension(ConnectInfo(peer));
        browser.send(request, format!("username={name}&password=x")).await
    };
    for guessed in 0..30 {
        guess("[2001:db8::1]:1000", format!("user-{guessed}")).await.expect(403);
    }
    let refused = guess("[2001:db8::2]:2000", "another".into()).await.expect(429);
    assert_eq!(refused.header("retry-after"), "2");
    guess("[2001:db8:0:1::1]:1000", "another".into()).await.expect(403);
}

#[tokio::test]
async fn a_code_belongs_to_every_login_and_works_once() {
    let installation = Installation::new().await;
    let mut browser = installation.logged_in().await;
    let factor = "/account/second-factor";
    // A session alone sets nothing up.
    browser.submit("/account", factor, &[("password", "a wrong password")]).await.expect(403);
    browser.submit("/account", factor, &[("password", PASSWORD)]).await.expect(303);
    let page = browser.get(factor).await.expect(200);
    assert!(page.text.contains("<svg") && page.header("cache-control") == "no-store");
    // It does not count before a code has shown that it arrived.
    browser.submit(factor, "/account/second-factor/confirm", &[("code", "000000")]).await.expect(403);
    installation.browser().log_in(PASSWORD, "").await.expect(303);
    let code = installation.code().await;
    let shown =
        browser.submit(factor, "/account/second-factor/confirm", &[("code", &code)]).await.expect(200);
    let backup = codes(&shown.text);
    assert_eq!(backup.len(), 10);
    // The secret is shown no more.
    browser.get(factor).await.expect(303);

    let mut other = installation.browser();
    for wrong in ["", &code, "000000", "BBBB-BBBB-BBBB"] {
        other.log_in(PASSWORD, wrong).await.expect(403);
    }
    installation.app.clock.advance_ms(60_000);
    let code = installation.code().await;
    other.log_in(PASSWORD, &code).await.expect(303);
    installation.browser().log_in(PASSWORD, &code).await.expect(403);
    let typed = backup[3].to_lowercase().replace('-', " ");
    installation.browser().log_in(PASSWORD, &typed).await.expect(303);
    installation.browser().log_in(PASSWORD, &typed).await.expect(403);
    let text = serde_json::to_string(
        &installation.app.store.audit_stretch(INSTALLATION, 0, i64::MAX, 99).await.unwrap(),
    );
    assert!(!text.unwrap().contains(&backup[3]));
}

#[tokio::test]
async fn the_second_factor_is_changed_with_a_code_only() {
    let installation = Installation::new().await;
    let mut browser = installation.logged_in().await;
    let backup = browser.enrol().await;
    for path in ["/account/backup-codes", "/account/second-factor/remove"] {
        browser.submit("/account", path, &[("code", "000000")]).await.expect(403);
    }
    let renewed =
        browser.submit("/account", "/account/backup-codes", &[("code", &backup[0])]).await.expect(200);
    let renewed = codes(&renewed.text);
    assert!(renewed.len() == 10 && !renewed.iter().any(|code| backup.contains(code)));
    installation.browser().log_in(PASSWORD, &backup[1]).await.expect(403);
    browser.submit("/account", "/account/second-factor/remove", &[("code", &renewed[0])]).await.expect(303);
    installation.browser().log_in(PASSWORD, "").await.expect(303);
    let expected = [
        ("confirm_second_factor", "person"),
        ("refuse_log_in", "stranger"),
        ("refuse_log_in", "stranger"),
        ("renew_backup_codes", "person"),
        ("refuse_log_in", "stranger"),
        ("remove_second_factor", "person"),
        ("log_in", "person"),
    ];
    assert_eq!(installation.recorded(7).await, expected.map(|(operation, actor)| pair(operation, actor)));
}

#[tokio::test]
async fn another_password_ends_every_other_session() {
    let installation = Installation::new().await;
    let mut browser = installation.logged_in().await;
    let mut other = installation.browser();
    other.log_in(PASSWORD, "").await.expect(303);
    let change = |current, new| [("current", current), ("new", new), ("again", new)];
    browser.submit("/account", "/account/password", &change("a wrong password", OTHER)).await.expect(403);
    browser.submit("/account", "/account/password", &change(PASSWORD, "short")).await.expect(400);
    assert!(other.is_logged_in().await);
    browser.submit("/account", "/account/password", &change(PASSWORD, OTHER)).await.expect(303);
    assert!(browser.is_logged_in().await && !other.is_logged_in().await);
    other.log_in(PASSWORD, "").await.expect(403);
    other.log_in(OTHER, "").await.expect(303);

    // So does the operator's link, which takes the second factor along when it is asked to.
    let link = installation.link(Value::Null).await;
    let newer = installation.link(json!({"remove_second_factor": true})).await;
    other.get(&link).await.expect(404);
    assert!(other.is_logged_in().await, "until it is used");
    installation.browser().post(&newer, &[("new", PASSWORD), ("again", PASSWORD)]).await.expect(303);
    assert!(!browser.is_logged_in().await && !other.is_logged_in().await);
}

#[tokio::test]
async fn sessions_and_links_end_by_themselves() {
    let installation = Installation::new().await;
    let mut browser = installation.logged_in().await;
    for _ in 0..11 {
        installation.app.clock.advance_ms(60 * 60 * 1000);
        assert!(browser.is_logged_in().await);
    }
    installation.app.clock.advance_ms(60 * 60 * 1000);
    assert!(!browser.is_logged_in().await, "12 hours old");
    browser.log_in(PASSWORD, "").await.expect(303);
    installation.app.clock.advance_ms(2 * 60 * 60 * 1000);
    assert!(!browser.is_logged_in().await, "not used for two hours");
    let link = installation.link(Value::Null).await;
    installation.app.clock.advance_ms(24 * 60 * 60 * 1000);
    browser.get(&link).await.expect(404);

    let now_ms = installation.app.clock.now_ms();
    let mut change = installation.app.store.upkeep().await.unwrap();
    assert_eq!(change.delete_ended_logins(now_ms).await.unwrap(), 2, "a session and a link");
    change.commit().await.unwrap();
}

#[tokio::test]
async fn forms_of_others_do_nothing() {
    let installation = Installation::new().await;
    let mut browser = installation.logged_in().await;
    for path in ["/logout", "/account/password", "/account/second-factor", "/account/backup-codes"] {
        browser.post(path, &[("form", "0"), ("code", "1")]).await.expect(403);
        let request = Request::post(path)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("sec-fetch-site", "cross-site");
        browser.send(request, String::new()).await.expect(403);
    }
    let request = Request::post("/login").header("content-type", "text/plain");
    browser.send(request, "username=tenant".into()).await.expect(415);
    assert!(browser.is_logged_in().await);
    // A cookie is no credential of the interface.
    let cookie = browser.cookie.clone();
    installation.call_with(&[("cookie", &cookie)], "GET", "/auth/me", Value::Null).await.expect(401);
}

#[tokio::test]
async fn users_are_made_with_names_that_nobody_mistakes() {
    let installation = Installation::new().await;
    let create = async |body: Value| installation.admins("POST", "/admin/users", body).await;
    for username in ["", "Ada", "-ada", "a da", "a/b", "\u{e4}da", &"a".repeat(40)] {
        create(json!({"username": username})).await.expect(422);
    }
    for email in ["ada", "a da@example.org", "@example.org", "ada@"] {
        create(json!({"username": "ada", "email": email})).await.expect(422);
    }
    create(json!({"username": "tenant"})).await.expect(400);
    create(json!({"username": "ada", "workspace": "unknown"})).await.expect(404);
    let made = create(json!({"username": "ada", "workspace": "tenant", "administers": true})).await;
    let made = made.expect(201).json();
    assert_eq!((&made["user"]["role"], &made["user"]["workspaces"]), (&json!("admin"), &json!(["tenant"])));
    installation.admins("POST", "/admin/users/unknown/link", Value::Null).await.expect(404);
    installation.call("POST", "/admin/users", json!({"username": "eve"})).await.expect(403);
}

#[tokio::test]
async fn people_log_in_on_postgresql_too() {
    let installation = Installation::on_postgres().await;
    let mut browser = installation.logged_in().await;
    let backup = browser.enrol().await;
    installation.browser().log_in(PASSWORD, "").await.expect(403);
    installation.browser().log_in(PASSWORD, &backup[0]).await.expect(303);
    installation.app.clock.advance_ms(60_000);
    let code = installation.code().await;
    installation.browser().log_in(PASSWORD, &code).await.expect(303);
    installation.browser().log_in(PASSWORD, &code).await.expect(403);
    let change = [("current", PASSWORD), ("new", OTHER), ("again", OTHER)];
    browser.submit("/account", "/account/password", &change).await.expect(303);
    let now_ms = installation.app.clock.now_ms() + 24 * 60 * 60 * 1000;
    let mut change = installation.app.store.upkeep().await.unwrap();
    assert!(change.delete_ended_logins(now_ms).await.unwrap() > 0);
    change.commit().await.unwrap();
}
