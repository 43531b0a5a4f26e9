//! What a provider says, and what of it counts.

use std::error::Error as _;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::provider::{Fault, Provider, Signer};
use super::{CLIENT, SECRET, config};
use crate::clock::Clock;
use crate::openid::token::TokenFault;
use crate::openid::{Attempt, CameBack, Claimed, Openid, OpenidError};

const REDIRECT: &str = "https://cloud.example/login/openid/callback";

struct Ground {
    provider: Provider,
    openid: Openid,
    clock: Clock,
    dir: TempDir,
}

impl Ground {
    async fn new() -> Self {
        let clock = Clock::manual("2026-01-21T10:00:00Z".parse().unwrap());
        let provider = Provider::start(&clock).await;
        let dir = tempfile::tempdir().unwrap();
        let openid = Openid::open(config(&provider.issuer, dir.path()), &clock).unwrap();
        Self { provider, openid, clock, dir }
    }

    async fn log_in(&self) -> Result<Claimed, OpenidError> {
        self.log_in_from("").await
    }

    async fn log_in_from(&self, issuer: &str) -> Result<Claimed, OpenidError> {
        let attempt = Attempt::of("a cookie").unwrap();
        let url = self.openid.authorization_url(&attempt, REDIRECT).await?;
        let sent_back = self.provider.authorize(url.as_str());
        let came_back = CameBack { code: &sent_back.code, error: "", issuer };
        self.openid.finish(&attempt, REDIRECT, came_back).await
    }

    /// Nobody is named, and nothing of what went over the wire is repeated.
    async fn refused(&self) -> OpenidError {
        let error = self.log_in().await.unwrap_err();
        let mut words = error.to_string();
        let mut source = error.source();
        while let Some(deeper) = source {
            words.push_str(&deeper.to_string());
            source = deeper.source();
        }
        let token = self.provider.does(|script| script.last_token.clone());
        let parts = token.split('.').filter(|part| !part.is_empty());
        for secret in parts.chain([SECRET, "code+"]) {
            assert!(!words.contains(secret), "{words}");
        }
        error
    }

    async fn token_fault(&self, claims: Value) -> TokenFault {
        let mut all = json!({"sub": "248289761001"});
        all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        self.provider.does(|script| script.claims = all);
        match self.refused().await {
            OpenidError::Token(fault) => fault,
            other => panic!("{claims}: {other}"),
        }
    }

    fn now_s(&self) -> i64 {
        self.clock.now_ms() / 1000
    }
}

#[tokio::test]
async fn a_person_is_named_whatever_algorithm_the_provider_prefers() {
    let ground = Ground::new().await;
    let named = ground.log_in().await.unwrap();
    assert_eq!(named.subject, "248289761001");
    for signer in [Signer::rsa(), Signer::ec(), Signer::ed()] {
        ground.provider.does(|script| {
            script.keys = vec![signer.jwk("another")];
            script.key_id = Some("another".into());
            script.signer = signer;
        });
        ground.clock.advance_ms(60 * 60 * 1000);
        ground.log_in().await.unwrap();
        // One key needs no name.
        ground.provider.does(|script| script.key_id = None);
        ground.log_in().await.unwrap();
    }
}

#[tokio::test]
async fn the_client_secret_goes_where_the_provider_wants_it() {
    for methods in [
        json!(["client_secret_post"]),
        json!(["private_key_jwt", "client_secret_basic"]),
        json!(["client_secret_post", "client_secret_basic"]),
    ] {
        let ground = Ground::new().await;
        let document = json!({ "token_endpoint_auth_methods_supported": methods });
        ground.provider.does(|script| script.document = document);
        ground.log_in().await.unwrap();
    }
    let ground = Ground::new().await;
    let document = json!({"token_endpoint_auth_methods_supported": ["private_key_jwt"]});
    ground.provider.does(|script| script.document = document);
    assert!(matches!(ground.refused().await, OpenidError::Methods));
}

#[tokio::test]
async fn a_token_is_from_the_provider_for_this_client_and_this_login() {
    let ground = Ground::new().await;
    let other = "http://127.0.0.1:1/realms/a";
    for (claims, fault) in [
        (json!({"iss": other}), TokenFault::Issuer),
        (json!({"iss": format!("{}/", ground.provider.issuer)}), TokenFault::Issuer),
        (json!({"iss": [ground.provider.issuer]}), TokenFault::Unreadable),
        (json!({"iss": null}), TokenFault::Unreadable),
        (json!({"aud": "another"}), TokenFault::Audience),
        (json!({"aud": []}), TokenFault::Audience),
        (json!({"aud": null}), TokenFault::Unreadable),
        (json!({"aud": [CLIENT, "another"]}), TokenFault::Audience),
        (json!({"aud": [CLIENT, "another"], "azp": "another"}), TokenFault::Audience),
        (json!({"aud": "another", "azp": CLIENT}), TokenFault::Audience),
        (json!({"azp": "another"}), TokenFault::Audience),
        (json!({"nonce": "another"}), TokenFault::Nonce),
        (json!({"nonce": null}), TokenFault::Nonce),
        (json!({"sub": null}), TokenFault::Unreadable),
        (json!({"sub": 7}), TokenFault::Unreadable),
        (json!({"sub": ""}), TokenFault::Subject),
        (json!({"sub": "\u{e4}"}), TokenFault::Subject),
        (json!({"sub": "a\u{0}"}), TokenFault::Subject),
        (json!({"sub": "x".repeat(256)}), TokenFault::Subject),
    ] {
        assert_eq!(ground.token_fault(claims.clone()).await, fault, "{claims}");
    }
    for claims in [
        json!({"aud": [CLIENT]}),
        json!({"aud": [CLIENT, "another"], "azp": CLIENT}),
        json!({"azp": CLIENT}),
        json!({"sub": "x".repeat(255)}),
    ] {
        let mut all = json!({"sub": "248289761001"});
        all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        ground.provider.does(|script| script.claims = all);
        assert!(ground.log_in().await.is_ok(), "{claims}");
    }
}

#[tokio::test]
async fn clocks_may_differ_by_a_minute() {
    let ground = Ground::new().await;
    let now = ground.now_s();
    for (claims, fault) in [
        (json!({"exp": now - 60}), TokenFault::Expired),
        (json!({"exp": "2030"}), TokenFault::Unreadable),
        (json!({"exp": null}), TokenFault::Unreadable),
        (json!({"iat": null}), TokenFault::Unreadable),
        (json!({"iat": now - 660}), TokenFault::Old),
        (json!({"iat": now + 61}), TokenFault::Early),
        (json!({"nbf": now + 61}), TokenFault::Early),
        (json!({"nbf": "soon"}), TokenFault::Unreadable),
    ] {
        assert_eq!(ground.token_fault(claims.clone()).await, fault, "{claims}");
    }
    for claims in [
        json!({"exp": now - 59}),
        json!({"iat": now - 659}),
        json!({"iat": now + 60, "nbf": now + 60}),
        json!({"exp": 1e10, "iat": now}),
    ] {
        let mut all = json!({"sub": "248289761001"});
        all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        ground.provider.does(|script| script.claims = all);
        assert!(ground.log_in().await.is_ok(), "{claims}");
    }
}

#[tokio::test]
async fn nothing_but_a_published_key_signs() {
    let ground = Ground::new().await;
    ground.log_in().await.unwrap();
    let public = ground.provider.does(|script| script.keys[0]["x"].as_str().unwrap().to_owned());
    let none = json!({});
    // Another key by the same name; no signature; the client secret and the published key as shared secrets.
    for (signer, fault) in [
        (Signer::ed(), TokenFault::Signature),
        (Signer::None, TokenFault::Algorithm),
        (Signer::Hmac(SECRET.into()), TokenFault::Algorithm),
        (Signer::Hmac(public.into()), TokenFault::Algorithm),
        (Signer::ec(), TokenFault::Key),
        (Signer::rsa(), TokenFault::Key),
    ] {
        ground.provider.does(|script| script.signer = signer);
        assert_eq!(ground.token_fault(none.clone()).await, fault);
    }
    for (header, fault) in [
        (json!({"alg": "RS384"}), TokenFault::Algorithm),
        (json!({"alg": "PS256"}), TokenFault::Algorithm),
        (json!({"alg": "ES384"}), TokenFault::Algorithm),
        (json!({"alg": null}), TokenFault::Algorithm),
        (json!({"alg": "RS256"}), TokenFault::Key),
        (json!({"crit": ["exp"]}), TokenFault::Critical),
        // A key in the token is nobody's.
        (json!({"jwk": Signer::ed().jwk("first")}), TokenFault::Signature),
    ] {
        ground.provider.does(|script| {
            script.signer = Signer::ed();
            script.header = header.clone();
        });
        assert_eq!(ground.token_fault(none.clone()).await, fault, "{header}");
    }
}

#[tokio::test]
async fn a_new_key_is_looked_for_once_a_minute_at_most() {
    let ground = Ground::new().await;
    ground.log_in().await.unwrap();
    ground.log_in().await.unwrap();
    assert_eq!(ground.provider.count("keys"), 1);
    let rotate = |id: &'static str, is_published: bool| {
        ground.provider.does(|script| {
            script.signer = Signer::ed();
            script.key_id = Some(id.into());
            if is_published {
                script.keys.push(script.signer.jwk(id));
            }
        });
    };
    // The first look was a moment ago.
    rotate("second", true);
    assert!(matches!(ground.refused().await, OpenidError::Token(TokenFault::Key)));
    assert_eq!(ground.provider.count("keys"), 1);
    ground.clock.advance_ms(60_000);
    ground.log_in().await.unwrap();
    assert_eq!(ground.provider.count("keys"), 2);
    rotate("unpublished", false);
    ground.clock.advance_ms(60_000);
    for _ in 0..5 {
        assert!(matches!(ground.refused().await, OpenidError::Token(TokenFault::Key)));
    }
    assert_eq!(ground.provider.count("keys"), 3);
    // A key that is published no longer works for an hour at most.
    ground.clock.advance_ms(60 * 60 * 1000);
    ground.provider.does(|script| {
        script.signer = Signer::ed();
        script.key_id = Some("second".into());
        script.keys = vec![script.signer.jwk("second")];
    });
    ground.log_in().await.unwrap();
    assert_eq!(ground.provider.count(".well-known/openid-configuration"), 2);
}

#[tokio::test]
async fn a_provider_that_says_it_is_another_is_not_believed() {
    let secure = |what: &str| json!({ what: "http://id.example.org/x" });
    for document in [
        json!({"issuer": "https://id.example.org"}),
        secure("authorization_endpoint"),
        secure("token_endpoint"),
        secure("jwks_uri"),
        json!({"token_endpoint": "https://user:password@id.example.org/x"}),
        json!({"token_endpoint": "ftp://127.0.0.1/x"}),
    ] {
        let ground = Ground::new().await;
        ground.provider.does(|script| script.document = document.clone());
        let error = ground.refused().await;
        assert!(matches!(error, OpenidError::Issuer(_) | OpenidError::Address(_)), "{document}: {error}");
    }
    for document in [json!({"issuer": null}), json!({"token_endpoint": null}), json!({"jwks_uri": "keys"})] {
        let ground = Ground::new().await;
        ground.provider.does(|script| script.document = document.clone());
        assert!(matches!(ground.refused().await, OpenidError::Malformed(_)), "{document}");
    }
}

#[tokio::test]
async fn who_comes_back_from_another_issuer_has_no_code_of_this_one() {
    let ground = Ground::new().await;
    ground.log_in_from(&ground.provider.issuer).await.unwrap();
    let other = ground.log_in_from("https://evil.example").await;
    assert!(matches!(other, Err(OpenidError::AnotherIssuer)));
    // The provider says that it always says so (RFC 9207).
    let ground = Ground::new().await;
    let document = json!({"authorization_response_iss_parameter_supported": true});
    ground.provider.does(|script| script.document = document);
    ground.log_in_from(&ground.provider.issuer).await.unwrap();
    assert!(matches!(ground.log_in().await, Err(OpenidError::AnotherIssuer)));
    assert_eq!(ground.provider.count("token"), 1, "the code went nowhere");
}

#[tokio::test]
async fn a_code_works_once_and_with_its_own_verifier() {
    let ground = Ground::new().await;
    let (mine, others) = (Attempt::of("mine").unwrap(), Attempt::of("others").unwrap());
    let code = async |attempt: &Attempt| {
        let url = ground.openid.authorization_url(attempt, REDIRECT).await.unwrap();
        ground.provider.authorize(url.as_str()).code
    };
    let finish = async |attempt: &Attempt, code: &str| {
        let came_back = CameBack { code, error: "", issuer: "" };
        ground.openid.finish(attempt, REDIRECT, came_back).await
    };
    let code_of_others = code(&others).await;
    let refused = |result: Result<Claimed, OpenidError>| matches!(result, Err(OpenidError::Refused(error)) if error == "invalid_grant");
    assert!(refused(finish(&mine, &code_of_others).await), "injected");
    let code_of_mine = code(&mine).await;
    finish(&mine, &code_of_mine).await.unwrap();
    assert!(refused(finish(&mine, &code_of_mine).await), "used");
    for code in ["", &"x".repeat(4097)] {
        assert!(matches!(finish(&mine, code).await, Err(OpenidError::NoCode)));
    }
    let declined = CameBack { code: "x", error: "<access_denied>", issuer: "" };
    let declined = ground.openid.finish(&mine, REDIRECT, declined).await.unwrap_err();
    assert!(matches!(&declined, OpenidError::Declined(code) if code == "another error"), "{declined}");
}

#[tokio::test]
async fn a_provider_that_fails_says_nothing_and_keeps_nobody_for_long() {
    let garbage = || Fault::Answers(200, "<html>".into());
    let discovery = ".well-known/openid-configuration";
    for what in [discovery, "token", "keys"] {
        for fault in [
            Fault::Hangs,
            Fault::Floods,
            garbage(),
            Fault::Answers(500, String::new()),
            Fault::Answers(302, String::new()),
            Fault::Redirects("/realms/a/elsewhere".into()),
        ] {
            let Ground { provider, openid, clock, dir } = Ground::new().await;
            let hurry = matches!(fault, Fault::Hangs);
            let openid = if hurry { openid.within(Duration::from_millis(300)) } else { openid };
            let ground = Ground { provider, openid, clock, dir };
            ground.provider.does(|script| script.faults.insert(what, fault.clone()));
            let error = ground.refused().await;
            let fits = match &fault {
                Fault::Hangs => matches!(error, OpenidError::Slow),
                Fault::Floods => matches!(error, OpenidError::TooLarge(_)),
                Fault::Answers(200, _) => matches!(error, OpenidError::Malformed(_)),
                Fault::Answers(..) | Fault::Redirects(_) => matches!(error, OpenidError::Status(..)),
            };
            assert!(fits, "{what} {fault:?}: {error}");
            assert_eq!(ground.provider.count("elsewhere"), 0);
            // It is not asked again at once, and then it is.
            let asked = ground.provider.count(what);
            if what != "token" {
                assert!(matches!(ground.refused().await, OpenidError::FailedBefore), "{what} {fault:?}");
                assert_eq!(ground.provider.count(what), asked);
            }
            if hurry {
                continue;
            }
            ground.provider.does(|script| script.faults.clear());
            ground.clock.advance_ms(5_000);
            ground.log_in().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_unreachable() {
    let clock = Clock::system();
    let dir = tempfile::tempdir().unwrap();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let openid = Openid::open(config(&format!("http://{gone}"), dir.path()), &clock).unwrap();
    let error = openid.authorization_url(&Attempt::of("a").unwrap(), REDIRECT).await.unwrap_err();
    assert!(matches!(error, OpenidError::Unreachable(..)), "{error}");
}

#[tokio::test]
async fn only_so_many_ask_at_once() {
    let ground = Ground::new().await;
    let discovery = ".well-known/openid-configuration";
    ground.provider.does(|script| script.faults.insert(discovery, Fault::Hangs));
    let Ground { openid, provider, .. } = ground;
    let openid = openid.within(Duration::from_millis(300));
    let attempt = Attempt::of("a").unwrap();
    let all = futures_util::future::join_all((0..20).map(|_| openid.authorization_url(&attempt, REDIRECT)));
    let busy = all.await.into_iter().filter(|result| matches!(result, Err(OpenidError::Busy))).count();
    assert_eq!(busy, 4);
    assert!(provider.count(discovery) <= 1, "who waits, waits for the same answer");
}
