//! Host names that serve confidential models only.

use http::header::HOST;
use http::request::Parts;
use http::uri::Authority;

/// A host name as it is compared: without port, brackets and trailing dot, in lower case. `None` for what is none.
#[must_use]
pub(crate) fn normal_form(host: &str) -> Option<String> {
    let authority: Authority = host.parse().ok()?;
    if authority.as_str().contains('@') {
        return None;
    }
    let name = authority.host();
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let name = name.strip_suffix('.').unwrap_or(name);
    (!name.is_empty()).then(|| name.to_ascii_lowercase())
}

/// Whether a request came in by one of the hosts, given in normal form. Where there are any, a request that does not
/// say clearly by which host it came counts as one of them.
pub(crate) fn is_tee_host(hosts: &[String], request: &Parts) -> bool {
    if hosts.is_empty() {
        return false;
    }
    let mut named: Vec<Option<String>> =
        request.headers.get_all(HOST).iter().map(|value| value.to_str().ok().and_then(normal_form)).collect();
    named.extend(request.uri.authority().map(|authority| normal_form(authority.as_str())));
    let is_clear =
        named.first().is_some_and(|first| first.is_some() && named.iter().all(|name| name == first));
    !is_clear || named.iter().flatten().any(|name| hosts.contains(name))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn normal_forms() {
        for (host, form) in [
            ("Api.Example.COM", Some("api.example.com")),
            ("api.example.com.:443", Some("api.example.com")),
            ("[::1]:8080", Some("::1")),
            ("127.0.0.1", Some("127.0.0.1")),
            ("", None),
            (".", None),
            ("a b", None),
            ("user@api.example.com", None),
            ("api.example.com/path", None),
        ] {
            assert_eq!(normal_form(host).as_deref(), form, "{host:?}");
        }
    }

    #[test]
    fn what_is_unclear_counts_as_confidential() {
        let hosts = ["tee.example.com".to_owned()];
        let of = |uri: &str, names: &[&str]| {
            let mut request = Request::builder().uri(uri);
            for name in names {
                request = request.header(HOST, *name);
            }
            let parts = request.body(()).unwrap().into_parts().0;
            (is_tee_host(&hosts, &parts), is_tee_host(&[], &parts))
        };
        for (uri, names, is_tee) in [
            ("/", &["TEE.example.com:443"][..], true),
            ("/", &["api.example.com"], false),
            ("https://tee.example.com/", &[], true),
            ("https://api.example.com/", &[], false),
            ("https://api.example.com/", &["api.example.com"], false),
            ("https://api.example.com/", &["tee.example.com"], true),
            ("/", &[], true),
            ("/", &["not a host"], true),
            ("/", &["api.example.com", "other.example.com"], true),
        ] {
            assert_eq!(of(uri, names), (is_tee, false), "{uri} {names:?}");
        }
    }
}
