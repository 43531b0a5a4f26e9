//! The scheduler as a pure function.

use std::collections::{BTreeMap, BTreeSet};

use cloister_node_api::NodeReport;
use proptest::prelude::*;
use serde_json::json;

use crate::fleet::{Choice, Demand, DeviceWish, GpuNeed, ImageWish, NodeStanding, Refusal, Requirements};
use crate::store::{NodeRow, Usage};

const NOW_MS: i64 = 1_790_000_000_000;

/// A node: slots, CPUs, memory in GiB, GPUs of two products.
#[derive(Debug, Clone)]
struct Machine {
    slots: u32,
    vcpu: u32,
    memory_gb: u32,
    gpus: Vec<bool>,
    listed: bool,
    closed: u8,
}

fn machine() -> impl Strategy<Value = Machine> {
    (0u32..4, 0u32..16, 0u32..32, proptest::collection::vec(any::<bool>(), 0..4), 0u8..10, 0u8..12).prop_map(
        |(slots, vcpu, memory_gb, gpus, listed, closed)| Machine {
            slots,
            vcpu,
            memory_gb,
            gpus,
            listed: listed > 0,
            closed,
        },
    )
}

fn demand() -> impl Strategy<Value = Demand> {
    let gpus = prop_oneof![
        4 => Just(GpuNeed::None),
        1 => (1u32..3).prop_map(|count| GpuNeed::Count { count, product: None }),
        1 => (1u32..3).prop_map(|count| GpuNeed::Count { count, product: Some("10de:2335".to_owned()) }),
        1 => Just(GpuNeed::All),
    ];
    (1i64..6, 1i64..8, gpus).prop_map(|(vcpu, memory_gb, gpus)| Demand {
        needs: Requirements { vcpu, memory_mb: memory_gb * 1024, disk_gb: 20, os_image_hash: None, gpus },
        ..Demand::default()
    })
}

fn report(machine: &Machine) -> NodeReport {
    let gpus: Vec<_> = machine
        .gpus
        .iter()
        .enumerate()
        .map(|(number, first)| {
            json!({"slot": format!("0000:4{number}:00.0"),
                   "product_id": if *first { "10de:2335" } else { "10de:2901" }, "product_name": "GPU",
                   "confidential_computing": "off", "assignable": true})
        })
        .collect();
    serde_json::from_value(json!({
        "version": "0.1.0", "region": "Home", "endpoint": "localhost:1", "ingress_url_template": "",
        "ingress_domain": "", "platform": "kvm", "maintenance": machine.closed == 1,
        "capacity": {"cvm_slots": machine.slots, "vcpu": machine.vcpu, "memory_mb": machine.memory_gb * 1024,
                     "disk_gb": 1000},
        "images": [{"name": "base", "version": "0.1.0", "is_dev": false, "os_image_hash": "01".repeat(32)},
                   {"name": "gpu", "version": "0.1.0", "is_dev": false, "os_image_hash": "02".repeat(32),
                    "supports_gpu": true}],
        "vms": [], "gpus": gpus,
    }))
    .unwrap()
}

fn standing(id: i64, machine: &Machine) -> NodeStanding {
    let node = NodeRow {
        id,
        name: format!("node-{id}"),
        listed: i64::from(machine.listed),
        maintenance: 0,
        draining: i64::from(machine.closed == 2),
        usage: Usage::default(),
        report: None,
        report_number: 1,
        reported_at_ms: Some(if machine.closed == 3 { 0 } else { NOW_MS }),
        created_at_ms: 0,
    };
    NodeStanding::with_report(node, Some(report(machine).into()), NOW_MS)
}

fn fleet(machines: &[Machine]) -> Vec<NodeStanding> {
    machines.iter().zip(1..).map(|(machine, id)| standing(id, machine)).collect()
}

/// Takes from the node what the CVM gets.
fn settle(nodes: &mut [NodeStanding], choice: &Choice, demand: &Demand) {
    let node = nodes.iter_mut().find(|node| node.node.id == choice.node_id).unwrap();
    node.node.usage.cvms += 1;
    node.node.usage.vcpu += demand.needs.vcpu;
    node.node.usage.memory_mb += demand.needs.memory_mb;
    node.node.usage.disk_gb += demand.needs.disk_gb;
    for slot in &choice.gpus {
        assert!(node.gpus_used.insert(slot.clone()), "{slot} twice");
    }
}

proptest! {
    #[test]
    fn no_node_gets_more_than_it_has_and_no_gpu_two_owners(
        machines in proptest::collection::vec(machine(), 1..8),
        demands in proptest::collection::vec(demand(), 1..40),
    ) {
        let mut nodes = fleet(&machines);
        for demand in &demands {
            match demand.place(&nodes) {
                Ok(choice) => {
                    let count = match &demand.needs.gpus {
                        GpuNeed::Count { count, .. } => Some(usize::try_from(*count).unwrap()),
                        GpuNeed::None => Some(0),
                        _ => None,
                    };
                    prop_assert!(count.is_none_or(|count| count == choice.gpus.len()));
                    prop_assert!(choice.gpus.is_empty() || choice.image.supports_gpu);
                    settle(&mut nodes, &choice, demand);
                }
                // Whoever is refused hears of every node that is offered, with a reason.
                Err(none) => {
                    let listed: Vec<_> = nodes.iter().filter(|n| n.node.listed != 0).map(|n| n.node.id).collect();
                    let spoken_of: Vec<_> = none.rejected.iter().map(|node| node.node_id).collect();
                    prop_assert_eq!(spoken_of, listed);
                    prop_assert!(none.rejected.iter().all(|node| !node.reasons.is_empty()));
                }
            }
        }
        for (node, machine) in nodes.iter().zip(&machines) {
            let usage = node.node.usage;
            prop_assert!(usage.cvms <= i64::from(machine.slots) && usage.vcpu <= i64::from(machine.vcpu));
            prop_assert!(usage.memory_mb <= i64::from(machine.memory_gb) * 1024);
            prop_assert!(usage.cvms == 0 || (machine.listed && !(1..=3).contains(&machine.closed)));
        }
    }

    #[test]
    fn the_order_of_the_nodes_does_not_matter(
        machines in proptest::collection::vec(machine(), 1..8),
        demand in demand(),
        siblings in proptest::collection::btree_map(1i64..8, 0i64..3, 0..8),
        turn in 0usize..8,
    ) {
        let nodes = fleet(&machines);
        let demand = Demand { siblings, ..demand };
        let mut turned = nodes.clone();
        turned.rotate_left(turn % nodes.len());
        let choice = demand.place(&nodes);
        prop_assert_eq!(&choice, &demand.place(&turned));
        turned.reverse();
        prop_assert_eq!(choice, demand.place(&turned));
    }
}

fn roomy() -> Machine {
    Machine { slots: 4, vcpu: 16, memory_gb: 32, gpus: vec![], listed: true, closed: 0 }
}

fn small() -> Demand {
    Demand {
        needs: Requirements { vcpu: 1, memory_mb: 1024, disk_gb: 20, ..Requirements::default() },
        ..Demand::default()
    }
}

#[test]
fn the_reasons_are_told() {
    let with_gpus = Machine { gpus: vec![true, true], ..roomy() };
    let cases: Vec<(Machine, Demand, Refusal)> = vec![
        (Machine { closed: 1, ..roomy() }, small(), Refusal::Maintenance),
        (Machine { closed: 2, ..roomy() }, small(), Refusal::Draining),
        (Machine { closed: 3, ..roomy() }, small(), Refusal::Offline),
        (Machine { slots: 0, ..roomy() }, small(), Refusal::Slots),
        (Machine { vcpu: 0, ..roomy() }, small(), Refusal::Vcpu),
        (Machine { memory_gb: 0, ..roomy() }, small(), Refusal::Memory),
        (roomy(), Demand { region: Some("away".into()), ..small() }, Refusal::Region),
        (
            roomy(),
            Demand { image: ImageWish { name: Some("x".into()), ..ImageWish::default() }, ..small() },
            Refusal::Image,
        ),
        (
            roomy(),
            Demand { image: ImageWish { dev: Some(true), ..ImageWish::default() }, ..small() },
            Refusal::NoFittingImage,
        ),
        (
            with_gpus.clone(),
            Demand {
                needs: Requirements { gpus: GpuNeed::Count { count: 3, product: None }, ..small().needs },
                ..small()
            },
            Refusal::Gpus,
        ),
        (
            with_gpus.clone(),
            Demand {
                needs: Requirements { gpus: GpuNeed::Slots(vec!["0000:49:00.0".into()]), ..small().needs },
                ..small()
            },
            Refusal::GpuUnknown("0000:49:00.0".into()),
        ),
    ];
    for (machine, demand, expected) in cases {
        let none = demand.place(&fleet(&[machine])).unwrap_err();
        assert_eq!(none.rejected[0].reasons, [expected]);
    }
    assert!(Demand { region: Some("HOME".into()), ..small() }.place(&fleet(&[roomy()])).is_ok());
}

#[test]
fn gpus_are_kept_for_those_who_need_them() {
    // The node with GPUs has far more room.
    let gpu_node = Machine { slots: 40, vcpu: 160, gpus: vec![true], ..roomy() };
    let mut nodes = fleet(&[gpu_node, roomy()]);
    assert_eq!(small().place(&nodes).unwrap().node_id, 2);
    nodes[0].gpus_used = BTreeSet::from(["0000:40:00.0".to_owned()]);
    assert_eq!(small().place(&nodes).unwrap().node_id, 1, "nothing is wasted there any more");
    let wanted = Demand { needs: Requirements { gpus: GpuNeed::All, ..small().needs }, ..small() };
    let none = wanted.place(&nodes).unwrap_err();
    assert_eq!(none.rejected[0].reasons, [Refusal::GpusOccupied]);
    assert_eq!(none.rejected[1].reasons, [Refusal::Gpus]);
}

#[test]
fn protected_machines_take_only_protected_gpus() {
    let mut report = report(&Machine { gpus: vec![true], ..roomy() });
    report.platform = cloister_node_api::Platform::Tdx;
    let wanted = GpuNeed::Count { count: 1, product: None };
    for (mode, is_dev, expected) in [
        (cloister_node_api::GpuConfidentialMode::On, false, true),
        (cloister_node_api::GpuConfidentialMode::Devtools, false, false),
        (cloister_node_api::GpuConfidentialMode::Devtools, true, true),
        (cloister_node_api::GpuConfidentialMode::Off, true, false),
        (cloister_node_api::GpuConfidentialMode::Unknown, false, false),
    ] {
        report.gpus[0].confidential_computing = mode;
        let mut node = standing(1, &roomy());
        node.report = Some(report.clone().into());
        assert_eq!(node.choose_gpus(&wanted, is_dev).is_ok(), expected, "{mode:?} {is_dev}");
    }
}

#[test]
fn replicas_go_apart() {
    let nodes = fleet(&[roomy(), roomy(), roomy()]);
    let siblings = BTreeMap::from([(1, 1), (2, 2)]);
    assert_eq!(Demand { siblings: siblings.clone(), ..small() }.place(&nodes).unwrap().node_id, 3);
    assert_eq!(Demand { siblings, avoid: Some(3), ..small() }.place(&nodes).unwrap().node_id, 1);
}

#[test]
fn allowed_devices_come_first_and_where_they_have_to_be_alone() {
    let tight = Machine { slots: 1, vcpu: 1, memory_gb: 2, ..roomy() };
    let nodes = fleet(&[roomy(), tight.clone(), Machine { slots: 0, ..roomy() }]);
    let wish = |nodes: &[i64], is_required| {
        let devices = Some(DeviceWish { nodes: nodes.iter().copied().collect(), is_required });
        Demand { devices, siblings: BTreeMap::from([(2, 1)]), ..small() }
    };
    for is_required in [true, false] {
        assert_eq!(wish(&[2, 3], is_required).place(&nodes).unwrap().node_id, 2, "however full it is");
        assert_eq!(wish(&[1, 2], is_required).place(&nodes).unwrap().node_id, 1, "then as ever");
    }
    assert_eq!(wish(&[3], false).place(&nodes).unwrap().node_id, 1);
    let none = wish(&[3], true).place(&nodes).unwrap_err();
    let reasons: Vec<_> = none.rejected.iter().map(|node| node.reasons.clone()).collect();
    assert_eq!(reasons, [vec![Refusal::Device], vec![Refusal::Device], vec![Refusal::Slots]]);
    assert!(none.summary().contains("2 of 3 is a device that the application's contract does not allow"));
    // Which ones are asked about: those that fit anyway, the best first.
    for wish in [wish(&[], true), wish(&[2], false)] {
        assert_eq!(wish.fitting(&nodes, 9), [1, 2]);
        assert_eq!(wish.fitting(&nodes, 1), [1]);
    }
}
