//! Applications as a browser on this machine sees them.

use std::time::Duration;

/// How long one look may take.
const LOOK: Duration = Duration::from_secs(5);

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
    here(builder().timeout(timeout), app_url)?.build().ok()
}

/// A client that trusts this certificate (PEM) alone, for a URL whose host name needs no resolver here.
#[must_use]
pub fn client_trusting(pem: &[u8], url: &str, timeout: Duration) -> reqwest::Client {
    let certificate = reqwest::Certificate::from_pem(pem).expect("a certificate");
    let client = builder().tls_certs_only([certificate]).timeout(timeout);
    here(client, url).and_then(|client| client.build().ok()).expect("an HTTP client")
}

/// A client that takes any certificate, for a URL whose host name needs no resolver here.
#[must_use]
pub fn client_of_anybody(url: &str) -> reqwest::Client {
    let client = builder().tls_danger_accept_invalid_certs(true).tls_info(true).timeout(LOOK);
    here(client, url).and_then(|client| client.build().ok()).expect("an HTTP client")
}

/// The certificate, PEM, that is shown at a URL that answers with success, whatever it is worth.
pub async fn certificate_of(url: &str) -> Option<String> {
    let answer = client_of_anybody(url).get(url).send().await.ok()?.error_for_status().ok()?;
    let der = answer.extensions().get::<reqwest::tls::TlsInfo>()?.peer_certificate()?.to_vec();
    Some(pem::encode(&pem::Pem::new("CERTIFICATE", der)))
}

fn here(client: reqwest::ClientBuilder, url: &str) -> Option<reqwest::ClientBuilder> {
    let url = reqwest::Url::parse(url).ok()?;
    let address = format!("127.0.0.1:{}", url.port_or_known_default()?).parse().ok()?;
    Some(client.resolve(url.host_str()?, address))
}

/// The body of a page of an app, if it answers with success.
pub async fn get_text(app_url: &str) -> Option<String> {
    let http = client_of(app_url, LOOK)?;
    http.get(app_url).send().await.ok()?.error_for_status().ok()?.text().await.ok()
}
