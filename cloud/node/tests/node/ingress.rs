//! Ingresses of two nodes before one VM: while it serves, drains and serves again.

use std::net::SocketAddr;

use cloister_fleet_tls::Identity;
use cloister_node::ingress::{DEFAULT_DOMAIN, Ingress, IngressConfig, Limits};
use cloister_node::{Node, OnExit};
use cloister_node_api::VmRoute;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::support::{World, credentials};

async fn ingress(node: &Node) -> Ingress {
    let config = IngressConfig {
        http_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        https: None,
        domain: DEFAULT_DOMAIN.parse().unwrap(),
        limits: Limits::default(),
    };
    Ingress::start(config, node.backends(), node.peers()).await.unwrap()
}

/// The answer to a client of the app.
async fn ask(ingress: &Ingress) -> String {
    let mut stream = TcpStream::connect(ingress.http_address()).await.unwrap();
    let host = format!("{}.{DEFAULT_DOMAIN}", "aa".repeat(20));
    let request = format!("GET /hello HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn is_from_the_guest(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 200") && answer.contains("/hello")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_leads_to_a_ready_vm_and_none_to_one_that_drains() {
    let mut world = World::new().await;
    let vm = world.running(1, "").await;
    let mut config = world.config.clone();
    config.data_dir = world.dir.path().join("node-2");
    config.credentials = credentials(&world.authority, &Identity::Node("node-2".to_owned()));
    let second = Node::start(config).await.unwrap();
    let (near, far) = (ingress(world.node.as_ref().unwrap()).await, ingress(&second).await);
    let route = |vm_uuid: Uuid, node: &Node| VmRoute {
        vm_uuid,
        node: "node-1".to_owned(),
        endpoint: node.address().to_string(),
        ready: true,
    };
    world.catalogue.say_where(vec![route(vm, world.node.as_ref().unwrap())]);
    for ingress in [&near, &far] {
        let answer = ask(ingress).await;
        assert!(is_from_the_guest(&answer), "{answer}");
    }
    // Also waits for the other node's ingress to let go of its tunnel.
    assert!(world.drain(vm, 300).await.unwrap().draining);
    for ingress in [&near, &far] {
        let answer = ask(ingress).await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("being updated, moved or stopped"), "{answer}");
    }
    world.power(vm, "start").await.unwrap();
    for ingress in [&near, &far] {
        let answer = ask(ingress).await;
        assert!(is_from_the_guest(&answer), "{answer}");
    }
    drop((near, far));
    second.stop(OnExit::LeaveRunning).await;
    world.end().await;
}
