//! Which URLs are taken.

use cloister_outbound::{LookupError, Refused};

use crate::names::{Names, allowing, local, strict};

#[tokio::test]
async fn what_is_no_ordinary_https_url_is_refused() {
    let client = strict();
    let long = format!("https://example.com/{}", "a".repeat(2048));
    let longer_as_parsed = format!("https://example.com/{}", "ä".repeat(600));
    for (url, reason) in [
        ("", Refused::Unreadable),
        ("example.com/hook", Refused::Unreadable),
        ("//example.com/hook", Refused::Unreadable),
        ("https://", Refused::Unreadable),
        ("https://example.com/a b", Refused::Unreadable),
        ("https://example.com/\n", Refused::Unreadable),
        (" https://example.com/", Refused::Unreadable),
        ("https:\\\\example.com", Refused::Unreadable),
        ("https://exa\u{ad}mple.com\u{2028}/", Refused::Unreadable),
        ("https://exam%00ple.com/", Refused::Unreadable),
        (&long, Refused::TooLong),
        (&longer_as_parsed, Refused::TooLong),
        ("http://example.com/", Refused::Scheme),
        ("ftp://example.com/", Refused::Scheme),
        ("file:///etc/passwd", Refused::Scheme),
        ("gopher://example.com/", Refused::Scheme),
        ("https://user@example.com/", Refused::Credentials),
        ("https://user:secret@example.com/", Refused::Credentials),
        ("https://:secret@example.com/", Refused::Credentials),
        ("https://@example.com/", Refused::Credentials),
        ("https://example.com@127.0.0.1/", Refused::Credentials),
        ("https://example.com/#part", Refused::Fragment),
        ("https://example.com/#", Refused::Fragment),
        ("https://example.com:0/", Refused::Port),
        ("https://example.com:22/", Refused::Port),
        ("https://example.com:25/", Refused::Port),
        ("https://example.com:80/", Refused::Port),
        ("https://example.com:6667/", Refused::Port),
        ("https://example.com:65536/", Refused::Unreadable),
        ("https://localhost/", Refused::Host),
        ("https://LOCALHOST./", Refused::Host),
        ("https://api.localhost/", Refused::Host),
        ("https://printer.local/", Refused::Host),
        ("https://printer.LOCAL./", Refused::Host),
        ("https://metadata.google.internal/", Refused::Host),
        ("https://1.0.0.127.in-addr.arpa/", Refused::Host),
        ("https://intranet/", Refused::Host),
        ("https://-a.example.com/", Refused::Host),
        ("https://a..example.com/", Refused::Host),
        ("https://example.com../", Refused::Host),
        ("https://a*b.example.com/", Refused::Host),
        ("https://ｌｏｃａｌｈｏｓｔ/", Refused::Host),
        ("https://[fe80::1%25eth0]/", Refused::Unreadable),
    ] {
        assert_eq!(client.check(url).map(String::from), Err(reason), "{url:?}");
    }
}

#[tokio::test]
async fn ordinary_urls_are_taken_as_they_are() {
    let client = strict();
    for url in [
        "https://example.com/",
        "https://hooks.example.com/services/a/b?x=1&y=%20",
        "https://example.com:8443/hook",
        "https://example.com./hook",
        "https://a_b.example.com/",
        "https://example.com/at@sign?to=a@b",
        "https://93.184.216.34/",
        "https://[2606:2800:220:1:248:1893:25c8:1946]:9000/",
    ] {
        assert_eq!(client.check(url).map(String::from), Ok(url.to_owned()));
    }
    let international = client.check("https://bücher.example/").unwrap();
    assert_eq!(international.as_str(), "https://xn--bcher-kva.example/");
}

#[tokio::test]
async fn all_addresses_of_a_name_must_be_public() {
    let names = Names::of(&[
        ("public.example.com", &["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"]),
        ("inside.example.com", &["10.1.2.3"]),
        ("both.example.com", &["93.184.216.34", "169.254.169.254"]),
        ("mapped.example.com", &["::ffff:127.0.0.1"]),
        ("empty.example.com", &[]),
    ]);
    names.fail("mute.example.com", LookupError::NoAnswer);
    let client = allowing(&[], false, names);
    for (host, expected) in [
        ("public.example.com", Ok(())),
        ("PUBLIC.example.com.", Ok(())),
        ("inside.example.com", Err(Refused::Address)),
        ("both.example.com", Err(Refused::Address)),
        ("mapped.example.com", Err(Refused::Address)),
        ("empty.example.com", Err(Refused::Unknown)),
        ("nowhere.example.com", Err(Refused::Unknown)),
        ("mute.example.com", Err(Refused::NoAnswer)),
        ("93.184.216.34", Ok(())),
    ] {
        let url = client.check(&format!("https://{host}/")).unwrap();
        assert_eq!(client.vet(&url).await, expected, "{host}");
    }
}

#[tokio::test]
async fn what_the_operator_lists_is_allowed_and_nothing_else() {
    let names = Names::of(&[
        ("office.example.com", &["10.1.2.3"]),
        ("other.example.com", &["10.2.0.1"]),
        ("public.example.com", &["93.184.216.34"]),
        ("mixed.example.com", &["10.1.2.3", "93.184.216.34"]),
        ("printer.local", &["10.1.0.9"]),
        ("rogue.local", &["93.184.216.34"]),
    ]);
    let client = allowing(&["10.1.0.0/16"], true, names.clone());
    for (url, expected) in [
        ("https://10.1.2.3/", Ok(())),
        ("https://[::ffff:10.1.2.3]/", Ok(())),
        ("http://10.1.2.3:8080/", Ok(())),
        ("https://10.2.0.1/", Err(Refused::Address)),
        ("https://[64:ff9b::10.1.2.3]/", Err(Refused::Address)),
        ("http://93.184.216.34/", Err(Refused::Scheme)),
        ("https://office.example.com/", Ok(())),
        ("http://office.example.com/", Ok(())),
        ("https://other.example.com/", Err(Refused::Address)),
        ("https://public.example.com/", Ok(())),
        ("http://public.example.com/", Err(Refused::Scheme)),
        ("https://mixed.example.com/", Ok(())),
        ("http://mixed.example.com/", Err(Refused::Scheme)),
        ("https://printer.local/", Ok(())),
        ("https://rogue.local/", Err(Refused::Host)),
    ] {
        let checked = client.check(url);
        let vetted = match &checked {
            Ok(url) => client.vet(url).await,
            Err(refused) => Err(*refused),
        };
        assert_eq!(vetted, expected, "{url}");
    }
    let tls_only = allowing(&["10.1.0.0/16"], false, names);
    assert_eq!(tls_only.check("http://10.1.2.3/").map(String::from), Err(Refused::Scheme));
    assert!(local(Names::of(&[])).check("http://localhost:9000/hook").is_ok());
}

#[tokio::test]
async fn no_refusal_names_an_address() {
    let client = allowing(&[], false, Names::of(&[("inside.example.com", &["10.1.2.3"])]));
    let url = client.check("https://inside.example.com/").unwrap();
    let refused = client.vet(&url).await.unwrap_err();
    assert!(!format!("{refused} {refused:?}").contains("10."));
    assert!(refused.may_pass() && !Refused::Scheme.may_pass());
}
