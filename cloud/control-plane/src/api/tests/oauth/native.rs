//! Applications on the person's own computer (RFC 8252).

use super::super::Installation;
use super::{address, asked, told};

/// A scheme of its own, with what looks like a host.
pub(super) const CALLBACK: &str = "com.example.phone://callback/here";

#[tokio::test]
async fn an_application_with_a_scheme_of_its_own_gets_its_answer() {
    let installation = Installation::new().await;
    let mut browser = installation.logged_in().await;
    let changes = [("client_id", "phone"), ("redirect_uri", CALLBACK)];
    let shown = browser.get(&address(&asked(&changes))).await.expect(200);
    // An origin of such an address is `null`, and a browser would not follow the answer there.
    let policy = shown.header("content-security-policy");
    assert!(policy.contains("form-action 'self' com.example.phone:;"), "{policy}");
    assert!(shown.text.contains("a program on this computer") && !shown.text.contains("callback</strong>"));
    let answer = browser.allow(&changes, "read").await.expect(303);
    assert!(answer.header("location").starts_with(&format!("{CALLBACK}?code=")));
    let token = installation.exchange(&told(&answer, "code").unwrap(), &changes).await.expect(200).json();
    assert_eq!(installation.me(&token).await, 200);
}

#[tokio::test]
async fn an_application_on_loopback_is_known_at_any_port() {
    let installation = Installation::new().await;
    let mut browser = installation.logged_in().await;
    let changes = [("client_id", "desktop"), ("redirect_uri", "http://127.0.0.1:49152/callback")];
    let shown = browser.get(&address(&asked(&changes))).await.expect(200);
    let policy = shown.header("content-security-policy");
    assert!(policy.contains("form-action 'self' http://127.0.0.1:49152;"), "{policy}");
    let answer = browser.allow(&changes, "admin").await.expect(303);
    let code = told(&answer, "code").unwrap();
    let token = installation.exchange(&code, &changes).await.expect(200).json();
    assert_eq!(installation.me(&token).await, 200);
}
