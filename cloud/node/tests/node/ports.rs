use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Mutex;

use cloister_node::{OnExit, PortRange};
use cloister_node_api::{NodeErrorCode, PortMapping, PortProtocol, VmNetwork, VmState, paths};
use reqwest::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::support::World;

/// Ports that are free now, below those of outgoing connections. No two calls give the same.
pub(crate) fn free_ports(count: u16) -> PortRange {
    static NEXT: Mutex<u16> = Mutex::new(0);
    let mut next = NEXT.lock().unwrap();
    // Programs of other tests that run now begin elsewhere.
    let start = 20_000 + u16::try_from(std::process::id() % 1000).unwrap() * 10 + *next;
    let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let first = (start..32_000).find(|first| (*first..first + count).all(is_free)).unwrap();
    *next += first - start + count;
    PortRange::new(first, first + count - 1).unwrap()
}

pub(crate) fn mapping(protocol: PortProtocol, host_port: u16, vm_port: u16) -> PortMapping {
    PortMapping { protocol, host_address: String::new(), host_port, vm_port }
}

async fn ask(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
    stream.write_all(b"GET /mapped HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.map(|_| answer)
}

async fn network(world: &World, vm: Uuid) -> Vec<(u16, u16)> {
    let network: VmNetwork =
        world.call(Method::GET, &format!("{}/{vm}/network", paths::VMS), None).await.unwrap();
    let mut ports: Vec<_> = network.ports.iter().map(|port| (port.host_port, port.vm_port)).collect();
    ports.sort_unstable();
    ports
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_mapped_and_changed_while_a_vm_runs() {
    let mut world = World::prepared().await;
    let (first, last) = free_ports(3).bounds();
    (world.config.port_range, world.config.port_address) = (PortRange::new(first, last), Ipv4Addr::LOCALHOST);
    world.start().await;
    assert_eq!(world.report(|_| true).await.port_range, Some((first, last)));
    let mut spec = world.spec(1, "");
    let vm = spec.vm_uuid;
    spec.ports = vec![mapping(PortProtocol::Tcp, first, 80), mapping(PortProtocol::Udp, first, 53)];
    world.prepare(&spec).await.unwrap();
    assert_eq!(network(&world, vm).await, [], "it is off");
    world.power(vm, "start").await.unwrap();
    world.reported(vm, |vm| vm.boot_progress.as_deref() == Some("done")).await;
    assert!(ask(first).await.unwrap().contains("/mapped"));
    assert_eq!(network(&world, vm).await, [(first, 53), (first, 80)]);

    // What the node opens for itself is neither counted as a mapping nor makes one close.
    let backends = world.node.as_ref().unwrap().backends();
    for port in (79..160).chain([80]) {
        backends.connect(vm, port).await.unwrap();
    }
    drop(backends);
    spec.ports = vec![mapping(PortProtocol::Tcp, first, 81), mapping(PortProtocol::Tcp, last, 80)];
    world.prepare(&spec).await.unwrap();
    assert_eq!(network(&world, vm).await, [(first, 81), (last, 80)]);
    assert!(ask(last).await.unwrap().contains("/mapped"));

    world.stop(OnExit::LeaveRunning).await;
    // As if the node had died between an order and its mapping.
    let order = world.vm_dir(vm).join("spec.json");
    let text = std::fs::read_to_string(&order).unwrap();
    std::fs::write(
        &order,
        text.replace(&format!("\"host_port\": {last}"), &format!("\"host_port\": {}", last - 1)),
    )
    .unwrap();
    world.start().await;
    assert_eq!(network(&world, vm).await, [(first, 81), (last - 1, 80)]);
    assert!(ask(last).await.is_err());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_leads_to_one_vm_and_never_elsewhere() {
    let mut world = World::prepared().await;
    let (first, last) = free_ports(3).bounds();
    (world.config.port_range, world.config.port_address) = (PortRange::new(first, last), Ipv4Addr::LOCALHOST);
    world.start().await;
    let (mut holder, mut other) = (world.spec(1, ""), world.spec(2, ""));
    holder.ports = vec![mapping(PortProtocol::Tcp, first, 80)];
    world.prepare(&holder).await.unwrap();
    let tcp = |port| vec![mapping(PortProtocol::Tcp, port, 80)];
    let foreign = vec![PortMapping { host_address: "0.0.0.0".to_owned(), ..tcp(last)[0].clone() }];
    let twice = [tcp(last), tcp(last)].concat();
    for (ports, status, code) in [
        (tcp(first), 507, NodeErrorCode::OutOfResources),
        (tcp(last + 1), 400, NodeErrorCode::Invalid),
        (vec![mapping(PortProtocol::Tcp, last, 0)], 400, NodeErrorCode::Invalid),
        (foreign, 400, NodeErrorCode::Invalid),
        (twice, 400, NodeErrorCode::Invalid),
    ] {
        other.ports = ports;
        let (got, error) = world.prepare(&other).await.unwrap_err();
        assert_eq!((got, error.code), (status, code), "{error:?}");
    }

    // Another program has the port: the CVM does not run without what it was ordered with.
    let program = TcpListener::bind((Ipv4Addr::LOCALHOST, last)).unwrap();
    other.ports = tcp(last);
    world.prepare(&other).await.unwrap();
    let (status, error) = world.power(other.vm_uuid, "start").await.unwrap_err();
    assert_eq!((status, error.code), (507, NodeErrorCode::OutOfResources));
    assert!(
        error.message.contains(&format!("port {last} of the node is used by another program")),
        "{error:?}"
    );
    assert_eq!((world.get(other.vm_uuid).await.unwrap().state, world.processes()), (VmState::Stopped, 0));
    drop(program);
    world.power(other.vm_uuid, "start").await.unwrap();

    // Given up, a port is free for others.
    holder.ports.clear();
    world.prepare(&holder).await.unwrap();
    other.ports = tcp(first);
    world.prepare(&other).await.unwrap();
    assert_eq!(network(&world, other.vm_uuid).await, [(first, 80)]);
    world.end().await;
}
