//! Reports: which keys the gateway has, and the evidence that they are those of the measured machine.

use std::cmp::min;

use cloister_aci::report::{Nonce, report_data};
use cloister_aci::{API_VERSION, TlsKey};
use serde_json::{Map, Value, json};

use super::gpus::Gpus;
use super::legacy::{SigningAlgo, challenge};
use super::prover::Proven;
use super::{Identity, Notary, seconds};
use crate::door::normal_form;
use crate::error::{GatewayError, Kind};

/// What made the evidence; its format.
const VENDOR: &str = "dstack";
/// Seconds after which a report should be asked for again.
const FRESH_S: u64 = 3600;

/// What an older client asks for.
#[derive(Debug)]
pub(super) struct LegacyAsk {
    pub(super) nonce: String,
    pub(super) algo: SigningAlgo,
    /// Whether the TLS key goes into the evidence (version 2).
    pub(super) binds_tls: bool,
    /// What GPUs attest.
    pub(super) gpus: Gpus,
}

impl Notary {
    /// A report with fresh evidence over the keyset and the caller's nonce, for callers who see the gateway under
    /// this host name.
    pub(super) async fn report(
        &self,
        nonce: Option<&Nonce>,
        host: Option<&str>,
    ) -> Result<Value, GatewayError> {
        let identity = self.identity();
        let tls_key = identity.tls_key(host)?;
        let statement = report_data(&identity.digest, nonce);
        let mut quoted = [0; 64];
        quoted.split_at_mut(32).0.copy_from_slice(&statement);
        self.report_over(&identity, &quoted, hex::encode(statement), tls_key).await
    }

    /// The same for older clients: the evidence is over a key that signs texts for them.
    pub(super) async fn legacy_report(
        &self,
        ask: &LegacyAsk,
        host: Option<&str>,
    ) -> Result<Value, GatewayError> {
        let identity = self.identity();
        let tls_key = identity.tls_key(host)?;
        let spki = if ask.binds_tls {
            let key = tls_key.or_else(|| identity.keyset.tls_public_keys.first());
            let spki = key.and_then(|key| <[u8; 32]>::try_from(hex::decode(&key.spki_sha256).ok()?).ok());
            Some(spki.ok_or_else(|| {
                GatewayError::parameter("version", "This gateway has no TLS key of its own: use version 1")
            })?)
        } else {
            None
        };
        let signers = &identity.keys.legacy;
        let quoted = signers.report_data(ask.algo, spki.as_ref(), &challenge(&ask.nonce));
        let mut report = self.report_over(&identity, &quoted, hex::encode(quoted), tls_key).await?;
        let quote = report.pointer("/attestation/evidence/quote").cloned().unwrap_or_default();
        if let Some(members) = report.as_object_mut() {
            members.extend([
                ("signing_public_key".to_owned(), signers.public_key(ask.algo).into()),
                ("signing_address".to_owned(), signers.address(ask.algo).into()),
                ("signing_algo".to_owned(), ask.algo.as_str().into()),
                ("request_nonce".to_owned(), ask.nonce.clone().into()),
                ("intel_quote".to_owned(), quote),
                ("nvidia_payload".to_owned(), ask.gpus.payload().into()),
            ]);
            members.shift_remove("all_attestations");
            let itself = Value::Object(members.clone());
            members.insert("all_attestations".to_owned(), json!([itself]));
        }
        Ok(report)
    }

    async fn report_over(
        &self,
        identity: &Identity,
        quoted: &[u8; 64],
        report_data: String,
        tls_key: Option<&TlsKey>,
    ) -> Result<Value, GatewayError> {
        let prover = self.prover.as_ref().ok_or_else(|| {
            GatewayError::new(
                Kind::Unavailable,
                "This gateway runs without a guest agent (agent_socket is not configured): its keys are for \
                 development and nothing proves them",
            )
        })?;
        let machine = prover.prove(quoted).await?;
        let fetched_at = seconds(&self.clock);
        let tee_type = machine.tee_type;
        let evidence = self.evidence(machine, quoted, prover.app_compose().await, tls_key);
        let mut attestation = json!({
            "vendor": VENDOR,
            "tee_type": tee_type,
            "workload_keyset": identity.keyset,
            "report_data": report_data,
            "evidence": evidence,
            "freshness": {
                "fetched_at": fetched_at,
                "stale_after": min(identity.keyset.not_after, fetched_at.saturating_add(FRESH_S)),
            },
        });
        if let (Some(source), Some(members)) = (&self.source, attestation.as_object_mut()) {
            members.insert("source_provenance".to_owned(), json!(source));
        }
        let versions: &[&str] =
            if self.terms.encrypts { &[cloister_aci::e2ee::VERSION] } else { Default::default() };
        let serving = if self.terms.serves_directly { "direct" } else { "aggregator" };
        Ok(json!({
            "api_version": API_VERSION,
            "workload_id": identity.digest,
            "workload_keyset_digest": identity.digest,
            "attestation": attestation,
            "service_capabilities": { "supported_e2ee_versions": versions, "serving": serving },
            "all_attestations": [],
        }))
    }

    fn evidence(
        &self,
        proven: Proven,
        quoted: &[u8; 64],
        app_compose: Option<String>,
        tls_key: Option<&TlsKey>,
    ) -> Value {
        let own = proven.evidence;
        let mut evidence = Map::new();
        let mut set = |name: &str, value: Value| evidence.insert(name.to_owned(), value);
        match own.attestation {
            Some(attestation) => set("attestation", hex::encode(attestation).into()),
            None => set("quote", hex::encode(own.quote).into()),
        };
        set("quote_report_data", hex::encode(quoted).into());
        set("event_log", own.event_log.into());
        set("vm_config", own.vm_config.into());
        if let Some(document) = app_compose {
            set("app_compose", document.into());
        }
        if let Some(custody) = &self.keys.custody {
            set("key_custody", json!(custody));
        }
        if let Some(key) = tls_key {
            set("downstream_tls_binding", json!(key));
        }
        evidence.into()
    }
}

impl Identity {
    /// The TLS key that callers of a host name see. Where keys are for certain names, the report is for those only.
    fn tls_key(&self, host: Option<&str>) -> Result<Option<&TlsKey>, GatewayError> {
        let mut named = self.keyset.tls_public_keys.iter().filter(|key| key.domain.is_some()).peekable();
        if named.peek().is_none() {
            return Ok(None);
        }
        let host = host.and_then(normal_form);
        let found = named.find(|key| key.domain.as_deref().and_then(normal_form) == host);
        found
            .map(Some)
            .ok_or_else(|| GatewayError::new(Kind::NotFound, "No TLS key is attested for this host"))
    }
}
