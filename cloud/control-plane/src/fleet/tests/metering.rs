//! What nodes say, and do not say, starts and ends meters.

use cloister_metering::{UsageType, Window};

use super::*;
use crate::store::{CvmRow, UsageScope};

const MINUTE_MS: i64 = 60_000;

struct Scene {
    installation: Installation,
    credentials: Credentials,
    endpoint: String,
    cvm: CvmRow,
    started_at: Timestamp,
}

impl Scene {
    /// A CVM that has just begun to run.
    async fn new() -> Self {
        let installation = installation().await;
        let store = installation.store();
        let mut ground = ground(store).await;
        let token = installation.control_plane.invite_node().await.unwrap();
        let credentials = installation.enrol(&token, "beta").await.1.unwrap();
        ground.node = store.node_by_name("beta").await.unwrap().unwrap().id;
        let (endpoint, _) = fake_node(&credentials).await;
        let cvm = cvm(store, &ground, 1, "web-1").await;
        let mut change = store.change().await.unwrap();
        change.set_cvm_status(cvm.id, CvmStatus::Running, installation.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
        let started_at = installation.clock.now();
        let scene = Self { installation, credentials, endpoint, cvm, started_at };
        scene.says(vec![scene.up()]).await;
        scene
    }

    fn up(&self) -> VmReport {
        VmReport { started_at: Some(self.started_at), ..vm(self.cvm.vm_uuid, VmState::Running, Some("done")) }
    }

    fn exited(&self, minutes_ago: i64) -> VmReport {
        let exited_at_ms = self.installation.clock.now_ms() - minutes_ago * MINUTE_MS;
        VmReport {
            started_at: Some(self.started_at),
            exited_at: Some(Timestamp::from_millisecond(exited_at_ms).unwrap()),
            ..vm(self.cvm.vm_uuid, VmState::Exited, None)
        }
    }

    fn pass(&self, minutes: i64) {
        self.installation.clock.advance_ms(minutes * MINUTE_MS);
    }

    async fn says(&self, vms: Vec<VmReport>) {
        let answer = self.installation.report(&self.credentials, &report(&self.endpoint, vms)).await;
        assert_eq!(answer.status(), StatusCode::OK);
    }

    /// Minutes of compute and of storage until now.
    async fn used(&self) -> (i64, i64) {
        let scope = UsageScope { workspace_id: self.cvm.workspace_id, app_id: Some(self.cvm.app_id) };
        let now_ms = self.installation.clock.now_ms();
        let store = self.installation.store();
        let statement = store.usage_statement(scope, Window::EVER, now_ms, 1000, 0).await.unwrap();
        let of = |usage_type| {
            let records = statement.records.iter().filter(|record| record.usage_type == usage_type);
            records.map(|record| record.minutes).sum()
        };
        (of(UsageType::Compute), of(UsageType::Storage))
    }

    async fn status(&self) -> CvmStatus {
        self.installation.store().cvm(self.cvm.id).await.unwrap().unwrap().status
    }
}

#[tokio::test]
async fn an_exit_counts_from_when_the_node_saw_it() {
    let scene = Scene::new().await;
    scene.pass(3);
    scene.says(vec![scene.up()]).await;
    scene.pass(4);
    scene.says(vec![scene.exited(2)]).await;
    assert_eq!(scene.status().await, CvmStatus::Stopped);
    scene.pass(4);
    scene.says(vec![scene.exited(6)]).await;
    assert_eq!(scene.used().await, (5, 11));
}

#[tokio::test]
async fn long_silence_is_free_although_the_vm_went_on() {
    let scene = Scene::new().await;
    scene.pass(4);
    scene.says(vec![scene.up()]).await;
    // A restart of the control plane, say.
    scene.pass(4);
    scene.says(vec![scene.up()]).await;
    assert_eq!(scene.used().await, (8, 8));
    scene.pass(60);
    scene.says(vec![scene.up()]).await;
    assert_eq!((scene.used().await, scene.status().await), ((8, 8), CvmStatus::Running));
    scene.pass(2);
    assert_eq!(scene.used().await, (10, 10));
}

#[tokio::test]
async fn a_vm_that_ended_in_the_silence_stays_off_and_keeps_its_disk() {
    let scene = Scene::new().await;
    scene.pass(60);
    scene.says(vec![scene.exited(50)]).await;
    assert_eq!(scene.status().await, CvmStatus::Stopped);
    scene.pass(3);
    assert_eq!(scene.used().await, (0, 3));
}

#[tokio::test]
async fn a_vm_that_its_node_does_not_know_is_not_charged_for() {
    let scene = Scene::new().await;
    scene.pass(4);
    scene.says(vec![scene.up()]).await;
    scene.pass(2);
    scene.says(vec![]).await;
    assert_eq!((scene.used().await, scene.status().await), ((4, 4), CvmStatus::Error));
    scene.pass(4);
    scene.says(vec![scene.up()]).await;
    assert_eq!((scene.used().await, scene.status().await), ((4, 4), CvmStatus::Running));
    scene.pass(1);
    assert_eq!(scene.used().await, (5, 5));
}
