//! Which CVM has its data under which root.
//!
//! The release log is the journal of this table: what happened after the state was last written is read
//! from the log again at start. So a release writes no state.

use std::collections::BTreeMap;

use cloister_app_compose::{AppId, InstanceId};
use cloister_kms_api::admin::PendingCvm;
use cloister_kms_api::log::{Event, Record, Released};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A CVM, or all CVMs of an application that have no identity of their own.
pub(crate) type Holder = (AppId, Option<InstanceId>);

/// What is known of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holding {
    /// The oldest root under which it may have data.
    pub(crate) root_version: u32,
    /// When it last got keys.
    pub(crate) last_seen: Timestamp,
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Holders(BTreeMap<Holder, Holding>);

#[derive(Serialize, Deserialize)]
struct Row(AppId, Option<InstanceId>, u32, i64);

impl Holders {
    /// `holder` got keys. One that was never seen may have data under any root that still has keys: its
    /// environment was sealed before it first booted.
    pub(crate) fn seen(&mut self, holder: Holder, oldest_live: u32, at: Timestamp) {
        self.0
            .entry(holder)
            .and_modify(|holding| holding.last_seen = holding.last_seen.max(at))
            .or_insert(Holding { root_version: oldest_live, last_seen: at });
    }

    /// `holder` has nothing under roots older than `version`. CVMs without an identity of their own are one
    /// holder: what one of them says of its data is not true of the others', so their place does not change.
    pub(crate) fn resealed(&mut self, holder: Holder, version: u32, at: Timestamp) {
        if holder.1.is_none() {
            return;
        }
        let holding = self.0.entry(holder).or_insert(Holding { root_version: version, last_seen: at });
        holding.root_version = holding.root_version.max(version);
        holding.last_seen = holding.last_seen.max(at);
    }

    /// Whether something is known of `holder`.
    pub(crate) fn knows(&self, holder: &Holder) -> bool {
        self.0.contains_key(holder)
    }

    /// `holder` is gone, unless it got keys after `seen_until`. Times are kept in milliseconds.
    pub(crate) fn forget(&mut self, holder: &Holder, seen_until: Timestamp) {
        let gone = |holding: &Holding| holding.last_seen.as_millisecond() <= seen_until.as_millisecond();
        if self.0.get(holder).is_some_and(gone) {
            self.0.remove(holder);
        }
    }

    /// What a record of the log says about holders.
    pub(crate) fn replay(&mut self, record: &Record, oldest_live: u32) {
        if let Event::CvmForgotten { app_id, instance_id, seen_until } = &record.event {
            return self.forget(&(*app_id, *instance_id), *seen_until);
        }
        let Event::Release { released, caller, root_version, .. } = &record.event else { return };
        let Some(app_id) = caller.app_id else { return };
        let holder = (app_id, caller.instance_id);
        match released {
            Released::AppKeys => self.seen(holder, oldest_live, record.at),
            Released::ResealConfirmed => self.resealed(holder, *root_version, record.at),
            Released::NamedKey | Released::Certificate | Released::Roots => {}
        }
    }

    /// Those with data under roots before `current`: how many, the first `most` of them, and how many have
    /// none.
    pub(crate) fn pending(&self, current: u32, most: usize) -> (Vec<PendingCvm>, u64, u64) {
        let (mut pending, mut total, mut resealed) = (Vec::new(), 0, 0);
        for ((app_id, instance_id), holding) in &self.0 {
            if holding.root_version >= current {
                resealed += 1;
                continue;
            }
            total += 1;
            if pending.len() < most {
                pending.push(PendingCvm {
                    app_id: *app_id,
                    instance_id: *instance_id,
                    root_version: holding.root_version,
                    last_seen: holding.last_seen,
                });
            }
        }
        (pending, total, resealed)
    }

    /// How many have data under `version` or an older root.
    pub(crate) fn under(&self, version: u32) -> u64 {
        self.0.values().filter(|holding| holding.root_version <= version).count() as u64
    }

    /// Forgets those with data under `version` or an older root: it is lost, and when they come back they
    /// begin anew.
    pub(crate) fn abandon(&mut self, version: u32) {
        self.0.retain(|_, holding| holding.root_version > version);
    }
}

impl Serialize for Holders {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|((app_id, instance_id), holding)| {
            Row(*app_id, *instance_id, holding.root_version, holding.last_seen.as_millisecond())
        }))
    }
}

impl<'de> Deserialize<'de> for Holders {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rows = Vec::<Row>::deserialize(deserializer)?;
        let entries = rows.into_iter().map(|Row(app_id, instance_id, root_version, seen)| {
            let last_seen = Timestamp::from_millisecond(seen).map_err(serde::de::Error::custom)?;
            Ok(((app_id, instance_id), Holding { root_version, last_seen }))
        });
        entries.collect::<Result<_, _>>().map(Self)
    }
}
