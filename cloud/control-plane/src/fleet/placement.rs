//! Which node takes a CVM. Pure: nodes in, a choice or the reasons why none fits out; equal input gives the
//! equal choice, whatever the order of the nodes.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

use cloister_app_compose::OsImageHash;
use cloister_node_api::NodeImage;

use super::gpus::GpuNeed;
use super::standing::{NodeStanding, Refusal, Requirements};

/// Which guest image a CVM boots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageWish {
    /// Exactly this one.
    pub hash: Option<OsImageHash>,
    /// One of this name.
    pub name: Option<String>,
    /// Only a development image, or only another one.
    pub dev: Option<bool>,
}

/// Nodes whose devices the application's contract allows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceWish {
    /// These.
    pub nodes: BTreeSet<i64>,
    /// Whether it has to be one of them; otherwise they only come first.
    pub is_required: bool,
}

/// A CVM that looks for a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// What it needs; its image comes from `image`.
    pub needs: Requirements,
    /// What it boots.
    pub image: ImageWish,
    /// Only this node, offered to everybody or not.
    pub node: Option<i64>,
    /// Only nodes of this region; case does not matter.
    pub region: Option<String>,
    /// Never this node.
    pub avoid: Option<i64>,
    /// How many CVMs of its application each node has: it goes where the fewest are.
    pub siblings: BTreeMap<i64, i64>,
    /// On which devices it may run, where a contract says so.
    pub devices: Option<DeviceWish>,
}

/// The node for a CVM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Number of the node.
    pub node_id: i64,
    /// What the CVM boots.
    pub image: NodeImage,
    /// PCI addresses of the GPUs that it gets.
    pub gpus: Vec<String>,
}

/// A node that does not fit, with everything that speaks against it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Number of the node.
    pub node_id: i64,
    /// Its name.
    pub name: String,
    /// The weightiest reason first.
    pub reasons: Vec<Refusal>,
}

/// No node fits.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.summary())]
pub struct NoNodeFits {
    /// The nodes that were looked at, by number: the named one, else those that are offered to everybody.
    pub rejected: Vec<Rejected>,
}

impl NoNodeFits {
    /// How many nodes were refused for which reason, for people.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut counts: BTreeMap<&Refusal, usize> = BTreeMap::new();
        for reason in self.rejected.iter().flat_map(|node| &node.reasons) {
            *counts.entry(reason).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(reason, count)| (Reverse(*count), *reason));
        let all = self.rejected.len();
        let reasons: Vec<_> =
            counts.iter().map(|(reason, count)| format!("{count} of {all} {reason}")).collect();
        if reasons.is_empty() { "no node is offered".to_owned() } else { reasons.join("; ") }
    }
}

impl Demand {
    /// Chooses a node. Among those that fit it is one whose device is allowed, then the one with the fewest CVMs of the application, then one
    /// whose GPUs are not wasted, then the one with the most room, then the one with the lowest number.
    pub fn place<'n>(&self, nodes: impl IntoIterator<Item = &'n NodeStanding>) -> Result<Choice, NoNodeFits> {
        let mut best: Option<(Rank, &NodeStanding, &NodeImage)> = None;
        let nodes: Vec<_> = nodes.into_iter().filter(|node| self.considers(node)).collect();
        for node in &nodes {
            let rank = self.rank(node);
            let is_better = best.as_ref().is_none_or(|(other, ..)| rank.cmp(other) == Ordering::Greater);
            // To rank a node is far cheaper than to look whether it fits.
            if is_better && let Ok(image) = self.fit(node) {
                best = Some((rank, node, image));
            }
        }
        let chosen = best.and_then(|(_, node, image)| {
            let gpus = node.choose_gpus(&self.needs.gpus, image.is_dev).ok()?;
            Some(Choice { node_id: node.node.id, image: image.clone(), gpus })
        });
        // Why none fits is put into words only when somebody wants to know.
        chosen.ok_or_else(|| {
            let mut rejected: Vec<_> = nodes.iter().filter_map(|node| self.rejection(node)).collect();
            rejected.sort_by_key(|node| node.node_id);
            NoNodeFits { rejected }
        })
    }

    /// The nodes that fit, whatever their devices are: the best ones first, at most `limit`.
    pub fn fitting<'n>(&self, nodes: impl IntoIterator<Item = &'n NodeStanding>, limit: usize) -> Vec<i64> {
        let anywhere = Self { devices: None, ..self.clone() };
        let fits = |node: &&NodeStanding| anywhere.considers(node) && anywhere.fit(node).is_ok();
        let mut ranks: Vec<Rank> = nodes.into_iter().filter(fits).map(|node| anywhere.rank(node)).collect();
        ranks.sort_by(|one, other| other.cmp(one));
        ranks.into_iter().take(limit).map(|rank| rank.node_id).collect()
    }

    fn rejection(&self, node: &NodeStanding) -> Option<Rejected> {
        let reasons = self.fit(node).err()?;
        Some(Rejected { node_id: node.node.id, name: node.node.name.clone(), reasons })
    }

    /// Whether a node comes into question at all; what does not is not spoken of either.
    fn considers(&self, node: &NodeStanding) -> bool {
        self.avoid != Some(node.node.id)
            && self.node.map_or(node.node.listed != 0, |wanted| wanted == node.node.id)
    }

    fn fit<'n>(&self, node: &'n NodeStanding) -> Result<&'n NodeImage, Vec<Refusal>> {
        let image = self.image_of(node);
        let needs = Requirements {
            os_image_hash: None,
            // Whether they fit depends on the image.
            gpus: GpuNeed::None,
            ..self.needs
        };
        let lacks = node.refusals(&needs);
        if lacks.iter().any(Refusal::closes_node) {
            return Err(lacks);
        }
        // GPUs are what is scarcest, so they are spoken of first.
        let is_dev = image.as_ref().is_ok_and(|image| image.is_dev);
        let mut reasons: Vec<_> = node.choose_gpus(&self.needs.gpus, is_dev).err().into_iter().collect();
        reasons.extend(lacks);
        reasons.extend(self.other_region(node));
        reasons.extend(image.as_ref().err().cloned());
        reasons.extend(self.other_device(node));
        match image {
            Ok(image) if reasons.is_empty() => Ok(image),
            _ => Err(reasons),
        }
    }

    fn other_region(&self, node: &NodeStanding) -> Option<Refusal> {
        let wanted = self.region.as_ref()?;
        let here = node.report.as_ref().map(|report| report.region.as_str()).unwrap_or_default();
        (!here.eq_ignore_ascii_case(wanted)).then_some(Refusal::Region)
    }

    fn other_device(&self, node: &NodeStanding) -> Option<Refusal> {
        let wish = self.devices.as_ref().filter(|wish| wish.is_required)?;
        (!wish.nodes.contains(&node.node.id)).then_some(Refusal::Device)
    }

    /// The newest image of the wanted name and kind. Without a wish about the kind, development images come
    /// first; images for GPUs are for CVMs that have one, and for others only where nothing else is.
    fn image_of<'n>(&self, node: &'n NodeStanding) -> Result<&'n NodeImage, Refusal> {
        let wish = &self.image;
        let with_gpu = self.needs.gpus.is_some();
        let named = |image: &&NodeImage| {
            wish.hash.is_none_or(|hash| hash == image.os_image_hash)
                && wish.name.as_ref().is_none_or(|name| *name == image.name)
        };
        let of_kind = |image: &&NodeImage| {
            wish.dev.is_none_or(|dev| dev == image.is_dev) && (image.supports_gpu || !with_gpu)
        };
        let key = |image: &&NodeImage| {
            (image.supports_gpu == with_gpu, image.is_dev, version(&image.version), image.os_image_hash)
        };
        let found = node.offered_images().filter(named).filter(of_kind).max_by_key(key);
        found.ok_or_else(|| {
            let is_named = wish.hash.is_some() || wish.name.is_some();
            let is_missing = is_named && !node.offered_images().any(|image| named(&image));
            if is_missing { Refusal::Image } else { Refusal::NoFittingImage }
        })
    }

    fn rank(&self, node: &NodeStanding) -> Rank {
        let siblings = self.siblings.get(&node.node.id).copied().unwrap_or_default();
        let wastes_gpus = !self.needs.gpus.is_some() && node.free_gpus().next().is_some();
        let is_allowed = self.devices.as_ref().is_none_or(|wish| wish.nodes.contains(&node.node.id));
        Rank { is_allowed, siblings, wastes_gpus, score: node.resource_score(), node_id: node.node.id }
    }
}

impl Refusal {
    /// Whether the node takes nothing at all, so that nothing else needs to be said.
    const fn closes_node(&self) -> bool {
        matches!(self, Self::Offline | Self::Maintenance | Self::Draining)
    }
}

/// How good a node is; the greatest wins.
struct Rank {
    is_allowed: bool,
    siblings: i64,
    wastes_gpus: bool,
    score: f64,
    node_id: i64,
}

impl Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        let allowed = self.is_allowed.cmp(&other.is_allowed);
        let fewer = other.siblings.cmp(&self.siblings);
        let thriftier = other.wastes_gpus.cmp(&self.wastes_gpus);
        let roomier = self.score.total_cmp(&other.score);
        allowed.then(fewer).then(thriftier).then(roomier).then(other.node_id.cmp(&self.node_id))
    }
}

/// The numbers of a dotted version.
#[must_use]
pub fn version(text: &str) -> Vec<u32> {
    text.split('.').map(|number| number.parse().unwrap_or(0)).collect()
}
