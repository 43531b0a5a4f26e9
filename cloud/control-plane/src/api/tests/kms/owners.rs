//! Applications with owners: what they sign, and that the service itself enforces it.

mod revocations;

use cloister_app_compose::{AppId, ComposeHash};
use cloister_kms_api::AppOwnersResponse;
use cloister_kms_api::approvals::{Action, ApprovalStatement, NAMESPACE, OwnerKey, Owners};
use cloister_kms_api::statements::verify_app_owners;
use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::{Value, json};
use ssh_key::public::{Ed25519PublicKey, KeyData};
use ssh_key::{Algorithm, HashAlg, LineEnding, PublicKey, Signature, SshSig};

use super::super::{Answer, Installation, account};
use super::blob;
use super::support::Cloud;
use crate::clock::Clock;
use crate::operations::CvmStatus;
use crate::store::CvmRow;

const YAML: &str = "services:\n  web:\n    image: nginx:2\n";

/// A person who owns an application.
struct Owner(SigningKey);

impl Owner {
    fn new(number: u8) -> Self {
        Self(SigningKey::from_bytes(&[number + 1; 32]))
    }

    fn data(&self) -> KeyData {
        KeyData::Ed25519(Ed25519PublicKey(self.0.verifying_key().to_bytes()))
    }

    fn key(&self) -> OwnerKey {
        PublicKey::from(self.data()).to_openssh().unwrap().parse().unwrap()
    }

    fn sign_for(&self, namespace: &str, text: &str) -> String {
        let signed = SshSig::signed_data(namespace, HashAlg::Sha512, text.as_bytes()).unwrap();
        let signature = Signature::new(Algorithm::Ed25519, self.0.sign(&signed).to_vec()).unwrap();
        let signature = SshSig::new(self.data(), namespace, HashAlg::Sha512, signature).unwrap();
        signature.to_pem(LineEnding::LF).unwrap()
    }
}

fn body(threshold: u32, numbers: &[u8]) -> Value {
    let keys: Vec<String> = numbers.iter().map(|number| Owner::new(*number).key().to_string()).collect();
    json!({"threshold": threshold, "keys": keys})
}

/// An installation with one application whose CVM is up.
struct Owned {
    cloud: Cloud,
    vm: Value,
    app_id: AppId,
}

impl Owned {
    async fn both() -> [Self; 2] {
        [
            Self::on(Installation::with_clock(Clock::system()).await).await,
            Self::on(Installation::on_postgres_at(Clock::system()).await).await,
        ]
    }

    async fn on(installation: Installation) -> Self {
        let cloud = Cloud::on(installation).await;
        let vm = cloud.create("my-app-01", &blob(1)).await;
        let app_id = cloud.at_rest(&vm, CvmStatus::Running).await.app_id;
        Self { cloud, vm, app_id }
    }

    /// The same with 2 of 3 owners who approved what runs.
    async fn both_with_owners() -> [Self; 2] {
        let both = Self::both().await;
        for owned in &both {
            owned.call("PUT", "/owners", body(2, &[0, 1, 2])).await.expect(200);
            let statement = owned.open("in_use").await["statement"].as_str().unwrap().to_owned();
            owned.approve(&[0, 1], &statement).await;
        }
        both
    }

    async fn call(&self, method: &str, below: &str, body: Value) -> Answer {
        self.cloud.installation.call(method, &format!("/apps/{}{below}", self.app_id), body).await
    }

    async fn row(&self) -> CvmRow {
        self.cloud.installation.row(&self.vm).await
    }

    async fn sign(&self, number: u8, statement: &str) -> Answer {
        let signature = Owner::new(number).sign_for(NAMESPACE, statement);
        self.call("POST", "/approvals", json!({"statement": statement, "signature": signature})).await
    }

    async fn approve(&self, numbers: &[u8], statement: &str) {
        for number in numbers {
            self.sign(*number, statement).await.expect(200);
        }
    }

    /// The only open statement for this reason.
    async fn open(&self, reason: &str) -> Value {
        let all = self.call("GET", "/approvals", Value::Null).await.expect(200).json();
        let items = all["items"].as_array().unwrap().iter().filter(|item| item["reason"] == reason);
        let items: Vec<&Value> = items.collect();
        assert_eq!(items.len(), 1, "{all}");
        items[0].clone()
    }

    async fn update(&self, yaml: &str) -> Answer {
        let change = json!({"docker_compose_file": yaml});
        self.cloud.installation.call("PATCH", "/cvms/my-app-01", change).await
    }

    /// Asks for an update that waits: its token, and what is to be signed.
    async fn prepare(&self, yaml: &str) -> (String, Value) {
        let refused = self.update(yaml).await;
        assert_eq!(refused.summary(), "465 ERR-01-005", "{}", refused.text);
        let refused = refused.json();
        let details = refused["details"].as_array().unwrap();
        let of = |name: &str| details.iter().find(|detail| detail["field"] == name).unwrap()["value"].clone();
        (of("commit_token").as_str().unwrap().to_owned(), of("approval"))
    }

    async fn commit(&self, token: &str) -> Answer {
        let path = format!("/cvms/{}/commit-update", self.vm["vm_uuid"].as_str().unwrap());
        self.cloud.installation.call_with(&[], "POST", &path, json!({"token": token})).await
    }

    fn statement(&self, action: Action, serial: u64) -> String {
        ApprovalStatement { app_id: self.app_id, action, serial }.to_string()
    }

    /// The last operation of the CVM failed because owners have not approved.
    async fn assert_service_refused(&self) {
        self.cloud.settled(&self.vm).await;
        let operations = self.cloud.get("/cvms/my-app-01/operations").await;
        let last = &operations["items"][0];
        assert_eq!(last["status"], "failed", "{last}");
        assert!(last["error_message"].as_str().unwrap().contains("APPROVALS_REQUIRED"), "{last}");
    }
}

fn serial(statement: &str) -> u64 {
    statement.parse::<ApprovalStatement>().unwrap().serial
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_that_too_few_owners_signed() {
    for owned in Owned::both().await {
        let cloud = &owned.cloud;
        let none = owned.call("GET", "/owners", Value::Null).await.expect(200).json();
        assert_eq!(
            (&none["threshold"], &none["owners"], &none["set_at"]),
            (&json!(0), &json!([]), &Value::Null)
        );
        assert_eq!(none["kms_statement"]["owners"], Value::Null);

        let set = owned.call("PUT", "/owners", body(2, &[0, 1, 2])).await.expect(200).json();
        let again = owned.call("PUT", "/owners", body(2, &[2, 1, 0])).await.expect(200).json();
        assert_eq!((&set["owners"], &set["serial"]), (&again["owners"], &again["serial"]));
        let stated: AppOwnersResponse = serde_json::from_value(set["kms_statement"].clone()).unwrap();
        let now = u64::try_from(cloud.installation.app.clock.now_ms() / 1000).unwrap();
        verify_app_owners(&owned.app_id, &stated, now, &cloud.root).unwrap();
        let keys = [0, 1, 2].map(|number| Owner::new(number).key());
        assert_eq!(stated.owners, Some(Owners::new(2, keys.to_vec()).unwrap()));
        assert_eq!(json!(stated.serial), set["serial"]);
        assert!(cloud.allowed(owned.app_id).await.is_empty(), "nobody approved what ran before");

        // What runs has to be approved as well, before it starts again.
        cloud.installation.call("POST", "/cvms/my-app-01/restart", Value::Null).await.expect(200);
        owned.assert_service_refused().await;
        let row = owned.row().await;
        let open = owned.open("in_use").await;
        assert_eq!(open["compose_hash"], row.compose_hash.to_string());
        assert_eq!(ComposeHash::of(open["app_compose"].as_str().unwrap().as_bytes()), row.compose_hash);
        owned.approve(&[2, 1], open["statement"].as_str().unwrap()).await;
        cloud.installation.call("POST", "/cvms/my-app-01/restart", Value::Null).await.expect(200);
        let row = cloud.at_rest(&owned.vm, CvmStatus::Running).await;
        assert_eq!(cloud.allowed(owned.app_id).await, [row.compose_hash.to_string()]);

        // An update waits for two different owners.
        let (token, approval) = owned.prepare(YAML).await;
        assert_eq!((&approval["threshold"], &approval["signed_by"]), (&json!(2), &json!([])));
        let statement = approval["statement"].as_str().unwrap();
        assert_eq!(owned.commit(&token).await.summary(), "468 ERR-01-008");
        for _ in 0..2 {
            let counted = owned.sign(0, statement).await.expect(200).json();
            assert_eq!(
                (&counted["is_approved"], counted["signed_by"].as_array().unwrap().len()),
                (&json!(false), 1)
            );
            assert_eq!(owned.commit(&token).await.summary(), "468 ERR-01-008");
        }
        let open = owned.open("prepared").await;
        assert_eq!((&open["statement"], &open["cvms"][0]["name"]), (&json!(statement), &json!("my-app-01")));
        assert_eq!(open["current_app_compose"], json!(row.app_compose));
        let document = open["app_compose"].as_str().unwrap();
        assert_eq!(open["compose_hash"], ComposeHash::of(document.as_bytes()).to_string());
        let asked = json!({"compose_hash": open["compose_hash"]});
        let asked = async || owned.call("POST", "/is-allowed", asked.clone()).await.expect(200).json();
        assert_eq!(asked().await["is_allowed"], false);
        let counted = owned.sign(1, statement).await.expect(200).json();
        assert_eq!(counted["is_approved"], true);
        assert_eq!(asked().await["is_allowed"], true);
        owned.commit(&token).await.expect(202);
        let row = cloud.at_rest(&owned.vm, CvmStatus::Running).await;
        assert_eq!(json!(row.compose_hash.to_string()), open["compose_hash"]);
        assert_eq!(cloud.allowed(owned.app_id).await, [row.compose_hash.to_string()]);
        assert_eq!(owned.commit(&token).await.summary(), "466 ERR-01-006");
        // A change of the size needs nothing more, and neither does another CVM of the same document.
        cloud.installation.call("PATCH", "/cvms/my-app-01", json!({"vcpu": 3})).await.expect(202);
        cloud.at_rest(&owned.vm, CvmStatus::Running).await;
        let replica = cloud.installation.call("POST", "/cvms/my-app-01/replicas", json!({})).await;
        let replica = replica.expect(200).json();
        assert_eq!(cloud.at_rest(&replica, CvmStatus::Running).await.compose_hash, row.compose_hash);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_signatures_of_owners_over_this_count() {
    for owned in Owned::both_with_owners().await {
        let hash = ComposeHash::of(b"wanted");
        let allow = owned.statement(Action::AllowComposeHash(hash), 7);
        let other_app = ApprovalStatement {
            app_id: AppId::from_bytes([9; 20]),
            action: Action::AllowComposeHash(hash),
            serial: 7,
        };
        let far = owned.statement(Action::AllowComposeHash(hash), (1 << 53) - 1);
        let unproposed = Owners::new(1, vec![Owner::new(0).key()]).unwrap().digest();
        let unproposed = owned.statement(Action::SetOwners(unproposed), 7);
        let own = |text: &str| Owner::new(0).sign_for(NAMESPACE, text);
        for (statement, signature, why) in [
            (allow.clone(), Owner::new(7).sign_for(NAMESPACE, &allow), "no owner's"),
            (allow.clone(), Owner::new(0).sign_for("file", &allow), "it was made for"),
            (allow.clone(), own("something else"), "signed something else"),
            (allow.clone(), "garbage".to_owned(), "not what `ssh-keygen"),
            (other_app.to_string(), own(&other_app.to_string()), "another application"),
            (far.clone(), own(&far), "future"),
            (unproposed.clone(), own(&unproposed), "nobody proposes"),
            (allow.replace("v1", "v2"), own(&allow), "not the text of an approval"),
            (allow.replace('\n', "\r\n"), own(&allow), "not the text of an approval"),
        ] {
            let refused =
                owned.call("POST", "/approvals", json!({"statement": statement, "signature": signature}));
            let refused = refused.await;
            assert_eq!(refused.summary(), "400 ERR-02-008", "{why}");
            assert!(refused.json()["message"].as_str().unwrap().contains(why), "{why}: {}", refused.text);
        }
        // Somebody of another workspace can neither look nor hand in what is right.
        let store = &owned.cloud.installation.app.store;
        let (_, _, stranger) = account(store, "stranger", "user", 7, 0).await;
        let right = json!({"statement": allow, "signature": own(&allow)});
        for (method, below, body) in [
            ("GET", "/owners", Value::Null),
            ("PUT", "/owners", body(1, &[7])),
            ("GET", "/approvals", Value::Null),
            ("POST", "/approvals", right.clone()),
            ("DELETE", &format!("/approvals/{hash}"), right.clone()),
        ] {
            let path = format!("/apps/{}{below}", owned.app_id);
            let key = [("x-api-key", stranger.as_str())];
            let refused = owned.cloud.installation.call_with(&key, method, &path, body).await;
            assert_eq!(refused.summary(), "404 plain", "{method} {below}");
        }
        let wrong = owned.call("DELETE", &format!("/approvals/{hash}"), right).await;
        assert_eq!(wrong.summary(), "400 ERR-02-008", "an approval is no revocation");
        for (body, field) in [
            (json!({"threshold": 0, "keys": [Owner::new(0).key().to_string()]}), "threshold"),
            (body(3, &[0, 1]), "threshold"),
            (body(1, &[0, 0]), "threshold"),
            (json!({"threshold": 1, "keys": []}), "threshold"),
            (json!({"threshold": 1, "keys": ["ssh-rsa AAAA"]}), "keys"),
        ] {
            let refused = owned.call("PUT", "/owners", body).await;
            assert_eq!(refused.summary(), "400 ERR-02-008");
            assert_eq!(refused.json()["details"][0]["field"], field, "{}", refused.text);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_owners_took_back_is_not_allowed_by_what_they_signed_before() {
    for owned in Owned::both_with_owners().await {
        let hash = owned.row().await.compose_hash;
        let before = owned.call("GET", "/approvals", Value::Null).await.expect(200).json();
        let next = before["next_serial"].as_u64().unwrap();
        let allow = owned.statement(Action::AllowComposeHash(hash), next - 1);
        let early = owned.statement(Action::RevokeComposeHash(hash), next - 1);
        assert_eq!(owned.sign(0, &early).await.summary(), "400 ERR-02-008");
        let revoke = owned.statement(Action::RevokeComposeHash(hash), next);
        let delete = async |number: u8| {
            let signature = Owner::new(number).sign_for(NAMESPACE, &revoke);
            let body = json!({"statement": revoke, "signature": signature});
            owned.call("DELETE", &format!("/approvals/{hash}"), body).await.expect(200).json()
        };
        // Once it runs, the service lets the application have the document.
        owned.cloud.installation.call("POST", "/cvms/my-app-01/restart", Value::Null).await.expect(200);
        owned.cloud.at_rest(&owned.vm, CvmStatus::Running).await;
        delete(2).await;
        assert_eq!(owned.cloud.allowed(owned.app_id).await, [hash.to_string()], "one of two");
        let open = owned.open("signed").await;
        assert_eq!((&open["action"], &open["statement"]), (&json!("revoke_compose_hash"), &json!(revoke)));
        for _ in 0..2 {
            let taken = delete(0).await;
            let signed = taken["signed_by"].as_array().unwrap().len();
            assert_eq!((&taken["is_approved"], signed), (&json!(true), 2), "{taken}");
        }
        assert!(owned.cloud.allowed(owned.app_id).await.is_empty());

        assert_eq!(owned.sign(2, &allow).await.summary(), "400 ERR-02-008", "replayed");
        owned.cloud.installation.call("POST", "/cvms/my-app-01/restart", Value::Null).await.expect(200);
        owned.assert_service_refused().await;
        let again = owned.open("in_use").await["statement"].as_str().unwrap().to_owned();
        assert!(serial(&again) > next);
        owned.approve(&[0, 1], &again).await;
        owned.cloud.installation.call("POST", "/cvms/my-app-01/restart", Value::Null).await.expect(200);
        owned.cloud.at_rest(&owned.vm, CvmStatus::Running).await;
        assert_eq!(owned.cloud.allowed(owned.app_id).await, [hash.to_string()]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_are_followed_by_those_whom_they_approve() {
    for owned in Owned::both_with_owners().await {
        let others = body(1, &[4, 5]);
        let asked = owned.call("PUT", "/owners", others.clone()).await;
        assert_eq!(asked.summary(), "465 ERR-01-005");
        let asked = asked.json();
        let approval =
            asked["details"].as_array().unwrap().iter().find(|detail| detail["field"] == "approval");
        let statement = approval.unwrap()["value"]["statement"].as_str().unwrap().to_owned();
        assert_eq!(owned.open("proposed").await["proposed_owners"]["threshold"], 1);
        // The new ones cannot make themselves owners, and one of the present ones is not enough.
        assert_eq!(owned.sign(4, &statement).await.summary(), "400 ERR-02-008");
        owned.approve(&[0, 0], &statement).await;
        assert_eq!(owned.call("PUT", "/owners", others.clone()).await.summary(), "465 ERR-01-005");
        owned.approve(&[1], &statement).await;
        let now = owned.call("PUT", "/owners", others).await.expect(200).json();
        assert_eq!((&now["threshold"], &now["serial"]), (&json!(1), &json!(serial(&statement))));
        assert_eq!(now["kms_statement"]["owners"]["threshold"], 1);

        let (token, approval) = owned.prepare(YAML).await;
        let statement = approval["statement"].as_str().unwrap();
        assert_eq!(owned.sign(0, statement).await.summary(), "400 ERR-02-008");
        owned.approve(&[5], statement).await;
        owned.commit(&token).await.expect(202);
        owned.cloud.at_rest(&owned.vm, CvmStatus::Running).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_who_edits_the_database_gets_no_keys_for_that() {
    for owned in Owned::both_with_owners().await {
        let store = &owned.cloud.installation.app.store;
        let before = owned.row().await.compose_hash;
        owned.cloud.installation.call("POST", "/cvms/my-app-01/restart", Value::Null).await.expect(200);
        owned.cloud.at_rest(&owned.vm, CvmStatus::Running).await;

        // The operator writes a key of theirs in the place of the owners', and signs with it.
        let mine = Owners::new(1, vec![Owner::new(9).key()]).unwrap();
        crate::store::tests::owners::forge(store, owned.app_id, &serde_json::to_string(&mine).unwrap()).await;
        let (token, approval) = owned.prepare(YAML).await;
        owned.approve(&[9], approval["statement"].as_str().unwrap()).await;
        owned.commit(&token).await.expect(202);
        owned.assert_service_refused().await;
        assert_eq!(owned.row().await.compose_hash, before);

        // Then they let it be forgotten that there are owners.
        crate::store::tests::owners::forget(store, owned.app_id).await;
        owned.update(YAML).await.expect(202);
        owned.assert_service_refused().await;
        assert_eq!(owned.cloud.allowed(owned.app_id).await, [before.to_string()]);
        // Whoever sets owners then finds those whom the service knows.
        let refused = owned.call("PUT", "/owners", body(1, &[9])).await;
        assert_eq!(refused.summary(), "465 ERR-01-005");
        let known = owned.call("GET", "/owners", Value::Null).await.expect(200).json();
        assert_eq!(
            (&known["threshold"], &known["kms_statement"]["owners"]["threshold"]),
            (&json!(2), &json!(2))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_are_not_set_while_nobody_could_enforce_it() {
    let mut owned = Owned::on(Installation::with_clock(Clock::system()).await).await;
    owned.cloud.stop_kms().await;
    let refused = owned.call("PUT", "/owners", body(1, &[0])).await;
    assert_eq!((refused.summary().as_str(), refused.header("retry-after")), ("503 plain", "5"));
    let none = owned.call("GET", "/owners", Value::Null).await.expect(200).json();
    assert_eq!((&none["threshold"], &none["kms_statement"]), (&json!(0), &Value::Null));
    assert!(none["kms_error"].as_str().unwrap().contains("local"));
    let signature = Owner::new(0).sign_for(NAMESPACE, "x");
    let early = owned.call("POST", "/approvals", json!({"statement": "x", "signature": signature})).await;
    assert_eq!(early.summary(), "409 plain");
}
