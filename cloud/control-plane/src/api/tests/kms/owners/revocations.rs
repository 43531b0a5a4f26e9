//! What owners take back reaches every service.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cloister_kms_api::admin::{AllowApp, SetOwners};
use cloister_kms_api::approvals::Approvals;

use super::*;
use crate::governance::untold;
use crate::store::RevocationRow;
use crate::store::tests::owners::{fill, make_due};

impl Owned {
    /// These owners take back what runs; what the last of them is told.
    async fn take_back(&self, numbers: &[u8]) -> Answer {
        let hash = self.row().await.compose_hash;
        let list = self.call("GET", "/approvals", Value::Null).await.expect(200).json();
        let revoke = self.statement(Action::RevokeComposeHash(hash), list["next_serial"].as_u64().unwrap());
        let mut told = None;
        for number in numbers {
            if let Some(told) = told.replace(self.sign(*number, &revoke).await) {
                told.expect(200);
            }
        }
        told.unwrap()
    }

    /// What services have not heard of.
    async fn untold(&self) -> Vec<Value> {
        let list = self.call("GET", "/approvals", Value::Null).await.expect(200).json();
        list["untold_revocations"].as_array().cloned().unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_service_hears_of_a_revocation_when_it_answers_again() {
    for mut owned in Owned::both_with_owners().await {
        owned.cloud.installation.call("POST", "/cvms/my-app-01/restart", Value::Null).await.expect(200);
        let hash = owned.cloud.at_rest(&owned.vm, CvmStatus::Running).await.compose_hash;
        let sibling = owned.cloud.add_service().await;
        let app = Arc::clone(&owned.cloud.installation.app);
        // Somebody let the application run it there, where nobody knows of owners.
        let allow = AllowApp::new(owned.app_id, hash);
        app.kmses.allow_app(sibling.kms_id, &allow).await.unwrap();
        let documents = async || {
            let told = app.kmses.get(sibling.kms_id).unwrap().app_owners(owned.app_id).await.unwrap();
            told.allowed_documents
        };
        assert_eq!(documents().await, 1);

        sibling.is_open.store(false, Ordering::SeqCst);
        owned.take_back(&[0, 2]).await.expect(200);
        assert!(owned.cloud.allowed(owned.app_id).await.is_empty(), "its own service was told at once");
        let untold = owned.untold().await;
        assert_eq!(untold.len(), 1, "{untold:?}");
        assert_eq!(
            (&untold[0]["kms"], &untold[0]["compose_hash"], &untold[0]["attempts"], &untold[0]["error"]),
            (&json!("sibling"), &json!(hash.to_string()), &json!(0), &Value::Null)
        );
        assert_eq!(untold::tell_due(&app).await.unwrap(), 0);
        let untold = owned.untold().await;
        assert_eq!(untold[0]["attempts"], 1);
        assert!(untold[0]["error"].as_str().unwrap().contains("does not answer"), "{untold:?}");
        assert_eq!(untold::tell_due(&app).await.unwrap(), 0, "not before its time");
        assert_eq!(owned.untold().await, untold);

        sibling.is_open.store(true, Ordering::SeqCst);
        make_due(&app.store).await;
        assert_eq!(untold::tell_due(&app).await.unwrap(), 1);
        assert!(owned.untold().await.is_empty());
        assert_eq!(documents().await, 0);
    }
}

/// What it heard without signatures would last only until somebody hands in the old ones again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_whose_clock_is_late_hears_of_a_revocation_until_it_lasts() {
    let mut owned = Owned::on(Installation::with_clock(Clock::system()).await).await;
    owned.call("PUT", "/owners", body(2, &[0, 1, 2])).await.expect(200);
    let sibling = owned.cloud.add_service().await;
    let app = Arc::clone(&owned.cloud.installation.app);
    let kms = app.kmses.get(sibling.kms_id).unwrap();
    let now = u64::try_from(app.clock.now_ms()).unwrap();
    let hash = owned.row().await.compose_hash;
    let owners = Owners::new(2, [0, 1, 2].map(|number| Owner::new(number).key()).to_vec()).unwrap();
    let set = SetOwners { app_id: owned.app_id, owners, serial: now - 9, signatures: Vec::new() };
    kms.set_owners(&set).await.unwrap();
    let allowing = owned.statement(Action::AllowComposeHash(hash), now);
    let signatures = [0, 1].map(|number| Owner::new(number).sign_for(NAMESPACE, &allowing)).to_vec();
    let approvals = Some(Approvals { serial: now, signatures });
    let allow = AllowApp { approvals, ..AllowApp::new(owned.app_id, hash) };
    app.kmses.allow_app(sibling.kms_id, &allow).await.unwrap();

    sibling.late_s.store(2 * 60 * 60, Ordering::SeqCst);
    let revoke = owned.statement(Action::RevokeComposeHash(hash), now + 23 * 60 * 60 * 1000);
    owned.approve(&[0, 1], &revoke).await;
    assert_eq!(untold::tell_due(&app).await.unwrap(), 0);
    let untold = owned.untold().await;
    assert!(untold[0]["error"].as_str().unwrap().contains("cannot be used"), "{untold:?}");
    assert_eq!(kms.app_owners(owned.app_id).await.unwrap().allowed_documents, 0, "taken back all the same");

    sibling.late_s.store(0, Ordering::SeqCst);
    make_due(&app.store).await;
    assert_eq!(untold::tell_due(&app).await.unwrap(), 1);
    assert!(owned.untold().await.is_empty());
    let again = app.kmses.allow_app(sibling.kms_id, &allow).await.unwrap_err().to_string();
    assert!(again.contains("owners revoked"), "{again}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_away_holds_up_no_other_one() {
    let mut owned = Owned::on(Installation::with_clock(Clock::system()).await).await;
    owned.call("PUT", "/owners", body(2, &[0, 1, 2])).await.expect(200);
    let sibling = owned.cloud.add_service().await;
    sibling.is_open.store(false, Ordering::SeqCst);
    let app = Arc::clone(&owned.cloud.installation.app);
    let mut change = app.store.change().await.unwrap();
    for number in 0..150_i64 {
        let row = RevocationRow { compose_hash: ComposeHash::of(&number.to_be_bytes()), serial: 1 + number };
        change.put_owner_revocation(owned.app_id, row, 1).await.unwrap();
        change.put_untold(owned.app_id, row, sibling.kms_id, 1).await.unwrap();
        if number == 149 {
            change.put_untold(owned.app_id, row, app.kmses.all()[0].id(), 2).await.unwrap();
        }
    }
    change.commit().await.unwrap();
    assert_eq!(untold::tell_due(&app).await.unwrap(), 1);
    let untold = async |kms_id| app.store.due_untold(kms_id, i64::MAX, 1000).await.unwrap();
    assert!(untold(app.kmses.all()[0].id()).await.is_empty());
    let left = untold(sibling.kms_id).await;
    assert_eq!(left.len(), 150);
    let tried = left.iter().filter(|row| row.attempts == 1).count();
    assert!((1..=8).contains(&tried), "{tried} calls to one that does not answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_is_kept_while_its_service_is_away() {
    for mut owned in Owned::both_with_owners().await {
        owned.cloud.stop_kms().await;
        let told = owned.take_back(&[0, 1]).await;
        assert_eq!((told.summary().as_str(), told.header("retry-after")), ("503 plain", "5"));
        assert!(told.text.contains("The revocation is kept"), "{}", told.text);
        let untold = owned.untold().await;
        assert_eq!((untold.len(), &untold[0]["kms"]), (1, &json!("local")), "{untold:?}");
        // Nothing of ours lets the application run it meanwhile.
        let asked = json!({"compose_hash": owned.row().await.compose_hash.to_string()});
        let asked = owned.call("POST", "/is-allowed", asked).await.expect(200).json();
        assert_eq!(asked["is_allowed"], false);
        assert_eq!(untold::tell_due(&owned.cloud.installation.app).await.unwrap(), 0);
        assert_eq!(owned.untold().await[0]["attempts"], 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_room_for_revocations_whatever_was_signed_before() {
    for owned in Owned::both_with_owners().await {
        let installation = &owned.cloud.installation;
        fill(&installation.app.store, owned.app_id, owned.row().await.user_id).await;
        let now = u64::try_from(installation.app.clock.now_ms()).unwrap();
        let another = owned.statement(Action::AllowComposeHash(ComposeHash::of(b"another")), now);
        assert_eq!(owned.sign(0, &another).await.summary(), "400 ERR-02-015");
        owned.take_back(&[0, 1]).await.expect(200);
        assert!(owned.cloud.allowed(owned.app_id).await.is_empty());
    }
}
