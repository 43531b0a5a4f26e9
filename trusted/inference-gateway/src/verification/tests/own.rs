//! A gateway of this project as another one's upstream: what it reports of itself is verified, from its guest agent to the
//! key that its TLS ends at.

use std::sync::Arc;

use cloister_app_compose::ComposeHash;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::service::{Time, begin};
use super::{Records, Unverified, Verifications};
use crate::config::GatewayConfig;
use crate::lab::agent::{APP_COMPOSE, TestAgent};
use crate::lab::machine::{self, Machine};
use crate::routing::{Catalogue, Route};
use crate::run::{self, Running};
use crate::verification::Trust;

/// A gateway in a machine, with a certificate of its own.
struct Upstream {
    running: Running,
    agent: TestAgent,
    dir: TempDir,
}

impl Upstream {
    async fn start(machine: &Arc<Machine>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let agent = TestAgent::on(machine, &dir);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate =
            rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("cert.pem"), certificate.pem()).unwrap();
        std::fs::write(path("key.pem"), key.serialize_pem()).unwrap();
        let config = json!({
            "bind": "127.0.0.1:0",
            "state_dir": path("state"),
            "agent_socket": agent.socket,
            "source": {"image_digest": format!("sha256:{}", "1".repeat(64))},
            "tls": {"certificate": path("cert.pem"), "key": path("key.pem")},
            "upstreams": [{"name": "one", "base_url": "http://127.0.0.1:9", "models": {"m": "m"}}],
        });
        std::fs::write(path("gateway.json"), config.to_string()).unwrap();
        let running = run::start(&path("gateway.json")).await.unwrap();
        Self { running, agent, dir }
    }

    /// How another gateway reaches it, with other members.
    fn route(&self, more: &Value) -> Arc<Route> {
        let mut upstream = json!({
            "name": "own",
            "provider": "aci-service",
            "base_url": format!("https://127.0.0.1:{}", self.running.address().port()),
            "models": {"public": "m"},
            "ca_file": self.dir.path().join("cert.pem"),
            "accepted_subjects": [format!("app-id:0x{}", self.agent.app_id)],
            "accepted_boot_registers": [machine::boot(&machine::image("kernel"))],
            "accepted_key_provider_ids": [machine::KEY_PROVIDER],
            "accepted_kms_root_public_keys": [self.agent.kms_root()],
        });
        upstream.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let config = json!({"state_dir": self.dir.path().join("other"), "upstreams": [upstream]});
        let config = GatewayConfig::parse(&serde_json::to_vec(&config).unwrap()).unwrap();
        Arc::clone(&Catalogue::new(&config).model("public").unwrap().routes[0])
    }
}

#[tokio::test]
async fn a_gateway_verifies_another_one() {
    let machine = Arc::new(Machine::new(begin()));
    let upstream = Upstream::start(&machine).await;
    let time = Time::new();
    let trust = Trust::of_verifier(machine.verifier(time.clock()));
    let verifications = Verifications::new(trust, Records::default(), time.clock());
    let verified = verifications.channel(&upstream.route(&json!({})), &[]).await.unwrap();
    let keyset = upstream.running.gateway().notary.identity().keyset.clone();
    assert_eq!(
        verified.pins.iter().map(hex::encode).collect::<Vec<_>>(),
        [keyset.tls_public_keys[0].spki_sha256.clone()]
    );
    let hash = ComposeHash::of(APP_COMPOSE.as_bytes()).to_string();
    let by_document = json!({"accepted_subjects": [], "accepted_compose_hashes": [hash]});
    verifications.channel(&upstream.route(&by_document), &[]).await.unwrap();
    for (more, reason) in [
        (json!({"accepted_kms_root_public_keys": ["02".repeat(33)]}), "no accepted KMS root"),
        (json!({"accepted_key_provider_ids": ["02"]}), "from no accepted KMS"),
        (json!({"accepted_boot_registers": [machine::boot(&machine::image("other"))]}), "booted nothing"),
        (json!({"accepted_subjects": [format!("app-id:0x{}", "0".repeat(40))]}), "not an accepted one"),
    ] {
        match verifications.channel(&upstream.route(&more), &[]).await {
            Err(Unverified::Failed(text)) => assert!(text.contains(reason), "{reason}: {text}"),
            other => panic!("{reason}: {other:?}"),
        }
    }
}
