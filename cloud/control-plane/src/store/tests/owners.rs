//! Owners of applications, and what they signed.

use cloister_kms_api::approvals::Owners;

use super::*;
use crate::store::{
    AppOwnersRow, ApprovedAction, NewApproval, OwnerProposalRow, RevocationRow, StoredOwners, UntoldRow,
};

/// Writes other owners over those of an application, as nothing but an operator does.
pub(crate) async fn forge(store: &Store, app_id: AppId, owners: &str) {
    let mut change = store.change().await.unwrap();
    sqlx::query("UPDATE app_owners SET owners = $2 WHERE app_id = $1")
        .bind(app_id.to_string())
        .bind(owners)
        .execute(&mut *change.transaction)
        .await
        .unwrap();
    change.commit().await.unwrap();
}

/// Lets it be forgotten that an application has owners.
pub(crate) async fn forget(store: &Store, app_id: AppId) {
    let mut change = store.change().await.unwrap();
    for table in ["owner_proposals", "owner_revocations", "approvals", "app_owners"] {
        sqlx::query(sqlx::AssertSqlSafe(format!("DELETE FROM {table} WHERE app_id = $1")))
            .bind(app_id.to_string())
            .execute(&mut *change.transaction)
            .await
            .unwrap();
    }
    change.commit().await.unwrap();
}

/// Somebody signed as much as is kept, about documents that nobody has.
pub(crate) async fn fill(store: &Store, app_id: AppId, user_id: i64) {
    let mut change = store.change().await.unwrap();
    sqlx::query(
        "INSERT INTO approvals (id, app_id, action, subject, serial, key_fingerprint, signature, user_id, \
         created_at_ms) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) \
         SELECT 1000000 + i, $1, 'allow_compose_hash', 'filler ' || CAST(i AS TEXT), i, 'SHA256:x', 'x', $2, 0 \
         FROM n",
    )
    .bind(app_id.to_string())
    .bind(user_id)
    .execute(&mut *change.transaction)
    .await
    .unwrap();
    change.commit().await.unwrap();
}

/// The time comes to tell what services have not heard.
pub(crate) async fn make_due(store: &Store) {
    let mut change = store.change().await.unwrap();
    sqlx::query("UPDATE untold_revocations SET next_attempt_at_ms = 0")
        .execute(&mut *change.transaction)
        .await
        .unwrap();
    change.commit().await.unwrap();
}

/// One owner.
fn owners(key: &str) -> StoredOwners {
    StoredOwners(Owners::new(1, vec![key.parse().unwrap()]).unwrap())
}

const FIRST: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOZ0oDJ1LCuB4+z3CZ2sL1i5HSCQNwEMxIFP9s+rD5Vq";
const SECOND: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE122tM8OMaM+f0G6/CR17cvb9u9KvZa8OBrnwgAkama";

#[tokio::test]
async fn owners_change_only_to_later_ones_and_that_ends_proposals() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let app_id = cvm(&store, &ground, 1, "web-1").await.app_id;
        let row = |owners: StoredOwners, serial: i64| AppOwnersRow {
            app_id,
            workspace_id: ground.workspace,
            owners,
            serial,
            set_at_ms: NOW,
        };
        let put = async |new: AppOwnersRow| {
            let mut change = store.change().await.unwrap();
            change.put_app_owners(&new, ground.user).await.unwrap();
            change.commit().await.unwrap();
            store.app_owners(app_id).await.unwrap().unwrap()
        };
        assert!(store.app_owners(app_id).await.unwrap().is_none());
        assert_eq!(put(row(owners(FIRST), 5)).await, row(owners(FIRST), 5));

        let proposal = OwnerProposalRow { owners: owners(SECOND), serial: 9, proposed_at_ms: NOW };
        let mut change = store.change().await.unwrap();
        assert!(change.lock_owner_proposal(app_id).await.unwrap().is_none());
        change.put_owner_proposal(app_id, &proposal, ground.user).await.unwrap();
        change.commit().await.unwrap();
        for serial in [4, 5] {
            assert_eq!(put(row(owners(SECOND), serial)).await, row(owners(FIRST), 5), "not later");
        }
        assert_eq!(store.owner_proposal(app_id).await.unwrap(), Some(proposal));
        assert_eq!(put(row(owners(SECOND), 9)).await, row(owners(SECOND), 9));
        assert!(store.owner_proposal(app_id).await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn a_signature_is_kept_once_and_the_later_revocation_counts() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let cvm = cvm(&store, &ground, 1, "web-1").await;
        let (app_id, hash) = (cvm.app_id, cvm.compose_hash);
        let row = AppOwnersRow {
            app_id,
            workspace_id: ground.workspace,
            owners: owners(FIRST),
            serial: 1,
            set_at_ms: NOW,
        };
        let subject = hash.to_string();
        let new = |key: &'static str, signature: &'static str| NewApproval {
            app_id,
            action: ApprovedAction::Allow,
            subject: &subject,
            serial: 3,
            key_fingerprint: key,
            signature,
            user_id: ground.user,
        };
        let mut change = store.change().await.unwrap();
        change.put_app_owners(&row, ground.user).await.unwrap();
        for new in [new("a", "first"), new("a", "again"), new("b", "second")] {
            change.insert_approval(&new, NOW).await.unwrap();
        }
        for (kind, count) in
            [(ApprovedAction::Allow, 2), (ApprovedAction::SetOwners, 2), (ApprovedAction::Revoke, 0)]
        {
            assert_eq!(change.count_approvals(app_id, kind).await.unwrap(), count, "{kind}");
        }
        let signers = change.approval_signers(app_id, ApprovedAction::Allow, &subject, 3).await.unwrap();
        assert_eq!(signers, ["a", "b"]);
        change.commit().await.unwrap();
        let kept = store.approval_signatures(app_id, ApprovedAction::Allow, &subject, 3).await.unwrap();
        let pair = |key: &str, signature: &str| (key.to_owned(), signature.to_owned());
        assert_eq!(kept, [pair("a", "first"), pair("b", "second")]);
        let none = store.approval_signatures(app_id, ApprovedAction::Allow, &subject, 4).await.unwrap();
        assert!(none.is_empty());

        let signed = |action: ApprovedAction, serial: i64| NewApproval { action, serial, ..new("a", "x") };
        let mut change = store.change().await.unwrap();
        for (action, serial) in [
            (ApprovedAction::Allow, 7),
            (ApprovedAction::Allow, 8),
            (ApprovedAction::Revoke, 6),
            (ApprovedAction::Revoke, 7),
        ] {
            change.insert_approval(&signed(action, serial), NOW).await.unwrap();
        }
        for serial in [7, 6] {
            let revocation = RevocationRow { compose_hash: hash, serial };
            change.put_owner_revocation(app_id, revocation, NOW).await.unwrap();
        }
        change.commit().await.unwrap();
        let left = store.approvals_of_app(app_id).await.unwrap();
        let left: Vec<_> = left.iter().map(|row| (row.action, row.serial)).collect();
        assert_eq!(
            left,
            [(ApprovedAction::Allow, 8), (ApprovedAction::Revoke, 7)],
            "the rest counts no more"
        );
        let revoked = store.owner_revocations(app_id).await.unwrap();
        assert_eq!(revoked, [RevocationRow { compose_hash: hash, serial: 7 }]);
    })
    .await;
}

#[tokio::test]
async fn what_a_service_has_not_heard_is_due_until_it_has() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let cvm = cvm(&store, &ground, 1, "web-1").await;
        let (app_id, hash) = (cvm.app_id, cvm.compose_hash);
        let revocation = |serial: i64| RevocationRow { compose_hash: hash, serial };
        let mut change = store.change().await.unwrap();
        let (one, other) =
            (change.put_kms("one", NOW).await.unwrap(), change.put_kms("other", NOW).await.unwrap());
        for (serial, kms, at) in [(7, one, NOW), (6, one, NOW + 9), (7, one, NOW + 9), (7, other, NOW + 1)] {
            change.put_untold(app_id, revocation(serial), kms, at).await.unwrap();
        }
        change.commit().await.unwrap();
        let row = |kms_id: i64, since_ms: i64| UntoldRow {
            app_id,
            compose_hash: hash,
            kms_id,
            serial: 7,
            since_ms,
            attempts: 0,
            next_attempt_at_ms: since_ms,
            error: None,
        };
        assert_eq!(store.services_with_due_untold(NOW).await.unwrap(), [one]);
        assert_eq!(store.due_untold(one, NOW, 9).await.unwrap(), [row(one, NOW)]);
        assert!(store.due_untold(other, NOW, 9).await.unwrap().is_empty());
        assert_eq!(store.untold_of_app(app_id).await.unwrap(), [row(one, NOW), row(other, NOW + 1)]);

        // Of two who try at the same time, one does.
        let mut change = store.change().await.unwrap();
        assert!(change.take_untold(&row(one, NOW), NOW + 5).await.unwrap());
        assert!(!change.take_untold(&row(one, NOW), NOW + 5).await.unwrap());
        change.note_untold(&row(one, NOW), "away").await.unwrap();
        change.commit().await.unwrap();
        let tried = UntoldRow {
            attempts: 1,
            next_attempt_at_ms: NOW + 5,
            error: Some("away".to_owned()),
            ..row(one, NOW)
        };
        assert_eq!(store.due_untold(one, NOW + 5, 9).await.unwrap(), std::slice::from_ref(&tried));
        assert_eq!(store.due_untold(other, NOW + 5, 9).await.unwrap(), [row(other, NOW + 1)]);

        // A later one is told from the beginning; that the former was heard says nothing about it.
        let mut change = store.change().await.unwrap();
        change.put_untold(app_id, revocation(8), one, NOW + 6).await.unwrap();
        change.delete_untold(app_id, revocation(7), one).await.unwrap();
        change.delete_untold(app_id, revocation(7), other).await.unwrap();
        assert!(!change.take_untold(&tried, NOW + 9).await.unwrap());
        change.commit().await.unwrap();
        let later = UntoldRow { serial: 8, next_attempt_at_ms: NOW + 6, ..row(one, NOW) };
        assert_eq!(store.untold_of_app(app_id).await.unwrap(), [later]);
        let mut change = store.change().await.unwrap();
        change.delete_untold(app_id, revocation(8), one).await.unwrap();
        change.commit().await.unwrap();
        assert!(store.services_with_due_untold(i64::MAX).await.unwrap().is_empty());
    })
    .await;
}
