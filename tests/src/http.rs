//! Applications as a browser on this machine sees them.

use std::time::Duration;

/// A client for addresses without TLS, by no proxy.
#[must_use]
pub fn plain_client() -> reqwest::Client {
    builder().build().expect("an HTTP client")
}

fn builder() -> reqwest::ClientBuilder {
    // The client wants a provider even where there is no TLS. A second installation changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([])
}

/// A client for an app, whose host name needs no resolver here. `None` for what is no URL.
#[must_use]
pub fn client_of(app_url: &str, timeout: Duration) -> Option<reqwest::Client> {
    let url = reqwest::Url::parse(app_url).ok()?;
    let address = format!("127.0.0.1:{}", url.port_or_known_default()?).parse().ok()?;
    builder().timeout(timeout).resolve(url.host_str()?, address).build().ok()
}

/// The body of a page of an app, if it answers with success.
pub async fn get_text(app_url: &str) -> Option<String> {
    let http = client_of(app_url, Duration::from_secs(5))?;
    http.get(app_url).send().await.ok()?.error_for_status().ok()?.text().await.ok()
}
