//! One suite, run on both engines.

mod apps;
mod audit;
mod billing;
mod evidence;
mod idempotency;
mod inference;
mod nodes;
mod openid;
pub(crate) mod owners;
pub(crate) mod prepared_changes;
mod routes;
mod webhooks;

use std::path::Path;
use std::sync::Arc;

use cloister_app_compose::{AppId, ComposeHash, OsImageHash};
use cloister_management_api::KeyScope;
use cloister_throwaway_postgres::{ThrowawayDatabase, ThrowawayPostgres};
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::*;
use crate::operations::{CvmStatus, OperationKind, OperationStatus};

const NOW: i64 = 1_790_000_000_000;

/// A fresh embedded database in a directory: a copy of one that was made once, because migrations take longer than most
/// tests.
pub(crate) async fn embedded(dir: &Path) -> Store {
    static MADE: OnceCell<Vec<u8>> = OnceCell::const_new();
    let made = MADE.get_or_init(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        Store::open_file(&path).await.unwrap().close().await;
        std::fs::read(path).unwrap()
    });
    let path = dir.join("store.db");
    std::fs::write(&path, made.await).unwrap();
    Store::open_file(&path).await.unwrap()
}

/// A fresh PostgreSQL database; as above.
pub(crate) async fn postgres() -> Store {
    static MADE: OnceCell<ThrowawayDatabase> = OnceCell::const_new();
    let server = ThrowawayPostgres::shared().unwrap();
    let made = MADE.get_or_init(|| async {
        let database = server.new_database().unwrap();
        Store::open(&database.url).await.unwrap().close().await;
        database
    });
    Store::open(&server.copy_of(made.await).unwrap().url).await.unwrap()
}

/// Runs a test against a fresh embedded database and a fresh PostgreSQL database.
pub(crate) async fn on_both<F: Future<Output = ()>>(test: impl Fn(Store) -> F) {
    let dir = tempfile::tempdir().unwrap();
    test(embedded(dir.path()).await).await;
    on_postgres(test).await;
}

/// Runs a test of what only several processes do, which the embedded database does not have.
pub(crate) async fn on_postgres<F: Future<Output = ()>>(test: impl Fn(Store) -> F) {
    let store = postgres().await;
    test(store.clone()).await;
    store.close().await;
}

/// A user with a workspace and a node; their ids.
pub(crate) struct Ground {
    pub(crate) user: i64,
    pub(crate) workspace: i64,
    pub(crate) node: i64,
}

pub(crate) async fn ground(store: &Store) -> Ground {
    let mut change = store.change().await.unwrap();
    let user = change.insert_user("ada", "ada@example.org", "user", NOW).await.unwrap();
    let workspace = change.insert_workspace("ada-lab", "Ada Lab", [9; 20], user, NOW).await.unwrap();
    let node = change.insert_node("alpha", NOW).await.unwrap();
    change.commit().await.unwrap();
    Ground { user, workspace, node }
}

pub(crate) fn provision(ground: &Ground, seed: u8, name: &str) -> ProvisionRow {
    ProvisionRow {
        workspace_id: ground.workspace,
        compose_hash: ComposeHash::from_bytes([seed; 32]),
        app_id: AppId::from_bytes([seed; 20]),
        name: name.to_owned(),
        app_compose: "{}".to_owned(),
        node_id: ground.node,
        os_image_hash: OsImageHash::from_bytes([1; 32]),
        os_image_name: "cloister-0.1.0".to_owned(),
        instance_type: None,
        vcpu: 2,
        memory_mb: 1024,
        disk_gb: 20,
        listed: 0,
        env_keys: "[]".to_owned(),
        user_config: None,
        kms_id: None,
        env_pubkey: None,
        encrypted_env: None,
        gpus: GpuSlots::default(),
        awaits_contract: 0,
        device_id: None,
        expires_at_ms: NOW + 1000,
    }
}

pub(crate) async fn cvm(store: &Store, ground: &Ground, seed: u8, name: &str) -> CvmRow {
    let vm_uuid = Uuid::from_bytes([seed; 16]);
    let new = NewCvm::of_provision(&provision(ground, seed, name), ground.user, vm_uuid, None);
    let mut change = store.change().await.unwrap();
    let id = change.insert_cvm(&new, NOW).await.unwrap();
    change.commit().await.unwrap();
    store.cvm(id).await.unwrap().unwrap()
}

/// Sets whether changes of a CVM that fail are taken back.
pub(crate) async fn set_policy(store: &Store, cvm: i64, rolls_back: bool) {
    let mut change = store.change().await.unwrap();
    sqlx::query("UPDATE cvms SET rollback_on_failure = $2 WHERE id = $1")
        .bind(cvm)
        .bind(i64::from(rolls_back))
        .execute(&mut *change.transaction)
        .await
        .unwrap();
    change.commit().await.unwrap();
}

fn operation(cvm: &CvmRow, ground: &Ground, id: u8, kind: OperationKind) -> NewOperation {
    NewOperation {
        correlation_id: Uuid::from_bytes([id; 16]),
        cvm_id: cvm.id,
        kind,
        arguments: "{}".to_owned(),
        triggered_by: ground.user,
        predecessor: None,
        to_revision: None,
        from_revision: None,
    }
}

#[tokio::test]
async fn keys_stand_for_callers_until_they_expire_or_are_revoked() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let mut change = store.change().await.unwrap();
        let key = NewApiKey {
            user_id: ground.user,
            workspace_id: ground.workspace,
            name: "laptop".to_owned(),
            key_hash: "aa".to_owned(),
            key_prefix: "phak_aa".to_owned(),
            scope: KeyScope::Deploy,
            default_version: "2026-01-21".to_owned(),
            expires_at_ms: Some(NOW + 10),
        };
        let id = change.insert_api_key(&key, NOW).await.unwrap();
        change.touch_api_keys(&[(id, NOW + 5)]).await.unwrap();
        change.commit().await.unwrap();
        let caller = store.caller("aa", NOW).await.unwrap().unwrap();
        assert_eq!((caller.workspace_slug.as_str(), caller.is_admin()), ("ada-lab", false));
        assert!(store.caller("aa", NOW + 10).await.unwrap().is_none());
        assert_eq!((caller.scope, caller.key_prefix.as_str()), (KeyScope::Deploy, "phak_aa"));
        assert!(store.caller("ab", NOW).await.unwrap().is_none());
        assert_eq!(store.api_keys(ground.workspace).await.unwrap()[0].last_used_at_ms, Some(NOW + 5));

        let mut change = store.change().await.unwrap();
        assert!(!change.revoke_api_key(ground.workspace + 1, id, NOW).await.unwrap());
        assert!(change.revoke_api_key(ground.workspace, id, NOW).await.unwrap());
        change.commit().await.unwrap();
        assert!(store.caller("aa", NOW).await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn what_belongs_to_the_tenant_is_not_printed() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let secret = || "planted-words".to_owned();
        let provision = ProvisionRow {
            app_compose: secret(),
            user_config: Some(secret()),
            encrypted_env: Some(secret()),
            ..provision(&ground, 5, "web-1")
        };
        let vm_uuid = Uuid::from_bytes([5; 16]);
        let new = NewCvm::of_provision(&provision, ground.user, vm_uuid, Some(secret()));
        let mut change = store.change().await.unwrap();
        let id = change.insert_cvm(&new, NOW).await.unwrap();
        change.commit().await.unwrap();
        let row = store.cvm(id).await.unwrap().unwrap();
        assert_eq!((&row.encrypted_env, &row.user_config), (&Some(secret()), &Some(secret())));
        let printed = format!("{row:?} {new:?}");
        assert!(printed.contains("web-1") && !printed.contains(&secret()), "{printed}");
    })
    .await;
}

#[tokio::test]
async fn application_nonces_are_never_given_twice() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let mut change = store.change().await.unwrap();
        let first = change.take_app_nonce(ground.workspace).await.unwrap();
        let second = change.take_app_nonce(ground.workspace).await.unwrap();
        assert_eq!((first.1, second.1), (0, 1));
        assert_eq!(first.0, hex::encode([9; 20]));
    })
    .await;
}

#[tokio::test]
async fn provisions_are_replaced_and_forgotten() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let (mut row, hash) = (provision(&ground, 3, "first"), ComposeHash::from_bytes([3; 32]));
        let mut change = store.change().await.unwrap();
        change.put_provision(&row).await.unwrap();
        row.name = "second".to_owned();
        change.put_provision(&row).await.unwrap();
        change.commit().await.unwrap();
        assert_eq!(store.provision(ground.workspace, hash, NOW).await.unwrap(), Some(row));
        assert_eq!(store.provision(ground.workspace + 1, hash, NOW).await.unwrap(), None);
        assert_eq!(store.provision(ground.workspace, hash, NOW + 1000).await.unwrap(), None);
        let mut change = store.change().await.unwrap();
        assert_eq!(change.delete_expired_provisions(NOW, 10).await.unwrap(), 0);
        assert_eq!(change.delete_expired_provisions(NOW + 1000, 10).await.unwrap(), 1);
    })
    .await;
}

#[tokio::test]
async fn names_are_unique_among_the_living_and_counters_follow() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let first = cvm(&store, &ground, 1, "Web-1").await;
        let vm_uuid = Uuid::from_bytes([2; 16]);
        let duplicate = NewCvm::of_provision(&provision(&ground, 2, "web-1"), ground.user, vm_uuid, None);
        let mut change = store.change().await.unwrap();
        assert!(change.insert_cvm(&duplicate, NOW).await.unwrap_err().is_duplicate());
        drop(change);
        assert_eq!(store.cvm_by_name(ground.workspace, "WEB-1").await.unwrap().unwrap().id, first.id);
        let all = CvmFilter { workspace_id: Some(ground.workspace), ..CvmFilter::default() };
        assert_eq!(store.count_cvms(&all).await.unwrap(), 1);

        let mut change = store.change().await.unwrap();
        change.delete_cvm(&first, NOW).await.unwrap();
        change.delete_cvm(&first, NOW).await.unwrap();
        change.commit().await.unwrap();
        assert_eq!(store.count_cvms(&all).await.unwrap(), 0);
        assert!(store.cvm(first.id).await.unwrap().is_none());
        assert!(store.cvm_even_deleted(first.id).await.unwrap().is_some());
        cvm(&store, &ground, 2, "web-1").await;
    })
    .await;
}

#[tokio::test]
async fn lists_are_newest_first_and_filtered() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        for seed in 1..=5 {
            cvm(&store, &ground, seed, &format!("web-{seed}")).await;
        }
        let filter = CvmFilter { node_id: Some(ground.node), ..CvmFilter::default() };
        let names = |rows: Vec<CvmRow>| rows.into_iter().map(|row| row.name).collect::<Vec<_>>();
        assert_eq!(names(store.list_cvms(&filter, 2, 1).await.unwrap()), ["web-4", "web-3"]);
        assert_eq!(store.count_cvms(&filter).await.unwrap(), 5);
        let nobody = CvmFilter { user_id: Some(ground.user + 1), ..CvmFilter::default() };
        assert_eq!(store.count_cvms(&nobody).await.unwrap(), 0);
        assert_eq!(store.node(ground.node).await.unwrap().unwrap().usage.memory_mb, 5 * 1024);
    })
    .await;
}

#[tokio::test]
async fn an_error_keeps_its_reason_whatever_the_node_says_later() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let row = cvm(&store, &ground, 1, "web-1").await;
        let mut change = store.change().await.unwrap();
        change.set_cvm_status(row.id, CvmStatus::Error, NOW).await.unwrap();
        change.set_boot_error(row.id, "no such image").await.unwrap();
        let late =
            ObservedVm { boot_error: Some("in the guest's words".to_owned()), ..ObservedVm::default() };
        for seen in [&ObservedVm::default(), &late] {
            change.observe_cvm(row.id, seen, NOW).await.unwrap();
        }
        change.commit().await.unwrap();
        let row = store.cvm(row.id).await.unwrap().unwrap();
        assert_eq!(row.boot_error.as_deref(), Some("no such image"));
        assert!(row.shows(&late), "a report that changes nothing is not written");
    })
    .await;
}

#[tokio::test]
async fn a_lease_is_exclusive_until_it_ends() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let row = cvm(&store, &ground, 1, "web-1").await;
        let new = operation(&row, &ground, 1, OperationKind::Create);
        let mut change = store.change().await.unwrap();
        assert!(change.acquire_cvm(row.id, new.correlation_id).await.unwrap());
        assert!(!change.acquire_cvm(row.id, Uuid::from_bytes([9; 16])).await.unwrap());
        change.insert_operation(&new, NOW).await.unwrap();
        change.commit().await.unwrap();

        let (ann, bob) = (Uuid::from_bytes([100; 16]), Uuid::from_bytes([101; 16]));
        let leased = store.lease_operation(ann, NOW, NOW + 10).await.unwrap().unwrap();
        assert_eq!((leased.kind, leased.triggered_by_username.as_str()), (OperationKind::Create, "ada"));
        assert!(store.lease_operation(bob, NOW + 9, NOW + 20).await.unwrap().is_none());
        assert_eq!(
            store.renew_lease(new.correlation_id, ann, NOW + 11).await.unwrap(),
            Some(CancelRequest::No)
        );
        assert!(store.lease_operation(bob, NOW + 11, NOW + 20).await.unwrap().is_some());
        assert_eq!(store.renew_lease(new.correlation_id, ann, NOW + 12).await.unwrap(), None);
        assert_eq!(store.look_at_lease(new.correlation_id, ann).await.unwrap(), None);
        assert_eq!(store.look_at_lease(new.correlation_id, bob).await.unwrap(), Some(CancelRequest::No));

        let mut change = store.change().await.unwrap();
        let advanced = change.advance_operation(new.correlation_id, ann, NOW + 30, 1, 0, None).await.unwrap();
        assert_eq!(advanced, None);
        let advanced = change.advance_operation(new.correlation_id, bob, NOW + 30, 1, 0, None).await.unwrap();
        assert_eq!(advanced, Some(0));
        let done = OperationStatus::Completed;
        assert!(change.finish_operation(new.correlation_id, bob, done, NOW + 15).await.unwrap());
        assert!(!change.request_cancel(new.correlation_id, CancelRequest::Cancel).await.unwrap());
        change.commit().await.unwrap();
        assert!(store.lease_operation(ann, NOW + 99, NOW + 100).await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn a_successor_waits_for_its_predecessor() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let row = cvm(&store, &ground, 1, "web-1").await;
        let first = operation(&row, &ground, 1, OperationKind::Create);
        let mut second = operation(&row, &ground, 2, OperationKind::Delete);
        second.predecessor = Some(first.correlation_id);
        let mut change = store.change().await.unwrap();
        change.insert_operation(&first, NOW).await.unwrap();
        change.insert_operation(&second, NOW).await.unwrap();
        change.commit().await.unwrap();
        let owner = Uuid::from_bytes([100; 16]);
        let leased = store.lease_operation(owner, NOW, NOW + 10).await.unwrap().unwrap();
        assert_eq!(leased.correlation_id, first.correlation_id);
        assert!(store.lease_operation(owner, NOW, NOW + 10).await.unwrap().is_none());
        let mut change = store.change().await.unwrap();
        let failed = OperationStatus::Failed;
        assert!(change.finish_operation(first.correlation_id, owner, failed, NOW).await.unwrap());
        change.commit().await.unwrap();
        let leased = store.lease_operation(owner, NOW, NOW + 10).await.unwrap().unwrap();
        assert_eq!(leased.correlation_id, second.correlation_id);
    })
    .await;
}

#[tokio::test]
async fn operations_are_paged_without_gaps_or_repeats() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let row = cvm(&store, &ground, 1, "web-1").await;
        let mut change = store.change().await.unwrap();
        for id in 1..=7 {
            let kind = if id % 2 == 0 { OperationKind::Restart } else { OperationKind::PowerOn };
            // Two share each start time, so that the tie is broken too.
            let new = operation(&row, &ground, id, kind);
            change.insert_operation(&new, NOW + i64::from(id / 2)).await.unwrap();
        }
        change.commit().await.unwrap();
        let (mut filter, mut seen) = (OperationFilter::default(), Vec::new());
        loop {
            let page = store.list_operations(row.id, &filter, 2).await.unwrap();
            let Some(last) = page.last() else { break };
            filter.after = Some((last.started_at_ms, last.correlation_id));
            seen.extend(page.iter().map(|operation| operation.correlation_id.as_bytes()[0]));
        }
        assert_eq!(seen, [7, 6, 5, 4, 3, 2, 1]);
        let restarts = OperationFilter { kinds: vec![OperationKind::Restart], ..OperationFilter::default() };
        assert_eq!(store.count_operations(row.id, &restarts).await.unwrap(), 3);
        let window =
            OperationFilter { start_ms: Some(NOW + 1), end_ms: Some(NOW + 1), ..OperationFilter::default() };
        assert_eq!(store.count_operations(row.id, &window).await.unwrap(), 2);
    })
    .await;
}

#[tokio::test]
async fn events_are_numbered_in_order() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let row = cvm(&store, &ground, 1, "web-1").await;
        let new = operation(&row, &ground, 1, OperationKind::Create);
        let mut change = store.change().await.unwrap();
        change.insert_operation(&new, NOW).await.unwrap();
        for event in ["instance.create.start", "instance.create.complete"] {
            change.append_event(new.correlation_id, event, "creating", NOW).await.unwrap();
        }
        change.commit().await.unwrap();
        let events = store.events(new.correlation_id).await.unwrap();
        let numbered: Vec<_> = events.iter().map(|e| (e.sequence, e.event_type.as_str())).collect();
        assert_eq!(numbered, [(0, "instance.create.start"), (1, "instance.create.complete")]);
    })
    .await;
}

#[tokio::test]
async fn changes_from_many_tasks_are_all_kept() {
    on_both(|store| async move {
        let ground = Arc::new(ground(&store).await);
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (store, ground) = (store.clone(), Arc::clone(&ground));
                tokio::spawn(async move {
                    let mut change = store.change().await.unwrap();
                    let nonce = change.take_app_nonce(ground.workspace).await.unwrap().1;
                    change.commit().await.unwrap();
                    nonce
                })
            })
            .collect();
        let mut nonces = Vec::new();
        for task in tasks {
            nonces.push(task.await.unwrap());
        }
        nonces.sort_unstable();
        assert_eq!(nonces, (0..20).collect::<Vec<i64>>());
    })
    .await;
}
