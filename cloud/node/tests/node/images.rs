use cloister_node_api::{ImportedImage, NodeErrorCode, paths};
use reqwest::Method;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::support::World;

/// An archive as `docker save` makes it, with one empty layer.
fn archive() -> Vec<u8> {
    let layer = tar::Builder::new(Vec::new()).into_inner().unwrap();
    let diff_id = format!("sha256:{}", hex::encode(Sha256::digest(&layer)));
    let config = serde_json::json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": { "type": "layers", "diff_ids": [diff_id] },
    })
    .to_string();
    let name = format!("{}.json", hex::encode(Sha256::digest(&config)));
    let manifest = serde_json::json!([{ "Config": name, "RepoTags": ["hello:1"], "Layers": ["layer.tar"] }]);
    let mut archive = tar::Builder::new(Vec::new());
    for (name, contents) in [
        (name.as_str(), config.as_bytes()),
        ("layer.tar", &layer),
        ("manifest.json", manifest.to_string().as_bytes()),
    ] {
        let mut header = tar::Header::new_ustar();
        header.set_size(contents.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, contents).unwrap();
    }
    archive.into_inner().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pushed_images_are_listed_and_served_to_the_vms_of_their_workspace() {
    let mut world = World::new().await;
    let path = |workspace: i64| format!("{}/{workspace}/images", paths::WORKSPACES);
    let vm = world.running(1, "").await;
    let image: ImportedImage =
        world.upload(&format!("{}?reference=hello:1", path(1)), archive()).await.unwrap();
    assert_eq!(image.reference, "docker.io/library/hello:1");
    let listed: Vec<ImportedImage> = world.call(Method::GET, &path(1), None).await.unwrap();
    assert_eq!(listed, [image]);
    let foreign: Vec<ImportedImage> = world.call(Method::GET, &path(2), None).await.unwrap();
    assert_eq!(foreign, []);
    let (status, error) = world.upload::<ImportedImage>(&path(1), b"no archive".to_vec()).await.unwrap_err();
    assert_eq!((status, error.code), (400, NodeErrorCode::Invalid));

    let socket = world.dir.path().join("node/run").join(vm.simple().to_string()).join("mirror");
    let mut mirror = UnixStream::connect(&socket).await.unwrap();
    mirror.write_all(b"GET /v2/ HTTP/1.1\r\nhost: mirror\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    mirror.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    world.power(vm, "stop").await.unwrap();
    world.end().await;
}
