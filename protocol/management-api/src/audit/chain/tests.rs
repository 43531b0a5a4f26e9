use proptest::prelude::*;

use super::*;
use crate::audit::{AuditActor, AuditTarget};
use crate::ids::{TokenId, UserId};

/// A chain of `count` records.
fn chain(workspace: Option<WorkspaceId>, count: i64) -> Vec<AuditRecord> {
    let mut records: Vec<AuditRecord> = Vec::new();
    for sequence in 1..=count {
        let mut record = AuditRecord {
            version: AUDIT_VERSION,
            workspace,
            sequence,
            time: jiff::Timestamp::from_millisecond(1_790_000_000_000 + sequence / 2).unwrap(),
            actor: AuditActor {
                kind: "key".to_owned(),
                name: Some("ada \"λ\"".to_owned()),
                user_id: Some(UserId(1)),
                key_id: Some(TokenId(sequence)),
                key_prefix: Some("phak_0123456".to_owned()),
            },
            request_id: (sequence % 2 == 0).then(|| format!("request-{sequence}")),
            operation: "rename_cvm".to_owned(),
            target: AuditTarget { kind: "cvm".to_owned(), id: format!("cvm_{sequence}") },
            before: None,
            after: Some("ab".repeat(32)),
            previous: records.last().map_or_else(|| NO_RECORD.to_owned(), |last| last.hash.clone()),
            hash: String::new(),
        };
        record.hash = record.computed_hash();
        records.push(record);
    }
    records
}

fn lines(records: &[AuditRecord]) -> Vec<String> {
    records.iter().map(|record| serde_json::to_string(record).unwrap()).collect()
}

fn check(lines: &[String], mut chain: AuditChain) -> Result<AuditPlace, AuditFault> {
    for line in lines {
        chain.line(line)?;
    }
    chain.finish()
}

fn head(records: &[AuditRecord]) -> AuditPlace {
    let last = records.last().unwrap();
    AuditPlace { sequence: last.sequence, hash: last.hash.clone() }
}

#[test]
fn a_whole_chain_holds_from_any_head_of_it() {
    let records = chain(Some(WorkspaceId(3)), 7);
    for kept in 1..=7 {
        let kept = head(&records[..kept]);
        assert_eq!(check(&lines(&records), AuditChain::through([kept])), Ok(head(&records)));
    }
    let none = AuditPlace { sequence: 0, hash: NO_RECORD.to_owned() };
    assert_eq!(check(&[], AuditChain::through([none.clone()])), Ok(none));
}

#[test]
fn removal_insertion_reordering_truncation_and_rewriting_are_found() {
    let records = chain(Some(WorkspaceId(3)), 6);
    let (text, kept) = (lines(&records), head(&records));
    let judged = |lines: &[String]| check(lines, AuditChain::through([kept.clone()]));
    for at in 0..6 {
        let mut removed = text.clone();
        removed.remove(at);
        assert!(judged(&removed).is_err(), "{at}");
        let mut twice = text.clone();
        twice.insert(at, text[at].clone());
        assert!(judged(&twice).is_err(), "{at}");
        assert_eq!(
            judged(&text[..at]),
            Err(AuditFault::Truncated { end: i64::try_from(at).unwrap(), kept: 6 })
        );
        for other in 0..at {
            let mut swapped = text.clone();
            swapped.swap(at, other);
            assert!(judged(&swapped).is_err(), "{at} {other}");
        }
        // A forger who can write everything makes a chain that holds, but not one that a kept head knows.
        let mut forged = records.clone();
        forged[at].target.id = "cvm_forged".to_owned();
        for index in at..6 {
            if index > 0 {
                forged[index].previous = forged[index - 1].hash.clone();
            }
            forged[index].hash = forged[index].computed_hash();
        }
        assert!(check(&lines(&forged), AuditChain::through([])).is_ok());
        assert_eq!(judged(&lines(&forged)), Err(AuditFault::Rewritten(6)), "{at}");
    }
}

#[test]
fn records_of_other_chains_and_forms_are_found() {
    let mut mixed = chain(Some(WorkspaceId(3)), 3);
    mixed[1].workspace = None;
    mixed[1].hash = mixed[1].computed_hash();
    mixed[2].previous = mixed[1].hash.clone();
    mixed[2].hash = mixed[2].computed_hash();
    assert_eq!(check(&lines(&mixed), AuditChain::through([])), Err(AuditFault::Chain(2)));
    let mut newer = chain(None, 1);
    newer[0].version = 2;
    newer[0].hash = newer[0].computed_hash();
    assert_eq!(check(&lines(&newer), AuditChain::through([])), Err(AuditFault::Version(1)));
    let mut earlier = chain(None, 2);
    earlier[1].time = jiff::Timestamp::UNIX_EPOCH;
    earlier[1].hash = earlier[1].computed_hash();
    assert_eq!(check(&lines(&earlier), AuditChain::through([])), Err(AuditFault::Time(2)));
}

proptest! {
    #[test]
    fn no_byte_changes_unnoticed(row in 0_usize..4, place in any::<prop::sample::Index>(), flip in 1_u8..) {
        let records = chain(Some(WorkspaceId(3)), 4);
        let mut text = lines(&records);
        let mut bytes = text[row].clone().into_bytes();
        let at = place.index(bytes.len());
        bytes[at] ^= flip;
        let Ok(changed) = String::from_utf8(bytes) else { return Ok(()) };
        text[row] = changed;
        prop_assert!(check(&text, AuditChain::through([])).is_err(), "{}", text[row]);
    }

    #[test]
    fn no_added_member_is_overlooked(name in "[a-z]{1,8}_x", value in any::<i64>()) {
        let records = chain(None, 1);
        let mut document = serde_json::to_value(&records[0]).unwrap();
        document[name] = value.into();
        prop_assert_eq!(AuditChain::through([]).value(&document), Err(AuditFault::Hash(1)));
    }

    #[test]
    fn no_line_panics(line in "\\PC{0,200}") {
        prop_assert!(AuditChain::through([]).line(&line).is_err());
    }
}
