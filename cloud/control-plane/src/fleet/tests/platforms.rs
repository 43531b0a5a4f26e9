//! Certificates for platforms without TEE hardware, and production, where there are none.

use cloister_development_tee::{PlatformKey, Registration};
use cloister_node_api::{PlatformCertificate, PlatformRequest};

use super::*;

fn request(key: &PlatformKey) -> PlatformRequest {
    let Registration { ppid, public_key, proof } = key.registration().unwrap();
    PlatformRequest { ppid, public_key, proof }
}

impl Installation {
    async fn joined(&self, name: &str) -> Credentials {
        let token = self.control_plane.invite_node().await.unwrap();
        self.enrol(&token, name).await.1.unwrap()
    }

    async fn certify(&self, credentials: &Credentials, request: &PlatformRequest) -> reqwest::Response {
        let http = client(client_config(credentials).unwrap());
        http.post(self.node_url(paths::DEVELOPMENT_PLATFORM)).json(request).send().await.unwrap()
    }
}

#[tokio::test]
async fn a_node_gets_its_platform_certified_and_cannot_take_anothers() {
    let installation = installation().await;
    let (alpha, beta) = (installation.joined("alpha").await, installation.joined("beta").await);
    let (mine, other) = (PlatformKey::generate().unwrap(), PlatformKey::generate().unwrap());
    let answer = installation.certify(&alpha, &request(&mine)).await;
    let first: PlatformCertificate = answer.json().await.unwrap();
    let again: PlatformCertificate =
        installation.certify(&alpha, &request(&mine)).await.json().await.unwrap();
    assert_eq!(first, again);
    let vendor = installation.control_plane.app.development_vendor.as_ref().unwrap();
    assert!(first.certificate_chain.ends_with(vendor.root_pem()));

    assert_eq!(installation.certify(&beta, &request(&mine)).await.status(), StatusCode::CONFLICT);
    // The key of another platform is in each of its quotes.
    let borrowed = PlatformRequest { public_key: request(&mine).public_key, ..request(&other) };
    for node in [&alpha, &beta] {
        assert_eq!(installation.certify(node, &borrowed).await.status(), StatusCode::FORBIDDEN);
    }
    let malformed = PlatformRequest { ppid: "../x".to_owned(), ..request(&mine) };
    assert_eq!(installation.certify(&alpha, &malformed).await.status(), StatusCode::BAD_REQUEST);
    assert_eq!(vendor.platforms().unwrap().len(), 1);
    installation.control_plane.stop().await;
}

#[tokio::test]
async fn only_enrolled_nodes_get_a_platform_certified() {
    let installation = installation().await;
    let app = &installation.control_plane.app;
    let names = ["localhost".to_owned()];
    for identity in
        [cloister_fleet_tls::Identity::ControlPlane, cloister_fleet_tls::Identity::Node("ghost".to_owned())]
    {
        let credentials = app.authority.issue(&identity, &names, app.clock.now()).unwrap();
        let key = PlatformKey::generate().unwrap();
        let refused = installation.certify(&credentials, &request(&key)).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    }
    assert!(app.development_vendor.as_ref().unwrap().platforms().unwrap().is_empty());
    installation.control_plane.stop().await;
}

#[tokio::test]
async fn production_certifies_no_platform_and_turns_nodes_without_hardware_away() {
    let installation = installation_in(true).await;
    let alpha = installation.joined("alpha").await;
    let key = PlatformKey::generate().unwrap();
    assert_eq!(installation.certify(&alpha, &request(&key)).await.status(), StatusCode::FORBIDDEN);
    for (platform, expected) in [
        (Platform::Emulation, StatusCode::FORBIDDEN),
        (Platform::Kvm, StatusCode::FORBIDDEN),
        (Platform::Tdx, StatusCode::OK),
        (Platform::SevSnp, StatusCode::OK),
    ] {
        let report = NodeReport { platform, ..report("localhost:1", vec![]) };
        assert_eq!(installation.report(&alpha, &report).await.status(), expected, "{platform:?}");
    }
    installation.control_plane.stop().await;
}
