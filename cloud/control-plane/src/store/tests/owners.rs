//! Owners of applications, and what they signed.

use cloister_kms_api::approvals::Owners;

use super::*;
use crate::store::{
    AppOwnersRow, ApprovedAction, NewApproval, OwnerProposalRow, RevocationRow, StoredOwners,
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
        assert_eq!(change.count_approvals(app_id).await.unwrap(), 2);
        let signers = change.approval_signers(app_id, ApprovedAction::Allow, &subject, 3).await.unwrap();
        assert_eq!(signers, ["a", "b"]);
        for serial in [7, 6] {
            let revocation = RevocationRow { compose_hash: hash, serial };
            change.put_owner_revocation(app_id, revocation, NOW).await.unwrap();
        }
        change.commit().await.unwrap();
        let kept = store.approval_signatures(app_id, ApprovedAction::Allow, &subject, 3).await.unwrap();
        let pair = |key: &str, signature: &str| (key.to_owned(), signature.to_owned());
        assert_eq!(kept, [pair("a", "first"), pair("b", "second")]);
        let none = store.approval_signatures(app_id, ApprovedAction::Allow, &subject, 4).await.unwrap();
        assert!(none.is_empty());
        let revoked = store.owner_revocations(app_id).await.unwrap();
        assert_eq!(revoked, [RevocationRow { compose_hash: hash, serial: 7 }]);
    })
    .await;
}
