//! Kinds, ids, samples and schemas.

use cloister_webhooks::{Envelope, EventId, EventKind, InvalidEventId, sample, schema};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::validator::faults;

#[test]
fn the_kinds_are_those_of_the_interface() {
    let names: Vec<_> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(
        names,
        [
            "cvm.created",
            "cvm.started",
            "cvm.create_failed",
            "cvm.restarted",
            "cvm.updated",
            "cvm.stopped",
            "cvm.deleted",
            "cvm.update.pending_approval",
            "cvm.replica.pending_approval",
            "app.budget.alert",
            "app.budget.exceeded",
        ]
    );
    for kind in EventKind::ALL {
        assert_eq!(kind.as_str().parse(), Ok(*kind));
        assert!(kind.description().ends_with('.'), "{kind}");
    }
    for text in ["", "cvm", "cvm.created ", "CVM.created", "*", "gpu_rental.order"] {
        assert!(text.parse::<EventKind>().is_err(), "{text}");
    }
}

#[test]
fn a_body_is_compact_and_has_its_members_in_order() {
    insta::assert_snapshot!(String::from_utf8(sample(EventKind::CvmCreated).to_bytes()).unwrap());
    insta::assert_json_snapshot!(sample(EventKind::UpdatePendingApproval));
    insta::assert_json_snapshot!(schema(EventKind::CvmCreateFailed));
    insta::assert_json_snapshot!(schema(EventKind::ReplicaPendingApproval));
}

#[test]
fn every_sample_fits_its_schema_and_none_of_another_kind() {
    for kind in EventKind::ALL {
        let (schema, body) = (schema(*kind), serde_json::to_value(sample(*kind)).unwrap());
        assert_eq!(faults(&schema, &schema, &body, ""), Vec::<String>::new(), "{kind}");
        assert_eq!(serde_json::from_value::<Envelope>(body).unwrap(), sample(*kind));
        for other in EventKind::ALL.iter().filter(|other| *other != kind) {
            let body = serde_json::to_value(sample(*other)).unwrap();
            assert!(
                faults(&schema, &schema, &body, "").contains(&".event: const".to_owned()),
                "{kind} {other}"
            );
        }
    }
}

#[test]
fn a_body_without_any_one_of_its_members_does_not_fit() {
    for kind in EventKind::ALL {
        let (schema, body) = (schema(*kind), serde_json::to_value(sample(*kind)).unwrap());
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        for name in names(&body) {
            let mut less = body.clone();
            less.as_object_mut().unwrap().remove(&name);
            assert_eq!(faults(&schema, &schema, &less, ""), [format!(".{name}: missing")], "{kind}");
        }
        for name in names(&body["data"]) {
            let mut wrong = body.clone();
            wrong["data"][&name] = json!([[]]);
            assert!(!faults(&schema, &schema, &wrong, "").is_empty(), "{kind} {name}");
        }
    }
}

#[test]
fn an_id_is_written_one_way_only() {
    assert_eq!(
        EventId::new([0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]).as_str(),
        "evt_0123456789abcdef"
    );
    for text in [
        "",
        "evt_",
        "evt_0123456789ABCDEF",
        "evt_0123456789abcde",
        "evt_0123456789abcdef0",
        "evt-0123456789abcdef",
    ] {
        assert_eq!(text.parse::<EventId>(), Err(InvalidEventId), "{text}");
    }
}

proptest! {
    #[test]
    fn every_id_reads_back(random: [u8; 8]) {
        let id = EventId::new(random);
        prop_assert_eq!(id.as_str().parse(), Ok(id.clone()));
    }
}
