//! Platforms whose quotes verified: taking the same certificate chain apart again and again would cost as
//! much as a tenth of a verification.

use std::collections::HashMap;

use parking_lot::RwLock;

use crate::CollateralKey;

/// Most platforms that are remembered; a chain has about 4 KiB.
const MAX_PLATFORMS: usize = 512;

/// What chains say, by their exact bytes. Only chains of verified quotes enter.
#[derive(Debug, Default)]
pub(crate) struct KnownPlatforms(RwLock<HashMap<Box<[u8]>, CollateralKey>>);

impl KnownPlatforms {
    /// What a chain with exactly these bytes says.
    pub(super) fn get(&self, chain: &[u8]) -> Option<CollateralKey> {
        self.0.read().get(chain).copied()
    }

    /// Remembers a chain.
    pub(super) fn insert(&self, chain: &[u8], key: CollateralKey) {
        let mut known = self.0.write();
        if known.len() >= MAX_PLATFORMS {
            known.clear();
        }
        known.insert(chain.into(), key);
    }
}
