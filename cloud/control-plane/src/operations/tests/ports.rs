//! Ports of the node that lead to a CVM.

use cloister_node_api::{PortMapping, PortProtocol};
use serde_json::Value;

use super::*;
use crate::store::NewCvm;

const WEB: WantedPort = (PortProtocol::Tcp, 80);
const DNS: WantedPort = (PortProtocol::Udp, 53);

/// The operator of the node gives these ports, or none.
async fn offer(bench: &Bench, range: Value) {
    let node = bench.store.node(bench.ground.node).await.unwrap().unwrap();
    let mut report: Value = serde_json::from_str(&node.report.unwrap()).unwrap();
    report["port_range"] = range;
    let mut change = bench.store.change().await.unwrap();
    change.put_node_report(node.id, &report.to_string(), bench.clock.now_ms()).await.unwrap();
    change.commit().await.unwrap();
}

async fn map(bench: &Bench, cvm: &CvmRow, ports: &[WantedPort]) -> Result<Vec<PortMapping>, MapPortsError> {
    bench.lifecycle.map_ports(cvm.id, ports, bench.ground.user).await
}

#[tokio::test]
async fn ports_reach_a_vm_that_goes_on() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        offer(&bench, serde_json::json!([30000, 30099])).await;
        let cvm = bench.running_cvm().await;
        let mapped = map(&bench, &cvm, &[WEB, DNS]).await.unwrap();
        let rested = bench.at_rest(&cvm).await;
        assert_eq!((rested.status, rested.port_mappings()), (CvmStatus::Running, mapped.clone()));
        assert_eq!(bench.nodes.spec_of(cvm.vm_uuid).unwrap().ports, mapped);
        assert_eq!(bench.nodes.power_ons(), 1, "the VM was not restarted");

        let operations = bench.operations(&cvm).await.len();
        assert_eq!(map(&bench, &cvm, &[WEB, DNS]).await.unwrap(), mapped);
        assert_eq!(bench.operations(&cvm).await.len(), operations, "nothing had to be done");

        // They outlive a restart, and what stays keeps its port.
        bench.request(&cvm, OperationKind::Restart).await.unwrap();
        bench.at_rest(&cvm).await;
        let fewer = map(&bench, &cvm, &[DNS]).await.unwrap();
        assert_eq!(fewer, mapped[1..]);
        bench.at_rest(&cvm).await;
        assert_eq!(bench.nodes.spec_of(cvm.vm_uuid).unwrap().ports, fewer);
        assert!(map(&bench, &cvm, &[]).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_node_that_refuses_leaves_the_former_ports() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        offer(&bench, serde_json::json!([30000, 30099])).await;
        let cvm = bench.running_cvm().await;
        let former = map(&bench, &cvm, &[WEB]).await.unwrap();
        bench.at_rest(&cvm).await;
        bench.nodes.set_fault(Step::PrepareDisk, Fault::Refuse("another process has the port"));
        map(&bench, &cvm, &[WEB, DNS]).await.unwrap();
        let rested = bench.at_rest(&cvm).await;
        assert_eq!(rested.port_mappings(), former, "what failed is not shown");
        let last = bench.operations(&cvm).await.pop().unwrap();
        assert_eq!(last.failure.as_deref(), Some("another process has the port"));

        // Off, the CVM stays what it was; its next start brings what the node does not know.
        bench.nodes.clear_faults();
        bench.request(&cvm, OperationKind::PowerOff).await.unwrap();
        bench.at_rest(&cvm).await;
        bench.nodes.set_fault(Step::PrepareDisk, Fault::Refuse("no"));
        map(&bench, &cvm, &[DNS]).await.unwrap();
        let rested = bench.at_rest(&cvm).await;
        assert_eq!((rested.status, rested.port_mappings()), (CvmStatus::Stopped, former));
    })
    .await;
}

#[tokio::test]
async fn no_port_of_a_node_leads_to_two_cvms_not_even_while_it_may_come_back() {
    on_both(|store| async move {
        let bench = Bench::without_workers(store).await;
        offer(&bench, serde_json::json!([30000, 30000])).await;
        let first = bench.create().await.unwrap();
        settle(&bench, &first).await;
        let mapped = map(&bench, &first, &[WEB]).await.unwrap();
        assert_eq!(mapped[0].host_port, 30000);
        settle(&bench, &first).await;

        let row = bench.store.cvm(first.id).await.unwrap().unwrap();
        let new = NewCvm {
            workspace_id: row.workspace_id,
            user_id: row.user_id,
            node_id: row.node_id,
            vm_uuid: Random.uuid().unwrap(),
            name: "web-2".to_owned(),
            app_id: APP,
            kms_id: None,
            listed: 0,
            configuration: row.configuration(),
        };
        let mut change = bench.store.change().await.unwrap();
        let second = bench.lifecycle.insert(&mut change, &new, OperationKind::Replicate).await.unwrap();
        change.commit().await.unwrap();
        settle(&bench, &second).await;
        assert!(matches!(map(&bench, &second, &[WEB]).await, Err(MapPortsError::NoneFree(_))));

        // The first one gives it back, but its operation may still fail.
        map(&bench, &first, &[]).await.unwrap();
        assert!(matches!(map(&bench, &second, &[WEB]).await, Err(MapPortsError::NoneFree(_))));
        let busy = map(&bench, &first, &[DNS]).await;
        assert!(matches!(busy, Err(MapPortsError::Request(RequestError::Busy(OperationKind::MapPorts)))));
        settle(&bench, &first).await;
        assert_eq!(map(&bench, &second, &[WEB]).await.unwrap(), mapped);
    })
    .await;
}

/// Lets the operation of a CVM end as if a worker had done it.
async fn settle(bench: &Bench, cvm: &CvmRow) {
    let (now_ms, lease) = (bench.clock.now_ms(), Random.uuid().unwrap());
    let leased = bench.store.lease_operation(lease, now_ms, now_ms + 60_000).await.unwrap().unwrap();
    assert_eq!(leased.cvm_id, cvm.id);
    let mut change = bench.store.change().await.unwrap();
    let id = leased.correlation_id;
    assert!(change.finish_operation(id, lease, OperationStatus::Completed, now_ms).await.unwrap());
    change.set_cvm_status(cvm.id, CvmStatus::Running, now_ms).await.unwrap();
    change.release_cvm(cvm.id, id).await.unwrap();
    change.commit().await.unwrap();
}

#[tokio::test]
async fn ports_are_mapped_where_the_operator_offers_some() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let cvm = bench.running_cvm().await;
        assert!(matches!(map(&bench, &cvm, &[WEB]).await, Err(MapPortsError::NotOffered(_))));
        offer(&bench, serde_json::json!([30000, 30099])).await;
        map(&bench, &cvm, &[WEB]).await.unwrap();
        bench.at_rest(&cvm).await;
        // What an operator takes back can still be given back.
        offer(&bench, Value::Null).await;
        assert!(map(&bench, &cvm, &[]).await.unwrap().is_empty());
        bench.at_rest(&cvm).await;
        bench.request(&cvm, OperationKind::Delete).await.unwrap();
        bench.at_rest(&cvm).await;
        let gone = map(&bench, &cvm, &[]).await;
        assert!(matches!(gone, Err(MapPortsError::Request(RequestError::NotFound))));
    })
    .await;
}
