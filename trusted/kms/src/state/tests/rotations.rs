use cloister_kms_api::admin::{ForgetCvm, RetireRoot};
use cloister_kms_api::log::Event;
use cloister_kms_api::{KmsErrorCode, statements};

use super::lab::{Lab, confirm, events, give, holder, now};
use crate::clock::Random;
use crate::state::{InvalidRoots, check_roots, make_root};

fn retire(version: u32, force: bool) -> RetireRoot {
    RetireRoot { version, force }
}

#[tokio::test]
async fn a_rotation_from_start_to_end() {
    let lab = Lab::new();
    let keys = lab.create();
    let first = keys.snapshot().current.clone();
    give(&keys, holder(1)).await;
    give(&keys, holder(2)).await;
    let status = keys.rotation_status();
    assert_eq!((status.resealed, status.pending_total), (2, 0));

    let status = keys.start_rotation().await.unwrap();
    assert_eq!((status.roots.len(), status.resealed, status.pending_total), (2, 0, 2));
    assert_eq!(status.pending.iter().map(|cvm| cvm.root_version).collect::<Vec<_>>(), [1, 1]);
    // Whoever trusts the first root finds the second.
    let trusted = first.secrets.k256_public();
    let current = statements::current_root(&status.roots, &trusted).unwrap();
    assert_eq!(current.version, 2);
    let snapshot = keys.snapshot();
    assert_eq!((snapshot.current.version(), snapshot.oldest_live()), (2, 1));
    assert_eq!(snapshot.live(1).unwrap().secrets.k256_public(), trusted);
    // Asking for keys again changes nothing for a CVM; telling does.
    give(&keys, holder(1)).await;
    assert_eq!(keys.rotation_status().pending_total, 2);
    confirm(&keys, holder(1), 2).await;
    let status = keys.rotation_status();
    assert_eq!((status.resealed, status.pending_total), (1, 1));

    let refused = keys.retire_root(retire(1, false)).await.unwrap_err();
    assert_eq!(refused.code, KmsErrorCode::BadRequest);
    assert!(keys.snapshot().live(1).is_some());
    confirm(&keys, holder(2), 2).await;
    let status = keys.retire_root(retire(1, false)).await.unwrap();
    assert!(status.roots[0].retired_at.is_some());
    assert!(keys.snapshot().live(1).is_none());
    assert_eq!(keys.snapshot().roots.len(), 2);
    // Again is no failure, and the certificate of the retired root still vouches for its successor.
    keys.retire_root(retire(1, false)).await.unwrap();
    let exported = keys.export().await.unwrap().roots;
    assert!(exported[0].ca_key.is_none() && exported[0].k256_key.is_none());
    check_roots(&exported).unwrap();
    drop(keys);
    let keys = lab.open().unwrap();
    assert_eq!(keys.rotation_status().resealed, 2);
    assert!(keys.snapshot().live(1).is_none());
}

#[tokio::test]
async fn the_current_root_and_those_out_of_turn_stay() {
    let lab = Lab::new();
    let keys = lab.create();
    for version in [0, 1, 2] {
        let refused = keys.retire_root(retire(version, true)).await;
        assert!(refused.is_err(), "{version}");
    }
    keys.start_rotation().await.unwrap();
    keys.start_rotation().await.unwrap();
    let refused = keys.start_rotation().await.unwrap_err();
    assert_eq!(refused.code, KmsErrorCode::BadRequest);
    assert!(refused.error.contains("retire version 1 first"), "{refused}");
    for version in [2, 3, 4] {
        assert!(keys.retire_root(retire(version, true)).await.is_err(), "{version}");
    }
    assert_eq!(keys.snapshot().former.len(), 2);
    keys.retire_root(retire(1, false)).await.unwrap();
    keys.start_rotation().await.unwrap();
    let versions: Vec<_> = keys.snapshot().former.iter().map(crate::state::LiveRoot::version).collect();
    assert_eq!(versions, [3, 2]);
}

#[tokio::test]
async fn force_abandons_those_that_have_not_come_back() {
    let lab = Lab::new();
    let keys = lab.create();
    give(&keys, holder(1)).await;
    keys.start_rotation().await.unwrap();
    keys.retire_root(retire(1, true)).await.unwrap();
    let status = keys.rotation_status();
    assert_eq!((status.resealed, status.pending_total), (0, 0));
    // It comes back, and begins anew.
    give(&keys, holder(1)).await;
    assert_eq!(keys.rotation_status().resealed, 1);
    assert!(keys.note_keys_given(holder(1), 1).is_err());
    assert_eq!(keys.note_resealed(holder(1), 1).unwrap_err().code, KmsErrorCode::BadRequest);
    assert_eq!(keys.note_resealed(holder(1), 9).unwrap_err().code, KmsErrorCode::BadRequest);
}

#[tokio::test]
async fn a_cvm_that_was_deleted_is_forgotten_and_the_others_are_still_waited_for() {
    let lab = Lab::new();
    let keys = lab.create();
    give(&keys, holder(1)).await;
    give(&keys, holder(2)).await;
    keys.start_rotation().await.unwrap();
    let (app_id, instance_id) = holder(1);
    for _ in 0..2 {
        let status = keys.forget_cvm(ForgetCvm { app_id, instance_id }).await.unwrap();
        assert_eq!((status.pending_total, status.pending[0].app_id), (1, holder(2).0));
    }
    assert!(keys.retire_root(retire(1, false)).await.is_err());
    drop(keys);
    let keys = lab.open().unwrap();
    assert_eq!(keys.rotation_status().pending_total, 1);
    let forgotten =
        |event: &Event| matches!(event, Event::CvmForgotten { app_id, .. } if *app_id == holder(1).0);
    assert_eq!(events(&keys).iter().filter(|event| forgotten(event)).count(), 1);
    // It was not gone after all: nothing is retired before it has moved.
    give(&keys, holder(1)).await;
    confirm(&keys, holder(2), 2).await;
    assert!(keys.retire_root(retire(1, false)).await.is_err());
    drop(keys);
    let keys = lab.open().unwrap();
    confirm(&keys, holder(1), 2).await;
    keys.retire_root(retire(1, false)).await.unwrap();
}

#[tokio::test]
async fn cvms_without_an_identity_do_not_speak_for_each_other() {
    let lab = Lab::new();
    let keys = lab.create();
    let shared = (holder(1).0, None);
    give(&keys, shared).await;
    keys.start_rotation().await.unwrap();
    // One of them is done; what the others have, nobody knows.
    confirm(&keys, shared, 2).await;
    assert!(keys.retire_root(retire(1, false)).await.is_err());
    drop(keys);
    let keys = lab.open().unwrap();
    assert_eq!(keys.rotation_status().pending_total, 1);
    keys.forget_cvm(ForgetCvm { app_id: shared.0, instance_id: None }).await.unwrap();
    keys.retire_root(retire(1, false)).await.unwrap();
}

#[tokio::test]
async fn a_cvm_that_comes_during_a_rotation_may_have_an_old_environment() {
    let lab = Lab::new();
    let keys = lab.create();
    keys.start_rotation().await.unwrap();
    give(&keys, holder(1)).await;
    assert_eq!(keys.rotation_status().pending_total, 1);
    confirm(&keys, holder(1), 2).await;
    assert_eq!(keys.rotation_status().pending_total, 0);
}

#[tokio::test]
async fn who_has_what_is_read_from_the_log_after_a_death() {
    let lab = Lab::new();
    let keys = lab.create();
    give(&keys, holder(1)).await;
    keys.start_rotation().await.unwrap();
    give(&keys, holder(2)).await;
    confirm(&keys, holder(1), 2).await;
    let status = keys.rotation_status();
    // Nothing was saved since the rotation started.
    drop(keys);
    let keys = lab.open().unwrap();
    let times = |status: &cloister_kms_api::admin::RotationStatus| {
        (status.resealed, status.pending.iter().map(|cvm| (cvm.app_id, cvm.root_version)).collect::<Vec<_>>())
    };
    assert_eq!(times(&keys.rotation_status()), times(&status));
    keys.save();
    drop(keys);
    assert_eq!(times(&lab.open().unwrap().rotation_status()), times(&status));
}

#[tokio::test]
async fn concurrent_changes_come_one_after_the_other() {
    let lab = Lab::new();
    let keys = lab.create();
    let (a, b, c, d) = tokio::join!(
        keys.start_rotation(),
        keys.start_rotation(),
        keys.start_rotation(),
        keys.allow_app(super::lab::allow(1, 1)),
    );
    d.unwrap();
    assert_eq!([&a, &b, &c].iter().filter(|done| done.is_ok()).count(), 2);
    assert_eq!(keys.snapshot().current.version(), 3);
    drop(keys);
    assert_eq!(lab.open().unwrap().snapshot().current.version(), 3);
}

#[test]
fn roots_that_do_not_follow_from_each_other_are_refused() {
    let (first, _) = make_root(None, Random::system(), now()).unwrap();
    let (stranger, _) = make_root(None, Random::system(), now()).unwrap();
    assert_eq!(check_roots(&[]).err(), Some(InvalidRoots::Versions));
    check_roots(std::slice::from_ref(&first)).unwrap();
    let refused = |change: &dyn Fn(&mut Vec<cloister_kms_api::RootKeys>)| {
        let mut roots = vec![first.clone(), stranger.clone()];
        roots[1].info.version = 2;
        change(&mut roots);
        check_roots(&roots).err()
    };
    assert_eq!(refused(&|_| {}), Some(InvalidRoots::Certificate(2)));
    assert_eq!(refused(&|roots| roots.swap(0, 1)), Some(InvalidRoots::Versions));
    assert_eq!(refused(&|roots| roots[1].ca_key = None), Some(InvalidRoots::Half(2)));
    assert_eq!(
        refused(&|roots| roots[0].k256_key = roots[1].k256_key.clone()),
        Some(InvalidRoots::OtherKeys(1))
    );
    assert_eq!(
        refused(&|roots| roots[0].ca_cert = roots[1].ca_cert.clone()),
        Some(InvalidRoots::Certificate(1))
    );
    assert_eq!(refused(&|roots| roots[0].ca_cert.clear()), Some(InvalidRoots::Certificate(1)));
    assert_eq!(refused(&|roots| roots[0].info.retired_at = Some(now())), Some(InvalidRoots::Half(1)));
}
