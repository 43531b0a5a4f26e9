//! What webhooks are told of operations.

use std::collections::HashMap;

use cloister_webhooks::EventKind;
use serde_json::Value;

use super::*;

impl Bench {
    /// Every operation of a CVM has ended and is told as exactly one event, of its kind and with its outcome.
    pub(super) async fn check_told(&self, cvm: &CvmRow) {
        let mut told = HashMap::<String, Vec<(String, Value)>>::new();
        for (operation, kind, data) in self.store.told_of_operations().await {
            told.entry(operation).or_default().push((kind, serde_json::from_str(&data).unwrap()));
        }
        for operation in self.operations(cvm).await {
            let failed = operation.status == OperationStatus::Failed;
            let events = told.remove(&operation.correlation_id.to_string()).unwrap_or_default();
            let [(kind, data)] = events.as_slice() else { panic!("{}: {events:?}", operation.kind) };
            assert_eq!(*kind, operation.kind.event(failed).as_str());
            assert_eq!(data["cvm_id"], cvm.vm_uuid.to_string());
            assert_eq!(data["app_id"], format!("0x{}", cvm.app_id));
            assert_eq!(data.get("error").is_some(), failed, "{data}");
            let last = self.store.events(operation.correlation_id).await.unwrap().pop().unwrap();
            assert_eq!(data["status"], last.state, "the status that the history has");
        }
    }
}

#[test]
fn every_kind_of_operation_is_told_as_the_documents_say() {
    use EventKind::{CvmCreated, CvmDeleted, CvmRestarted, CvmStarted, CvmStopped, CvmUpdated};
    let told: Vec<_> = OperationKind::ALL.iter().map(|kind| kind.event(false)).collect();
    let expected = [
        CvmCreated,
        CvmStarted,
        CvmStopped,
        CvmStopped,
        CvmRestarted,
        CvmCreated,
        CvmUpdated,
        CvmUpdated,
        CvmUpdated,
        CvmUpdated,
        CvmUpdated,
        CvmUpdated,
        CvmDeleted,
    ];
    assert_eq!(told, expected);
    for kind in OperationKind::ALL {
        let is_first = matches!(kind, OperationKind::Create | OperationKind::Replicate);
        let expected = if is_first { EventKind::CvmCreateFailed } else { CvmUpdated };
        assert_eq!(kind.event(true), expected);
    }
}

#[tokio::test]
async fn a_failure_is_told_with_its_reason_and_without_the_operators_addresses() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        bench
            .nodes
            .set_fault(Step::PrepareDisk, Fault::RefuseOnce("no room at 10.1.2.3:7443 in /var/lib/vms"));
        let cvm = bench.create().await.unwrap();
        bench.at_rest(&cvm).await;
        bench.check_told(&cvm).await;
        let (_, kind, data) = bench.store.told_of_operations().await.remove(0);
        assert_eq!(kind, "cvm.create_failed");
        assert!(data.contains("no room at [hidden] in [hidden]"), "{data}");
    })
    .await;
}
