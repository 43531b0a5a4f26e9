//! Copies of installations: what is done to one leaves the other as it is.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::Installation;
use crate::clock::Clock;
use crate::store::Store;

impl Installation {
    /// How this one is now, as another one on the same hardware: making a vendor's keys is most of the work.
    pub(super) async fn copy(&self) -> Self {
        let data = tempfile::tempdir().unwrap();
        copy(self.data.path(), data.path());
        let store = Store::open_file(&data.path().join("store.db")).await.unwrap();
        let clock = Clock::manual(self.app.clock.now());
        Self::over(store, clock, data, self.accounts.clone(), Arc::clone(&self.tee))
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let there = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir_all(&there).unwrap();
            copy(&entry.path(), &there);
        } else {
            fs::copy(entry.path(), there).unwrap();
        }
    }
}
