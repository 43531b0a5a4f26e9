//! How long a verification holds, and who shares it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use serde_json::json;

use super::{Unverified, World, eventually};
use crate::gateway::Live;
use crate::routing::Catalogue;

/// A thousand who ask at once, and the service holds its answer back until all of them wait.
#[tokio::test]
async fn a_thousand_callers_share_one_verification() {
    let world = World::new().await;
    let route = world.route();
    let all = join_all((0..1000).map(|_| world.channel(&route))).await;
    let first = all[0].as_ref().unwrap();
    assert!(all.iter().all(|one| one.as_ref().is_ok_and(|one| Arc::ptr_eq(one, first))));
    assert_eq!(world.service.asked(), 1);
    assert_eq!(world.records.kept.lock().len(), 1);
}

#[tokio::test]
async fn callers_who_leave_do_not_end_the_verification() {
    let world = World::new().await;
    let route = world.route();
    // Asked once, and dropped before an answer can be there.
    assert!(futures_util::FutureExt::now_or_never(world.channel(&route)).is_none());
    eventually("verified", || !world.listed().is_empty()).await;
    world.channel(&route).await.unwrap();
    assert_eq!(world.service.asked(), 1);
}

#[tokio::test]
async fn a_verification_is_renewed_before_it_ends_and_keeps_its_session() {
    let world = World::new().await;
    let route = world.route();
    let first = world.channel(&route).await.unwrap();
    world.time.advance(239);
    assert!(Arc::ptr_eq(&world.channel(&route).await.unwrap(), &first));
    assert_eq!(world.service.asked(), 1);
    world.time.advance(1);
    // Nobody waits for a renewal.
    assert!(Arc::ptr_eq(&world.channel(&route).await.unwrap(), &first));
    let renewed = async || {
        let now = world.channel(&route).await.unwrap();
        (!Arc::ptr_eq(&now, &first)).then_some(now)
    };
    let second = loop {
        match renewed().await {
            Some(second) => break second,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(second.session_id, first.session_id);
    assert_eq!((world.service.asked(), world.records.kept.lock().len()), (2, 1));
}

#[tokio::test]
async fn what_has_ended_is_verified_again() {
    let world = World::new().await;
    let route = world.route();
    let first = world.channel(&route).await.unwrap();
    world.time.advance(300);
    assert!(world.listed().is_empty());
    let second = world.channel(&route).await.unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    assert_eq!(first.session_id, second.session_id);
    assert_eq!((world.service.asked(), world.listed().len()), (2, 1));
    // A clock that was set back proves nothing.
    world.time.advance(-1000);
    assert!(world.listed().is_empty());
    world.channel(&route).await.unwrap();
    assert_eq!(world.service.asked(), 3);
}

#[tokio::test]
async fn a_session_ends_with_its_period_or_with_another_identity() {
    let world = World::new().await;
    let route = world.route();
    let mut ids = vec![world.channel(&route).await.unwrap().session_id.clone()];
    world.time.advance(2600);
    ids.push(world.channel(&route).await.unwrap().session_id.clone());
    assert_eq!(ids[0], ids[1]);
    // Now too little of its hour is left.
    world.time.advance(301);
    ids.push(world.channel(&route).await.unwrap().session_id.clone());
    assert_ne!(ids[1], ids[2]);
    assert_eq!(world.listed(), [ids[2].clone()]);
    world.service.change(|parts| parts.event("instance-id").payload = vec![2; 20]);
    world.time.advance(301);
    ids.push(world.channel(&route).await.unwrap().session_id.clone());
    assert_ne!(ids[2], ids[3]);
    assert_eq!(world.listed(), [ids[3].clone()]);
    assert_eq!(world.records.kept.lock().len(), 3);
}

#[tokio::test]
async fn nothing_holds_longer_than_the_keyset() {
    let world = World::new().await;
    let end = world.time.now() + 100;
    world.service.change(|parts| parts.keyset.not_after = end);
    let route = world.route();
    world.channel(&route).await.unwrap();
    assert_eq!(world.records.kept.lock()[0].2, end);
    world.time.advance(100);
    assert!(world.listed().is_empty());
    let refused = world.channel(&route).await.unwrap_err().to_string();
    assert!(refused.contains("keyset has ended"), "{refused}");
}

#[tokio::test]
async fn failures_are_remembered_for_seconds() {
    let world = World::new().await;
    let route = world.route();
    world.service.change(|parts| parts.answer = Some(("500 Oops", Vec::new())));
    for _ in 0..3 {
        world.channel(&route).await.unwrap_err();
    }
    assert_eq!(world.service.asked(), 1);
    world.service.change(|parts| parts.answer = None);
    world.time.advance(7);
    world.channel(&route).await.unwrap();
    assert_eq!(world.service.asked(), 2);
}

/// The first verification is waited for; while others follow that are not answered, the failure is told soon.
#[tokio::test]
async fn nobody_waits_for_an_upstream_that_hangs_after_a_failure() {
    let world = World::new().await;
    let hangs = world.files.path().join("hangs");
    let script = format!("test -e {} && exec sleep 1000; exit 3", hangs.display());
    let route = world.route_with(&json!({
        "provider": "openai-compatible",
        "verifier_command": ["/bin/sh", "-c", script],
        "accepted_subjects": [],
        "accepted_os_image_hashes": [],
        "accepted_key_provider_ids": [],
        "accepted_kms_root_public_keys": [],
    }));
    let failure = world.channel(&route).await.unwrap_err();
    assert!(failure.to_string().contains("failed"), "{failure}");
    std::fs::write(hangs, "").unwrap();
    for seconds in [7, 7, 1000] {
        world.time.advance(seconds);
        assert_eq!(world.channel(&route).await.unwrap_err(), failure);
    }
}

#[tokio::test]
async fn a_failure_of_long_ago_is_told_to_nobody() {
    let world = World::new().await;
    let route = world.route();
    world.service.change(|parts| parts.answer = Some(("500 Oops", Vec::new())));
    for seconds in [30, -1000] {
        world.channel(&route).await.unwrap_err();
        world.time.advance(seconds);
    }
    world.service.change(|parts| parts.answer = None);
    world.channel(&route).await.unwrap();
    assert_eq!(world.service.asked(), 3);
}

#[tokio::test]
async fn a_failed_renewal_leaves_what_still_holds() {
    let world = World::new().await;
    let route = world.route();
    let first = world.channel(&route).await.unwrap();
    world.service.change(|parts| parts.answer = Some(("500 Oops", Vec::new())));
    world.time.advance(250);
    assert!(Arc::ptr_eq(&world.channel(&route).await.unwrap(), &first));
    eventually("asked again", || world.service.asked() == 2).await;
    assert_eq!(world.listed(), std::slice::from_ref(&first.session_id));
    world.time.advance(50);
    assert!(matches!(world.channel(&route).await, Err(Unverified::Failed(_))));
    assert!(world.listed().is_empty());
}

#[tokio::test]
async fn a_mismatch_drops_what_is_known_once() {
    let world = World::new().await;
    let route = world.route();
    let first = world.channel(&route).await.unwrap();
    world.verifications.mismatched(&route, &first);
    assert!(world.listed().is_empty());
    let second = world.channel(&route).await.unwrap();
    assert_eq!(world.service.asked(), 2);
    // Others come late with what they got before.
    world.verifications.mismatched(&route, &first);
    assert!(Arc::ptr_eq(&world.channel(&route).await.unwrap(), &second));
    assert_eq!(world.service.asked(), 2);
}

/// An upstream that proves one key and answers with another costs two verifications, however many ask, and then one
/// in some seconds.
#[tokio::test]
async fn a_key_that_is_missed_again_is_a_failure_for_seconds() {
    let world = World::new().await;
    let route = world.route();
    for _ in 0..2 {
        let channel = world.channel(&route).await.unwrap();
        world.verifications.mismatched(&route, &channel);
    }
    for _ in 0..100 {
        let refused = world.channel(&route).await.unwrap_err().to_string();
        assert!(refused.contains("none of those that it proves"), "{refused}");
    }
    assert_eq!((world.service.asked(), world.listed().len()), (2, 0));
    world.time.advance(7);
    let channel = world.channel(&route).await.unwrap();
    world.verifications.mismatched(&route, &channel);
    world.channel(&route).await.unwrap_err();
    assert_eq!(world.service.asked(), 3);
    // Another key is another matter, and so is a long time.
    world.time.advance(7);
    let more = cloister_aci::TlsKey { domain: None, spki_sha256: "01".repeat(32) };
    world.service.change(|parts| parts.keyset.tls_public_keys.push(more));
    for _ in 0..2 {
        let channel = world.channel(&route).await.unwrap();
        world.verifications.mismatched(&route, &channel);
        world.time.advance(61);
    }
    world.channel(&route).await.unwrap();
}

#[tokio::test]
async fn only_accepted_sessions_count_where_there_are_any() {
    let world = World::new().await;
    let route = world.route();
    let id = world.channel(&route).await.unwrap().session_id.clone();
    let other = "0".repeat(64);
    world.verifications.channel(&route, &[other.clone(), id]).await.unwrap();
    let refused = world.verifications.channel(&route, &[other]).await;
    assert_eq!(refused.unwrap_err(), Unverified::NotAccepted);
}

#[tokio::test]
async fn another_rule_is_another_verification_and_the_same_rule_is_not() {
    let world = World::new().await;
    world.channel(&world.route()).await.unwrap();
    // Read anew, with another price or weight.
    world.channel(&world.route_with(&json!({"weight": 7}))).await.unwrap();
    assert_eq!(world.service.asked(), 1);
    let strict = world.route_with(&json!({"accepted_subjects": [format!("app-id:0x{}", "0".repeat(40))]}));
    assert!(matches!(world.channel(&strict).await, Err(Unverified::Failed(_))));
    assert!(world.listed().is_empty());
}

#[tokio::test]
async fn rounds_verify_ahead_and_forget() {
    let world = World::new().await;
    let live = |more| {
        let config = world.config(&more);
        Live { catalogue: Catalogue::new(&config), config, upstreams: std::collections::HashMap::new() }
    };
    let with = live(json!({}));
    world.verifications.round(&with);
    eventually("prewarmed", || world.listed().len() == 1).await;
    world.time.advance(260);
    world.verifications.round(&with);
    eventually("renewed", || world.service.asked() == 2).await;
    world.verifications.round(&live(json!({
        "provider": "openai-compatible",
        "accepted_subjects": [],
        "accepted_os_image_hashes": [],
        "accepted_key_provider_ids": [],
        "accepted_kms_root_public_keys": [],
    })));
    assert!(world.listed().is_empty());
}

#[tokio::test]
async fn a_session_that_is_not_kept_is_none() {
    let world = World::new().await;
    world.records.broken.store(true, Ordering::SeqCst);
    let refused = world.channel(&world.route()).await.unwrap_err().to_string();
    assert!(refused.contains("could not be kept"), "{refused}");
    assert!(world.listed().is_empty());
}
