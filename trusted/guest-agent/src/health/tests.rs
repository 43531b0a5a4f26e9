//! The watch over an engine that is played on a socket.

use std::sync::{Arc, Mutex};

use cloister_guest_channel::status::{BootPhase, GuestStatus, Health};
use cloister_sealed_env::Environment;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::sync::watch;

use super::*;

/// What the played engine knows: containers by id, each with its list entry and its inspection. Without any, it
/// breaks connections off.
type World = Arc<Mutex<Option<Vec<(Value, Value)>>>>;

fn service(name: &str, state: &str, exit_code: i64, one_off: bool) -> (Value, Value) {
    let one_off = if one_off { "True" } else { "False" };
    (
        json!({ "Id": name, "Labels": { "com.docker.compose.oneoff": one_off } }),
        json!({ "Name": format!("/app-{name}-1"), "State": { "Status": state, "ExitCode": exit_code } }),
    )
}

/// Answers requests for the list of one compose file and for inspections.
async fn play(engine: UnixListener, world: World) {
    let wanted =
        "label%22%3A%5B%22com.docker.compose.project.config_files%3D%2Fdata%2Fapp%2Fdocker-compose.yaml";
    loop {
        let (mut stream, _) = engine.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.unwrap();
        let request = String::from_utf8(request[..length].to_vec()).unwrap();
        let path = request.split(' ').nth(1).unwrap().to_owned();
        let answer = world.lock().unwrap().as_ref().map(|known| {
            if path.contains("/containers/json?") {
                assert!(path.contains(wanted), "{path}");
                return Some(known.iter().map(|(listed, _)| listed.clone()).collect::<Value>());
            }
            let shown = known.iter().find(|(listed, _)| path.contains(listed["Id"].as_str().unwrap()));
            shown.map(|(_, inspection)| inspection.clone()).filter(|inspection| !inspection.is_null())
        });
        let Some(answer) = answer else { continue };
        let (status, body) = answer.map_or((404, String::new()), |body| (200, body.to_string()));
        let answer = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

/// Waits for what the status line says next of the health.
async fn told(status: &mut watch::Receiver<GuestStatus>, health: Health) -> String {
    let told = status.wait_for(|status| status.health == Some(health)).await.unwrap();
    told.health_detail.clone().unwrap_or_default()
}

#[tokio::test]
async fn every_change_is_told_as_it_comes() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("engine.sock");
    let world: World = Arc::new(Mutex::new(Some(vec![service("web", "running", 0, false)])));
    tokio::spawn(play(UnixListener::bind(&socket).unwrap(), Arc::clone(&world)));
    let set = |services| *world.lock().unwrap() = services;

    let progress = Progress::new();
    let mut status = progress.watch();
    progress.enter(BootPhase::Done);
    assert_eq!(status.borrow().health, Some(Health::Starting), "nobody has looked yet");
    let changes = Changes::default();
    let containers = Containers {
        engine: Engine::at(socket),
        compose_file: "/data/app/docker-compose.yaml".into(),
        hidden: Hidden::of(&Environment::from_pairs([("TOKEN", "s3cr3t")]).unwrap()),
    };
    tokio::spawn(containers.watch(changes.clone(), progress.clone()));
    assert_eq!(told(&mut status, Health::Healthy).await, "");

    // What ran once in a service's container does not count, nor one that is gone when it is looked at.
    let gone = (json!({ "Id": "gone", "Labels": null }), Value::Null);
    set(Some(vec![service("once", "exited", 9, true), service("s3cr3t", "exited", 3, false), gone]));
    changes.announce();
    assert_eq!(told(&mut status, Health::Unhealthy).await, "app-[hidden]-1 ended with status 3");

    set(Some(vec![service("web", "running", 0, false)]));
    changes.announce();
    told(&mut status, Health::Healthy).await;

    set(None);
    changes.announce();
    let why = told(&mut status, Health::Unhealthy).await;
    assert!(why.starts_with("its containers cannot be seen: "), "{why}");

    progress.shutting_down("stopping the application");
    set(Some(Vec::new()));
    progress.health(Verdict::healthy());
    assert_eq!(status.borrow().health, Some(Health::Unhealthy), "what ends by the shutdown is no news");
}
