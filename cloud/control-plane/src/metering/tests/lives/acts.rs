//! Acts as transactions of what does them, and what each means to the model.

use cloister_metering::{Billed, UsageType};

use super::plans::{Act, Outcome};
use super::{Do, Life, PRODUCT, SERVED, SLOT, World};
use crate::metering::round;
use crate::metering::tests::{MINUTE, prices, up};
use crate::operations::CvmStatus;
use crate::store::ObservedVm;

impl World {
    pub(super) async fn act(&mut self, index: usize, act: Act) {
        let Life { status, is_up, is_known, .. } = self.lives[index];
        match act {
            Act::Start { succeeds } if !is_up => {
                self.status(index, CvmStatus::Starting).await;
                self.boot(index, succeeds).await;
            }
            Act::Stop { silently } => {
                self.status(index, CvmStatus::Stopping).await;
                if is_up && !silently {
                    self.ends(index).await;
                }
                let now_ms = self.status(index, CvmStatus::Stopped).await;
                self.life(index).is_up = false;
                self.life(index).taps.off(&SERVED, now_ms, now_ms);
            }
            Act::Restart { succeeds } if is_up => {
                self.status(index, CvmStatus::Restarting).await;
                self.ends(index).await;
                self.boot(index, succeeds).await;
            }
            Act::Resize { vcpu, disk, outcome } => self.resize(index, vcpu, disk, outcome).await,
            Act::Exit if is_up && status == CvmStatus::Running => {
                self.ends(index).await;
                self.status(index, CvmStatus::Stopped).await;
            }
            Act::Lie if is_up => {
                let seen = ObservedVm { boot_progress: Some("pulling".to_owned()), ..up(0) };
                self.transact(index, Do::Observe(seen)).await;
                self.transact(index, Do::Observe(up(0))).await;
            }
            Act::Vanish if is_known => {
                let since_ms = self.clock.now_ms();
                if status == CvmStatus::Running {
                    self.status(index, CvmStatus::Error).await;
                }
                let now_ms = self.transact(index, Do::Lose(since_ms)).await;
                self.lost(index, since_ms, now_ms);
                self.life(index).is_up = false;
            }
            Act::Delete => {
                self.status(index, CvmStatus::Removing).await;
                let now_ms = self.transact(index, Do::Delete).await;
                let life = self.life(index);
                life.taps.off(&UsageType::ALL, now_ms, now_ms);
                (life.is_deleted, life.is_up) = (true, false);
            }
            Act::Silence { minutes } => self.silence(minutes).await,
            Act::Reprice { cents } => self.reprice(cents).await,
            Act::Start { .. } | Act::Restart { .. } | Act::Exit | Act::Lie | Act::Vanish => {}
        }
    }

    async fn boot(&mut self, index: usize, succeeds: bool) {
        self.boots(index).await;
        if succeeds {
            self.comes_up(index).await;
            self.runs(index).await;
        } else {
            self.ends(index).await;
            self.status(index, CvmStatus::Error).await;
        }
    }

    async fn resize(&mut self, index: usize, vcpu: i64, disk: i64, outcome: Outcome) {
        let Life { is_up, ref resources, .. } = self.lives[index];
        let (old, mut new) = (resources.clone(), resources.clone());
        new.vcpu = u32::try_from(vcpu).unwrap();
        new.disk_gb += u32::try_from(disk).unwrap();
        self.status(index, CvmStatus::Updating).await;
        if !is_up {
            self.apply(index, new).await;
            self.status(index, CvmStatus::Stopped).await;
            return;
        }
        self.ends(index).await;
        self.apply(index, new.clone()).await;
        self.boots(index).await;
        self.comes_up(index).await;
        match outcome {
            Outcome::Healthy => self.runs(index).await,
            // It is up: what it does badly it does on what it was given.
            Outcome::KeptInError => drop(self.status(index, CvmStatus::Error).await),
            Outcome::RolledBack => {
                self.ends(index).await;
                // A disk does not shrink.
                self.apply(index, Billed { disk_gb: new.disk_gb, ..old }).await;
                self.boots(index).await;
                self.comes_up(index).await;
                self.runs(index).await;
            }
        }
    }

    async fn apply(&mut self, index: usize, resources: Billed) {
        let now_ms = self.transact(index, Do::Apply(resources.clone())).await;
        self.life(index).resources = resources;
        if self.lives[index].is_created && self.lives[index].is_known {
            self.stores(index, now_ms);
        }
    }

    fn lost(&mut self, index: usize, since_ms: i64, now_ms: i64) {
        let life = self.life(index);
        life.is_known = false;
        life.taps.off(&UsageType::ALL, since_ms, now_ms);
    }

    /// All CVMs are on the node.
    async fn silence(&mut self, minutes: i64) {
        let reported_ms = self.clock.now_ms();
        let mut change = self.store.change().await.unwrap();
        let text = format!(r#"{{"gpus":[{{"slot":"{SLOT}","product_id":"{PRODUCT}"}}]}}"#);
        change.put_node_report(self.ground.node, &text, reported_ms).await.unwrap();
        change.commit().await.unwrap();
        self.clock.advance_ms(minutes * MINUTE);
        let now_ms = self.clock.now_ms();
        self.latest_ms = self.latest_ms.max(now_ms);
        round(&self.store, &self.clock, true).await.unwrap();
        let silent: Vec<usize> = (0..self.lives.len())
            .filter(|index| !self.lives[*index].is_deleted && self.lives[*index].is_known)
            .collect();
        if minutes < 5 {
            return;
        }
        for index in silent {
            if self.lives[index].is_created {
                self.lost(index, reported_ms, now_ms);
            }
            if self.lives[index].is_up {
                self.comes_up(index).await;
            } else {
                self.ends(index).await;
            }
        }
    }

    async fn reprice(&mut self, cents: u32) {
        self.store = self.store.clone().with_prices(prices(cents));
        let now_ms = self.clock.now_ms();
        self.store.apply_prices(&format!("{cents}-{}", self.next_gap), now_ms).await.unwrap();
        for index in 0..self.lives.len() {
            let served = self.life(index).taps.of(UsageType::Compute).is_on();
            if self.life(index).taps.of(UsageType::Storage).is_on() {
                self.stores(index, now_ms);
            }
            if served {
                self.serves(index, now_ms);
            }
        }
    }
}
