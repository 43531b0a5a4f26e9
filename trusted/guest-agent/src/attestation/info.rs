//! `Info`: who this is, in the members that public SDKs require (platform reference, section 7.4).

use std::time::Duration;

use cloister_evidence::{Aggregates, EventLog, Measurement, Registers, device_id};
use serde_json::{Value, json};

use super::{Attestation, Certificates};

/// Longest wait for the certificate that goes along: SDKs find out within 500 ms whether anybody answers.
const CERTIFICATES_PATIENCE: Duration = Duration::from_millis(300);

impl Attestation {
    /// The answer to `Info`; `public` leaves out what the application keeps to itself.
    pub(crate) async fn info(&self, public: bool) -> Value {
        let certificates = self.certificates(CERTIFICATES_PATIENCE).await;
        // One look at the log, so that registers and events belong together.
        let log = EventLog::new(self.attester.event_log().to_vec());
        let registers = self.registers(&log);
        let identity = self.launch.as_ref().map(|launch| launch.identity);
        let provider = self.key_provider();
        let aggregates = registers.as_ref().zip(identity).map(|(registers, identity)| {
            hex::encode(
                Aggregates::new(registers, &identity, Some(provider.as_str().as_bytes())).mr_aggregated,
            )
        });
        let aggregates = aggregates.unwrap_or_default();
        let facts = &self.facts;
        // The agent does not verify its own quote, so it does not know the machine's identity.
        let device = hex::encode(device_id(&[]));
        let hidden = public && !facts.public_tcbinfo;
        json!({
            "app_id": facts.app_id.to_string(),
            "instance_id": facts.instance.map(|id| id.to_string()).unwrap_or_default(),
            "app_cert": certificates.as_deref().map(Certificates::agent_pem).unwrap_or_default(),
            "tcb_info": if hidden { String::new() } else { self.tcb_info(registers, &log, &aggregates, &device) },
            "app_name": facts.app_name,
            "device_id": device,
            "mr_aggregated": aggregates,
            "os_image_hash": facts.os_image_hash,
            "key_provider_info": provider.as_str(),
            "compose_hash": facts.compose_hash.to_string(),
            "vm_config": if hidden { "" } else { &facts.vm_config },
            "cloud_vendor": self.vendor,
            "cloud_product": self.product,
        })
    }

    fn tcb_info(
        &self,
        registers: Option<Registers>,
        log: &EventLog,
        mr_aggregated: &str,
        device: &str,
    ) -> String {
        let text = |pick: fn(&Registers) -> Measurement| {
            registers.as_ref().map(|registers| pick(registers).to_string()).unwrap_or_default()
        };
        let info = json!({
            "mrtd": text(|registers| registers.mrtd),
            "rtmr0": text(|registers| registers.rtmr0),
            "rtmr1": text(|registers| registers.rtmr1),
            "rtmr2": text(|registers| registers.rtmr2),
            "rtmr3": text(|registers| registers.rtmr3),
            "mr_aggregated": mr_aggregated,
            "os_image_hash": self.facts.os_image_hash,
            "compose_hash": self.facts.compose_hash.to_string(),
            "device_id": device,
            "event_log": log.entries(),
            "app_compose": self.facts.app_compose,
        });
        serde_json::to_string_pretty(&info).unwrap_or_default()
    }

    /// The registers now: those of the launch, and RTMR 3 as the log builds it, which costs no quote.
    fn registers(&self, log: &EventLog) -> Option<Registers> {
        let launch = self.launch?.registers;
        let [.., rtmr3] = log.replay().ok()?;
        Some(Registers { rtmr3, ..launch })
    }
}
