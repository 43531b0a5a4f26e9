//! One record for each change, in its transaction, in chains that do not fork and that nobody can touch unseen.

mod concurrent;

use cloister_management_api::{AuditChain, AuditFault, AuditPlace, AuditRecord, NO_RECORD, WorkspaceId};
use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::audit::{self, INSTALLATION, Named, Scope, System};
use crate::clock::Clock;

fn clock() -> Clock {
    Clock::manual(Timestamp::from_millisecond(NOW).unwrap())
}

fn scope(ground: &Ground, operation: &'static str, clock: &Clock) -> Scope {
    let caller = Caller {
        api_key_id: 7,
        user_id: ground.user,
        username: "ada".to_owned(),
        email: String::new(),
        user_role: "user".to_owned(),
        workspace_id: ground.workspace,
        workspace_slug: "ada-lab".to_owned(),
        default_version: "2026-01-21".to_owned(),
        scope: KeyScope::Admin,
        key_prefix: "phak_0123456".to_owned(),
        oauth_client: None,
        stepped_up_at_ms: None,
    };
    let named = Named { kind: "cvm", id: "as-the-request-says".to_owned() };
    Scope::new(audit::key_holder(&caller), operation, named, clock.clone())
        .of_request(Some("request-1".to_owned()))
        .in_chain(ground.workspace)
}

async fn records(store: &Store, chain: i64) -> Vec<AuditRecord> {
    store.audit_stretch(chain, 0, i64::MAX, 10_000).await.unwrap()
}

fn checked(records: &[AuditRecord]) -> std::result::Result<AuditPlace, AuditFault> {
    let mut chain = AuditChain::through([]);
    for record in records {
        chain.line(&serde_json::to_string(record).unwrap())?;
    }
    chain.finish()
}

async fn rename(store: &Store, cvm: i64, name: &str) {
    let mut change = store.change().await.unwrap();
    change.rename_cvm(cvm, name, NOW).await.unwrap();
    change.commit().await.unwrap();
}

#[tokio::test]
async fn a_change_in_a_scope_leaves_one_record_with_both_hashes() {
    on_both(|store| async move {
        let (ground, clock) = (ground(&store).await, clock());
        let cvm = cvm(&store, &ground, 1, "first-name").await;
        // Nobody's changes left none.
        assert_eq!(store.audit_head(ground.workspace).await.unwrap(), (0, NO_RECORD.to_owned()));

        audit::within(scope(&ground, "rename_cvm", &clock), rename(&store, cvm.id, "second-name")).await;
        audit::within(scope(&ground, "rename_cvm", &clock), rename(&store, cvm.id, "first-name")).await;
        let found = records(&store, ground.workspace).await;
        assert_eq!(found.len(), 2);
        let first = &found[0];
        assert_eq!(first.workspace, Some(WorkspaceId(ground.workspace)));
        assert_eq!((first.target.kind.as_str(), first.target.id.clone()), ("cvm", cvm.vm_uuid.to_string()));
        assert_eq!(
            (first.operation.as_str(), first.request_id.as_deref()),
            ("rename_cvm", Some("request-1"))
        );
        assert_eq!(first.actor.key_prefix.as_deref(), Some("phak_0123456"));
        assert_eq!(first.time.as_millisecond(), NOW);
        // The second change brought back what was before the first.
        assert!(first.before.is_some() && first.before != first.after);
        assert_eq!((&first.before, &first.after), (&found[1].after, &found[1].before));
        let end = checked(&found).unwrap();
        assert_eq!(store.audit_head(ground.workspace).await.unwrap(), (end.sequence, end.hash));
    })
    .await;
}

#[tokio::test]
async fn what_comes_to_be_has_no_before_and_what_goes_no_after() {
    on_both(|store| async move {
        let (ground, clock) = (ground(&store).await, clock());
        let key = NewSshKey {
            user_id: ground.user,
            name: "laptop",
            public_key: "ssh-ed25519 x",
            fingerprint: "SHA256:x",
            key_type: "ssh-ed25519",
        };
        let add = async {
            let mut change = store.change().await.unwrap();
            let id = change.insert_ssh_key(&key, NOW).await.unwrap();
            change.commit().await.unwrap();
            id
        };
        let id = audit::within(scope(&ground, "create_ssh_key", &clock), add).await;
        let remove = async {
            let mut change = store.change().await.unwrap();
            assert!(change.delete_ssh_key(ground.user, id, NOW).await.unwrap());
            change.commit().await.unwrap();
            // There is nothing to delete any more: nothing changes, and nothing is recorded.
            let mut change = store.change().await.unwrap();
            assert!(!change.delete_ssh_key(ground.user, id, NOW).await.unwrap());
            change.commit().await.unwrap();
        };
        audit::within(scope(&ground, "delete_ssh_key", &clock), remove).await;
        let found = records(&store, ground.workspace).await;
        let hashes: Vec<_> =
            found.iter().map(|record| (record.before.clone(), record.after.clone())).collect();
        assert_eq!(hashes.len(), 2);
        assert!(hashes[0].0.is_none() && hashes[0].1.is_some());
        assert_eq!(hashes[1], (hashes[0].1.clone(), None));
        assert_eq!(found[0].target, found[1].target);
    })
    .await;
}

#[tokio::test]
async fn looking_locking_upkeep_and_what_is_undone_leave_nothing() {
    on_both(|store| async move {
        let (ground, clock) = (ground(&store).await, clock());
        let cvm = cvm(&store, &ground, 1, "a-name").await;
        let work = async {
            let mut change = store.change().await.unwrap();
            change.lock_workspace(ground.workspace).await.unwrap();
            change.lock_ssh_keys(ground.user).await.unwrap();
            change.lock_cvm(cvm.id).await.unwrap().unwrap();
            change.commit().await.unwrap();
            let mut change = store.change().await.unwrap();
            change.rename_cvm(cvm.id, "never-so", NOW).await.unwrap();
            drop(change);
            let mut change = store.upkeep().await.unwrap();
            change.set_boot_error(cvm.id, "reason").await.unwrap();
            change.commit().await.unwrap();
        };
        audit::within(scope(&ground, "stop_cvm", &clock), work).await;
        assert!(records(&store, ground.workspace).await.is_empty());
        assert_eq!(store.cvm(cvm.id).await.unwrap().unwrap().name, "a-name");
    })
    .await;
}

#[tokio::test]
async fn a_change_of_what_nobody_named_is_recorded_by_the_words_of_the_request() {
    on_both(|store| async move {
        let (ground, clock) = (ground(&store).await, clock());
        let cvm = cvm(&store, &ground, 1, "a-name").await;
        let work = async {
            let mut change = store.change().await.unwrap();
            change.set_boot_error(cvm.id, "reason").await.unwrap();
            change.commit().await.unwrap();
        };
        audit::within(scope(&ground, "restart_cvm", &clock), work).await;
        let found = records(&store, ground.workspace).await;
        assert_eq!((found.len(), found[0].target.id.as_str()), (1, "as-the-request-says"));
    })
    .await;
}

#[tokio::test]
async fn the_service_names_itself_and_the_installation_has_a_chain_of_its_own() {
    on_both(|store| async move {
        let (ground, clock) = (ground(&store).await, clock());
        let cvm = cvm(&store, &ground, 1, "a-name").await;
        let chain = ground.workspace;
        let work = rename(&store, cvm.id, "b-name");
        audit::as_system(System::ScheduledDelete, ("delete_cvm", "cvm"), chain, &clock, work).await;
        let work = async {
            let mut change = store.change().await.unwrap();
            change.set_node_maintenance(ground.node, true).await.unwrap();
            change.commit().await.unwrap();
        };
        let operation = ("admin_set_node_maintenance", "node");
        audit::as_system(System::Operator, operation, INSTALLATION, &clock, work).await;
        let (own, of_installation) = (records(&store, chain).await, records(&store, INSTALLATION).await);
        assert_eq!((own.len(), of_installation.len()), (1, 1));
        assert_eq!(own[0].actor.name.as_deref(), Some("scheduled delete"));
        assert_eq!((of_installation[0].workspace, of_installation[0].target.id.as_str()), (None, "alpha"));
        assert!(checked(&own).is_ok() && checked(&of_installation).is_ok());
    })
    .await;
}

/// Runs a statement behind the back of the store's own code; whether the database let it.
async fn tamper(store: &Store, sql: String) -> bool {
    sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&store.pool).await.is_ok()
}

/// Every column of every record, changed by somebody who has the database, breaks the chain; so do records that are
/// removed, doubled, exchanged or added.
#[tokio::test]
async fn nothing_of_the_log_can_be_changed_unseen() {
    const NUMBERS: [&str; 5] = ["chain", "sequence", "at_ms", "user_id", "api_key_id"];
    const TEXTS: [&str; 6] = ["actor_kind", "operation", "target_kind", "target_id", "previous_hash", "hash"];
    const OPTIONAL: [&str; 5] = ["actor_name", "key_prefix", "request_id", "before_hash", "after_hash"];
    let mut tampers = Vec::new();
    for row in 1..=3 {
        let set = |change: String| format!("UPDATE audit_records SET {change} WHERE sequence = {row}");
        tampers.extend(
            NUMBERS.iter().flat_map(|name| [set(format!("{name} = {name} + 9")), set(format!("{name} = 0"))]),
        );
        tampers.extend(TEXTS.iter().chain(&OPTIONAL).flat_map(|name| {
            [set(format!("{name} = {name} || 'x'")), set(format!("{name} = SUBSTR({name}, 2)"))]
        }));
        tampers.extend(OPTIONAL.iter().map(|name| set(format!("{name} = NULL"))));
        tampers.push(format!("DELETE FROM audit_records WHERE sequence = {row}"));
        tampers.push(format!("DELETE FROM audit_records WHERE sequence >= {row}"));
        tampers.push(format!(
            "INSERT INTO audit_records SELECT * FROM kept WHERE sequence = {row}; UPDATE audit_records SET x = 1"
        ));
    }
    let doubled = "DELETE FROM audit_records WHERE sequence = 2; \
        INSERT INTO audit_records SELECT chain, 2, at_ms, actor_kind, actor_name, user_id, api_key_id, key_prefix, \
        request_id, operation, target_kind, target_id, before_hash, after_hash, previous_hash, hash FROM kept \
        WHERE sequence = 1";
    let added = "INSERT INTO audit_records SELECT chain, 4, at_ms, actor_kind, actor_name, user_id, api_key_id, \
        key_prefix, request_id, operation, target_kind, target_id, before_hash, after_hash, previous_hash, hash \
        FROM kept WHERE sequence = 3";
    let exchanged = "UPDATE audit_records SET sequence = 12 WHERE sequence = 2; \
        UPDATE audit_records SET sequence = 2 WHERE sequence = 3; \
        UPDATE audit_records SET sequence = 3 WHERE sequence = 12";
    tampers.retain(|sql| !sql.contains("SET x"));
    tampers.extend([doubled, added, exchanged].map(str::to_owned));
    on_both(|store| {
        let tampers = tampers.clone();
        async move {
            let (ground, clock) = (ground(&store).await, clock());
            let cvm = cvm(&store, &ground, 1, "a-name").await;
            for name in ["b-name", "c-name", "d-name"] {
                audit::within(scope(&ground, "rename_cvm", &clock), rename(&store, cvm.id, name)).await;
            }
            assert!(tamper(&store, "CREATE TABLE kept AS SELECT * FROM audit_records".to_owned()).await);
            let (sequence, hash) = store.audit_head(ground.workspace).await.unwrap();
            let kept = AuditPlace { sequence, hash };
            for sql in &tampers {
                assert!(holds(&store, &ground, &kept).await);
                for statement in sql.split("; ") {
                    assert!(tamper(&store, statement.to_owned()).await, "{statement}");
                }
                assert!(!holds(&store, &ground, &kept).await, "{sql}");
                assert!(tamper(&store, "DELETE FROM audit_records".to_owned()).await);
                assert!(tamper(&store, "INSERT INTO audit_records SELECT * FROM kept".to_owned()).await);
            }
        }
    })
    .await;
}

async fn holds(store: &Store, ground: &Ground, kept: &AuditPlace) -> bool {
    let mut chain = AuditChain::through([kept.clone()]);
    let all = records(store, ground.workspace).await;
    all.iter().all(|record| chain.value(&serde_json::to_value(record).unwrap()).is_ok())
        && chain.finish().is_ok()
}

/// Nobody's code but the one that appends writes the tables of the log.
#[test]
fn no_code_changes_or_removes_a_record() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut dirs, mut seen) = (vec![root.join("src"), root.join("migrations")], 0);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            let is_test = path.components().any(|part| part.as_os_str() == "tests");
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
            seen += usize::from(text.contains("audit_records"));
            for verb in [
                "update audit_records",
                "delete from audit_records",
                "drop table audit_",
                "truncate audit_",
                "delete from audit_heads",
                "insert or replace into audit",
                "alter table audit_records",
            ] {
                assert!(is_test || !text.contains(verb), "{}: {verb}", path.display());
            }
        }
    }
    assert!(seen >= 2, "the tables are named somewhere");
}

#[tokio::test]
async fn pages_are_filtered_and_continue() {
    on_both(|store| async move {
        let (ground, clock) = (ground(&store).await, clock());
        let (first, second) =
            (cvm(&store, &ground, 1, "a-name").await, cvm(&store, &ground, 2, "z-name").await);
        for round in 0..6 {
            let cvm = if round % 2 == 0 { &first } else { &second };
            let operation = if round < 4 { "rename_cvm" } else { "update_cvm_listed" };
            audit::within(
                scope(&ground, operation, &clock),
                rename(&store, cvm.id, &format!("name-{round}")),
            )
            .await;
            clock.advance_ms(1_000);
        }
        let work = rename(&store, first.id, "by-itself");
        audit::as_system(System::ScheduledDelete, ("delete_cvm", "cvm"), ground.workspace, &clock, work)
            .await;
        let page = async |filter: AuditFilter| {
            let found = store.audit_page(ground.workspace, &filter, 100).await.unwrap();
            found.into_iter().map(|record| record.sequence).collect::<Vec<_>>()
        };
        let open = AuditFilter::default;
        assert_eq!(page(open()).await, [7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(page(AuditFilter { before: Some(3), ..open() }).await, [2, 1]);
        assert_eq!(page(AuditFilter { operation: Some("update_cvm_listed".into()), ..open() }).await, [6, 5]);
        let target = Some(second.vm_uuid.to_string());
        assert_eq!(page(AuditFilter { target: target.clone(), ..open() }).await, [6, 4, 2]);
        let between = AuditFilter { from_ms: Some(NOW + 1_000), to_ms: Some(NOW + 3_999), ..open() };
        assert_eq!(page(between.clone()).await, [4, 3, 2]);
        assert_eq!(page(AuditFilter { target, before: Some(4), ..between }).await, [2]);
        assert!(page(AuditFilter { from_ms: Some(NOW + 60_000), ..open() }).await.is_empty());
        assert!(page(AuditFilter { to_ms: Some(NOW - 1), ..open() }).await.is_empty());
        for (actor, expected) in [
            (AuditActorFilter::Name("ada".into()), 6),
            (AuditActorFilter::Name("scheduled delete".into()), 1),
            (AuditActorFilter::Kind("system".into()), 1),
            (AuditActorFilter::Key(7), 6),
            (AuditActorFilter::Key(8), 0),
        ] {
            let operation = Some("rename_cvm".to_owned());
            let of_actor = AuditFilter { actor: Some(actor.clone()), ..open() };
            assert_eq!(page(of_actor.clone()).await.len(), expected, "{actor:?}");
            let renamed = page(AuditFilter { operation, ..of_actor }).await.len();
            assert_eq!(renamed, if expected == 6 { 4 } else { 0 }, "{actor:?}");
        }
        assert!(store.audit_page(ground.workspace + 1, &open(), 10).await.unwrap().is_empty());
    })
    .await;
}

/// What a transaction of the property does.
#[derive(Debug, Clone, Copy)]
enum Act {
    Commit,
    Roll,
    Nothing,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// After any transactions, committed or not, the records are those of the changes that are there: each one's
    /// `before` is what the one before left, and the last `after` is what is in the table.
    #[test]
    fn records_and_changes_are_the_same(acts in prop::collection::vec(
        prop_oneof![3 => Just(Act::Commit), 2 => Just(Act::Roll), 1 => Just(Act::Nothing)], 1..14)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(on_both(|store| {
            let acts = acts.clone();
            async move {
                let (ground, clock) = (ground(&store).await, clock());
                let cvm = cvm(&store, &ground, 1, "a-name").await;
                let mut committed = Vec::new();
                for (round, act) in acts.iter().enumerate() {
                    let name = format!("name-{round}");
                    let work = async {
                        let mut change = store.change().await.unwrap();
                        change.lock_cvm(cvm.id).await.unwrap();
                        if !matches!(act, Act::Nothing) {
                            change.rename_cvm(cvm.id, &name, NOW).await.unwrap();
                        }
                        if matches!(act, Act::Roll) { drop(change) } else { change.commit().await.unwrap() }
                    };
                    audit::within(scope(&ground, "rename_cvm", &clock), work).await;
                    if matches!(act, Act::Commit) {
                        committed.push(name);
                    }
                }
                let found = records(&store, ground.workspace).await;
                assert_eq!(found.len(), committed.len());
                assert!(checked(&found).is_ok());
                assert!(found.windows(2).all(|pair| pair[0].after == pair[1].before));
                let name = store.cvm(cvm.id).await.unwrap().unwrap().name;
                assert_eq!(committed.last().map_or("a-name", String::as_str), name);
            }
        }));
    }
}
