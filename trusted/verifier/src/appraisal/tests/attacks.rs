//! Forged evidence: what fails, by claim, and that the verdict is false.

use std::collections::BTreeSet;

use cloister_evidence::{EventLogEntry, Measurement, RuntimeEvent};
use jiff::SignedDuration;

use super::machine::{COMPOSE, Machine, NOW, vm_config};
use crate::appraisal::{
    Appraisal, ClaimId, Evidence, Expectations, ExpectedCompose, Nonce, Outcome, appraise_with,
};
use crate::{Clock, TcbStatus, TrustRoots, Verifier};

/// Name and change.
type Case<T> = (&'static str, fn(&mut T));

fn failing(appraisal: &Appraisal) -> Vec<ClaimId> {
    let failing = appraisal.claims.iter().filter(|claim| claim.outcome == Outcome::Fails);
    failing.map(|claim| claim.id).collect()
}

/// Asserts that the evidence is refused, and by which claims.
#[track_caller]
pub(super) fn refused(what: &str, appraisal: &Appraisal, by: &[ClaimId]) {
    assert_eq!(failing(appraisal), by, "{what}: {:#?}", appraisal.claims);
    assert!(!appraisal.verified, "{what}");
    assert!(appraisal.subject.is_none(), "{what}");
}

/// Evidence of an honest machine, changed on its way.
#[track_caller]
pub(super) fn on_the_way(what: &str, by: &[ClaimId], change: impl FnOnce(&mut Evidence)) {
    let machine = Machine::new();
    let mut evidence = machine.evidence();
    // The second form of the evidence has a test of its own.
    evidence.document.attestation = None;
    change(&mut evidence);
    refused(what, &machine.appraise(&evidence, &machine.expectations()), by);
}

/// Evidence of a machine that is not the expected one.
#[track_caller]
fn machine(what: &str, by: &[ClaimId], change: impl FnOnce(&mut Machine)) {
    let mut machine = Machine::new();
    let expectations = machine.expectations();
    change(&mut machine);
    refused(what, &machine.appraise(&machine.evidence(), &expectations), by);
}

/// Changes the log of evidence.
fn log(evidence: &mut Evidence, change: impl FnOnce(&mut Vec<EventLogEntry>)) {
    let mut entries: Vec<EventLogEntry> = serde_json::from_str(&evidence.document.event_log).unwrap();
    change(&mut entries);
    evidence.document.event_log = serde_json::to_string(&entries).unwrap();
}

fn named(entries: &[EventLogEntry], name: &str) -> usize {
    entries.iter().position(|entry| entry.event == name).unwrap()
}

#[test]
fn a_changed_log_is_not_that_of_the_machine() {
    let by = [ClaimId::EventLog];
    let cases: [Case<Vec<EventLogEntry>>; 10] = [
        ("payload", |log| {
            let at = named(log, "compose-hash");
            log[at].event_payload.replace_range(0..1, "x");
        }),
        ("payload without digest", |log| {
            let at = named(log, "compose-hash");
            log[at] = RuntimeEvent::new("compose-hash", [9; 32]).entry();
            log[at].digest.clear();
        }),
        ("dropped", |log| {
            log.remove(named(log, "instance-id"));
        }),
        ("last dropped", |log| {
            log.pop();
        }),
        ("duplicated", |log| {
            let at = named(log, "compose-hash");
            log.insert(at, log[at].clone());
        }),
        ("reordered", |log| {
            let at = named(log, "compose-hash");
            log.swap(at, at - 1);
        }),
        ("renamed", |log| {
            let at = named(log, "my-event");
            log[at].event = "my-other-event".to_owned();
        }),
        ("appended", |log| log.push(RuntimeEvent::new("my-event", *b"more").entry())),
        ("boot event changed", |log| log[1].digest = Measurement::of("other").to_string()),
        ("moved to another register", |log| {
            let at = named(log, "compose-hash");
            log[at].imr = 2;
        }),
    ];
    for (what, change) in cases {
        on_the_way(what, &by, |evidence| log(evidence, change));
    }
    on_the_way("no log", &by, |evidence| evidence.document.event_log.clear());
    on_the_way("log of another form", &by, |evidence| evidence.document.event_log = "{}".to_owned());
}

#[test]
fn names_that_nothing_proves_are_refused() {
    // The digest of the entry stays, so the registers are built; its name and kind are the attacker's.
    on_the_way("hidden mark", &[ClaimId::EventNames], |evidence| {
        log(evidence, |log| {
            let at = named(log, "system-ready");
            log[at].event_type = 6;
        });
    });
    // The digest joins name and payload by a colon, so an event with one can be cut in another way.
    on_the_way("hidden key provider", &[ClaimId::EventNames], |evidence| {
        log(evidence, |log| {
            let at = named(log, "key-provider");
            let provider = RuntimeEvent::new(r#"key-provider:{"name""#, *br#""none","id":""}"#).entry();
            assert_eq!(provider.digest, log[at].digest);
            log[at] = provider;
        });
    });
    machine("mark that says something", &[ClaimId::EventNames], |machine| {
        let at = machine.at("system-ready");
        machine.events[at].payload = b"nearly".to_vec();
    });
    // An application may measure anything, but not by the platform's names.
    machine("platform name after the mark", &[ClaimId::EventNames], |machine| {
        machine.events.push(RuntimeEvent::new("compose-hash", [7; 32]));
    });
    machine("second mark", &[ClaimId::EventNames], |machine| {
        machine.events.push(RuntimeEvent::new("system-ready", []));
    });
    machine("trusted name twice", &[ClaimId::EventNames], |machine| {
        let at = machine.at("compose-hash");
        machine.events.insert(at, RuntimeEvent::new("compose-hash", [7; 32]));
    });
    machine("order", &[ClaimId::EventNames], |machine| {
        let at = machine.at("compose-hash");
        machine.events.swap(at, at - 1);
    });
    machine("never ready", &[ClaimId::EventNames], |machine| {
        machine.events.retain(|event| event.name != "system-ready");
    });
}

#[test]
fn another_document_or_application_is_refused() {
    let other = COMPOSE.replace("hello", "hullo");
    on_the_way("document shown", &[ClaimId::Compose], |evidence| {
        evidence.document.app_compose = Some(other.clone());
    });
    machine("document measured", &[ClaimId::Compose], |machine| {
        let at = machine.at("compose-hash");
        machine.events[at].payload = vec![7; 32];
    });
    machine("launched for another document", &[ClaimId::Compose], |machine| machine.mr_config_id[1] ^= 1);
    machine("application", &[ClaimId::AppId], |machine| {
        let at = machine.at("app-id");
        machine.events[at].payload[0] ^= 1;
    });
    machine("CVM", &[ClaimId::InstanceId], |machine| {
        let at = machine.at("instance-id");
        machine.events[at].payload[0] ^= 1;
    });
    machine("identities of another length", &[ClaimId::AppId, ClaimId::InstanceId], |machine| {
        for name in ["app-id", "instance-id"] {
            let at = machine.at(name);
            machine.events[at].payload.push(0);
        }
    });
    machine("nameless", &[ClaimId::Certificate, ClaimId::Compose, ClaimId::AppId], |machine| {
        machine.events.retain(|event| !["app-id", "compose-hash"].contains(&event.name.as_str()));
    });
    machine("key provider", &[ClaimId::KeyProvider], |machine| {
        let at = machine.at("key-provider");
        machine.events[at].payload = b"none".to_vec();
    });
    machine("image by its own words", &[ClaimId::OsImage], |machine| {
        let at = machine.at("key-provider");
        machine.events.insert(at, RuntimeEvent::new("os-image-hash", [7; 32]));
    });

    let machine = Machine::new();
    let expectations = Expectations {
        compose: Some(ExpectedCompose::Document(other.into_bytes())),
        ..machine.expectations()
    };
    refused("expected document", &machine.appraise(&machine.evidence(), &expectations), &[ClaimId::Compose]);
}

#[test]
fn a_lying_description_or_another_boot_is_refused() {
    let by = [ClaimId::Boot];
    let mut other = Machine::new();
    other.image.kernel = Measurement::of("another kernel");
    let honest = Machine::new();
    let describe = |evidence: &mut Evidence, change: &dyn Fn(&mut cloister_evidence::VmConfig)| {
        let mut config = vm_config(&honest.image, honest.cpu_count, honest.memory_size);
        change(&mut config);
        evidence.document.vm_config = serde_json::to_string(&config).unwrap();
    };
    let foreign = vm_config(&other.image, honest.cpu_count, honest.memory_size);
    on_the_way("image hash", &by, |evidence| {
        describe(evidence, &|config| config.os_image_hash = foreign.os_image_hash);
    });
    on_the_way("whole image", &by, |evidence| describe(evidence, &|config| *config = foreign.clone()));
    on_the_way("measurement", &by, |evidence| {
        describe(evidence, &|config| {
            config.launch_measurement.as_mut().unwrap().measurement =
                foreign.launch_measurement.as_ref().unwrap().measurement.clone();
        });
    });
    on_the_way("no measurement", &by, |evidence| {
        describe(evidence, &|config| config.launch_measurement = None);
    });
    on_the_way("CPUs", &by, |evidence| describe(evidence, &|config| config.cpu_count += 1));
    on_the_way("memory", &by, |evidence| describe(evidence, &|config| config.memory_size += 1));
    on_the_way("no description", &by, |evidence| evidence.document.vm_config.clear());

    // An honest description of another image: true, and not the expected one.
    machine("image", &[ClaimId::OsImage], |machine| machine.image.kernel = Measurement::of("another kernel"));
    machine("command line", &[ClaimId::OsImage], |machine| machine.image.cmdline.push_str(" init=/bin/sh"));
}

#[test]
fn the_two_forms_of_evidence_must_agree() {
    let machine = Machine::new();
    let honest = machine.evidence();
    let by = [ClaimId::Signature];
    let judge = |what: &str, change: &dyn Fn(&mut cloister_evidence::AttestationDocument)| {
        let mut evidence = honest.clone();
        change(&mut evidence.document);
        refused(what, &machine.appraise(&evidence, &machine.expectations()), &by);
    };
    let other = Machine::new().evidence().document;
    judge("another quote", &|document| document.attestation.clone_from(&other.attestation));
    judge("not an attestation", &|document| document.attestation = Some("05".to_owned()));
    judge("another event", &|document| {
        document.event_log = document.event_log.replace("my-event", "no-event");
    });

    let mut versioned = honest.clone();
    versioned.document.quote = None;
    versioned.document.event_log.clear();
    let appraisal = machine.appraise(&versioned, &machine.expectations());
    assert!(appraisal.verified, "one form is enough: {:#?}", appraisal.claims);
}

#[test]
fn each_register_is_named_when_it_differs() {
    let cases: [Case<Machine>; 5] = [
        ("MRTD", |machine| machine.image.firmware = Measurement::of("x")),
        ("RTMR0", |machine| machine.cpu_count = 3),
        ("RTMR1", |machine| machine.image.kernel = Measurement::of("x")),
        ("RTMR2", |machine| machine.image.initrd = Measurement::of("x")),
        ("RTMR2", |machine| machine.image.cmdline.push('x')),
    ];
    for (register, change) in cases {
        let mut machine = Machine::new();
        let (honest, expectations) = (machine.evidence().document.vm_config, machine.expectations());
        change(&mut machine);
        let mut evidence = machine.evidence();
        evidence.document.vm_config = honest;
        let appraisal = machine.appraise(&evidence, &expectations);
        refused(register, &appraisal, &[ClaimId::Boot]);
        let sentence = &appraisal.claim(ClaimId::Boot).unwrap().sentence;
        assert!(sentence.contains(&format!("else: {register} differs")), "{sentence}");
        // What unknown software measured proves nothing.
        for id in [ClaimId::Compose, ClaimId::AppId, ClaimId::OsImage, ClaimId::KeyProvider] {
            assert_eq!(appraisal.claim(id).unwrap().outcome, Outcome::NotChecked, "{id:?}");
        }
    }
}

#[test]
fn evidence_of_another_occasion_is_refused() {
    let machine = Machine::new();
    let expectations = Expectations { nonce: Some(Nonce::Own([0x55; 64])), ..machine.expectations() };
    refused("replayed", &machine.appraise(&machine.evidence(), &expectations), &[ClaimId::Freshness]);
    on_the_way("report data beside the quote", &[ClaimId::Freshness], |evidence| {
        evidence.document.report_data.replace_range(0..1, "0");
    });
}

#[test]
fn a_root_that_was_not_configured_is_refused() {
    let machine = Machine::new();
    let stranger = Machine::new();
    let (evidence, expectations) = (stranger.evidence(), stranger.expectations());
    let by = [ClaimId::Certificate, ClaimId::Signature];
    refused("another installation", &machine.appraise(&evidence, &expectations), &by);

    let production = Verifier::offline(TrustRoots::vendors().in_production().unwrap(), Clock::fixed(*NOW));
    let collateral = stranger.collateral();
    let appraised = appraise_with(&production, &evidence, &expectations, &collateral, *NOW);
    refused("development root in production", &appraised.appraisal, &by);

    // Even by a verifier that knows the root.
    let expectations = Expectations { production: true, ..stranger.expectations() };
    let appraisal = stranger.appraise(&evidence, &expectations);
    refused("production demanded", &appraisal, &[ClaimId::Signature]);
}

#[test]
fn nothing_holds_on_a_quote_that_does_not() {
    let machine = Machine::new();
    let mut evidence = machine.evidence();
    evidence.document.attestation = None;
    let mut quote = hex::decode(evidence.document.quote.unwrap()).unwrap();
    quote[570] ^= 1;
    evidence.document.quote = Some(hex::encode(quote));
    let appraisal = machine.appraise(&evidence, &machine.expectations());
    refused("tampered", &appraisal, &[ClaimId::Signature]);
    let holding = appraisal.claims.iter().filter(|claim| claim.outcome == Outcome::Holds).count();
    assert_eq!(holding, 0, "{:#?}", appraisal.claims);

    for quote in [None, Some(String::new()), Some("xyz".to_owned()), Some("00".repeat(70_000))] {
        evidence.document.quote = quote;
        refused("no quote", &machine.appraise(&evidence, &machine.expectations()), &[ClaimId::Signature]);
    }
}

#[test]
fn the_state_of_the_platform_counts() {
    let mut machine = Machine::new();
    machine.collateral.status = "OutOfDate".to_owned();
    machine.collateral.advisory_ids = vec!["INTEL-SA-00001".to_owned()];
    let evidence = machine.evidence();
    refused("outdated", &machine.appraise(&evidence, &machine.expectations()), &[ClaimId::Tcb]);

    let tolerant = Expectations {
        accepted_tcb: BTreeSet::from([TcbStatus::UpToDate, TcbStatus::OutOfDate]),
        ..machine.expectations()
    };
    assert!(machine.appraise(&evidence, &tolerant).verified);
    let strict =
        Expectations { denied_advisories: BTreeSet::from(["INTEL-SA-00001".to_owned()]), ..tolerant };
    refused("advisory", &machine.appraise(&evidence, &strict), &[ClaimId::Tcb]);

    machine.collateral.status = "Revoked".to_owned();
    let by = [ClaimId::Certificate, ClaimId::Signature];
    refused("revoked", &machine.appraise(&evidence, &strict), &by);

    let mut machine = Machine::new();
    machine.collateral.next_update = *NOW - SignedDuration::from_secs(1);
    let appraisal = machine.appraise(&machine.evidence(), &machine.expectations());
    refused("expired collateral", &appraisal, &by);
}

#[test]
fn a_machine_in_debug_mode_is_refused() {
    let by = [ClaimId::Certificate, ClaimId::Signature, ClaimId::Debug];
    machine("debug", &by, |machine| machine.td_attributes |= 1);
}

#[tokio::test]
async fn without_collateral_nothing_is_said() {
    let machine = Machine::new();
    // This verifier has no source of collateral.
    let appraised =
        crate::appraisal::appraise(&machine.verifier(), &machine.evidence(), &machine.expectations()).await;
    refused("no collateral", &appraised.appraisal, &[]);
    assert_eq!(appraised.appraisal.claim(ClaimId::Signature).unwrap().outcome, Outcome::NotChecked);
    assert!(appraised.collateral.is_none());
}
