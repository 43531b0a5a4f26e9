//! Certificates that are not bound to the machine whose evidence came with them.

use cloister_evidence::report_data::of_tls_key;
use cloister_evidence::{Measurement, RuntimeEvent};
use jiff::SignedDuration;

use super::attacks::{on_the_way, refused};
use super::machine::{KEY, Machine, NOW, platform};
use crate::appraisal::{ClaimId, Connection};

#[test]
fn a_certificate_of_somebody_else_is_refused() {
    let by = [ClaimId::Certificate];
    let certificate = |what: &str, change: &dyn Fn(&Machine, &mut crate::appraisal::AttestedCertificate)| {
        let machine = Machine::new();
        let mut evidence = machine.evidence();
        let mut certificate = machine.certificate();
        change(&machine, &mut certificate);
        evidence.connection = Connection::Attested(certificate);
        refused(what, &machine.appraise(&evidence, &machine.expectations()), &by);
    };
    certificate("another key", &|_, certificate| certificate.public_key_info = b"another key".to_vec());
    certificate("the document's own quote", &|machine, certificate| {
        certificate.quote = hex::decode(machine.evidence().document.quote.unwrap()).unwrap();
    });
    certificate("tampered quote", &|_, certificate| certificate.quote[600] ^= 1);
    certificate("no quote", &|_, certificate| certificate.quote.clear());
    certificate("expired", &|_, certificate| certificate.not_after = *NOW - SignedDuration::from_secs(1));
    certificate("early", &|_, certificate| certificate.not_before = *NOW + SignedDuration::from_secs(1));
    certificate("another platform", &|machine, certificate| {
        let mut other = Machine::new();
        other.platform = platform(&machine.vendor);
        certificate.quote = other.quote(other.certified_events, of_tls_key(KEY));
    });
    certificate("another boot", &|machine, certificate| {
        // The same platform, where the operator runs something else too.
        let report = |kernel: &str| {
            let mut image = machine.image.clone();
            image.kernel = Measurement::of(kernel);
            image.launch(2, 2 << 30)
        };
        let launch = report("another kernel");
        let mut registers = registers(machine);
        registers.rtmr1 = launch.rtmr[1];
        let report =
            cloister_development_tee::TdReport::new(registers, machine.mr_config_id, of_tls_key(KEY));
        certificate.quote = machine.platform.quote(&report).unwrap();
    });
    certificate("another CVM of the same image", &|machine, certificate| {
        let mut events = machine.events[..5].to_vec();
        events[3] = RuntimeEvent::new("instance-id", [0x77; 20]);
        let mut registers = registers(machine);
        registers.rtmr3 =
            events.iter().fold(Measurement::ZERO, |register, event| register.extended_by(&event.digest()));
        let report =
            cloister_development_tee::TdReport::new(registers, machine.mr_config_id, of_tls_key(KEY));
        certificate.quote = machine.platform.quote(&report).unwrap();
        let mut entries = machine.image.launch(2, 2 << 30).events;
        entries.extend(events.iter().map(RuntimeEvent::entry));
        certificate.event_log = serde_json::to_string(&entries).unwrap();
    });
    on_the_way("none where one must be", &by, |evidence| {
        evidence.connection = Connection::Unattested("the certificate carries no evidence".to_owned());
    });
}

fn registers(machine: &Machine) -> cloister_evidence::Registers {
    let launch = machine.image.launch(machine.cpu_count, machine.memory_size);
    let [rtmr0, rtmr1, rtmr2] = launch.rtmr;
    cloister_evidence::Registers { mrtd: launch.mrtd, rtmr0, rtmr1, rtmr2, rtmr3: Measurement::ZERO }
}
