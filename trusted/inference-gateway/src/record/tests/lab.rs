//! A store in a directory of its own, with a clock that the test turns.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use cloister_verifier::Clock;
use jiff::Timestamp;
use redb::{Database, ReadableTable as _, WriteTransaction};
use tempfile::TempDir;

use crate::admission::KeyHash;
use crate::record::age::Times;
use crate::record::codec::put;
use crate::record::frame::ROOM;
use crate::record::rows;
use crate::record::tables::{COUNTERS, JOURNAL_OFFSET, JOURNAL_SEGMENT, ROWS};
use crate::record::{Backing, Finished, KeptReceipt, OpenError, Row, Settings, Store};
use crate::upstream::fake::until;

/// When tests begin, in seconds since the Unix epoch.
pub(super) const START: u64 = 1_750_000_000;

/// A store whose time the test makes.
pub(super) struct Lab {
    pub(super) dir: TempDir,
    now: Arc<AtomicI64>,
    /// By how much the clock is wrong, in seconds.
    wrong: Arc<AtomicI64>,
    pub(super) settings: Settings,
}

impl Lab {
    pub(super) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            now: Arc::new(AtomicI64::new(START.cast_signed())),
            wrong: Arc::default(),
            settings: Settings {
                receipts_s: 1000,
                rows_s: 5000,
                posted_rows_s: 500,
                is_posting: false,
                is_logging: false,
            },
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub(super) fn clock(&self) -> Clock {
        let (now, wrong) = (Arc::clone(&self.now), Arc::clone(&self.wrong));
        Clock::from_fn(move || {
            let shown = now.load(Ordering::Relaxed) + wrong.load(Ordering::Relaxed);
            Timestamp::from_second(shown).unwrap()
        })
    }

    /// The clock, and a watch that is right.
    pub(super) fn times(&self) -> Times {
        let now = Arc::clone(&self.now);
        let passed = move || now.load(Ordering::Relaxed).abs_diff(START.cast_signed());
        Times::new(self.clock(), move || Duration::from_secs(passed()))
    }

    pub(super) fn open(&self) -> Store {
        self.try_open().unwrap()
    }

    pub(super) fn try_open(&self) -> Result<Store, OpenError> {
        Store::open_with(&self.path(), self.settings, self.times(), Backing::file())
    }

    /// Changes the database of a store that is closed by hand.
    pub(super) fn edit(&self, change: impl FnOnce(&WriteTransaction)) {
        let database = Database::open(self.path().join("records.redb")).unwrap();
        let transaction = database.begin_write().unwrap();
        change(&transaction);
        transaction.commit().unwrap();
    }

    /// Files of the journal, by number.
    pub(super) fn segments(&self) -> BTreeMap<u64, PathBuf> {
        let entries = std::fs::read_dir(self.path().join("journal")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.map(|path| (path.file_name().unwrap().to_str().unwrap().parse().unwrap(), path)).collect()
    }

    /// The journal loses what the database does not have.
    pub(super) fn lose_power(&self) {
        let mut position = [0, 0];
        self.edit(|transaction| {
            let counters = transaction.open_table(COUNTERS).unwrap();
            position =
                [JOURNAL_SEGMENT, JOURNAL_OFFSET].map(|name| counters.get(name).unwrap().unwrap().value());
        });
        let [segment, offset] = position;
        for (number, path) in self.segments() {
            if number == segment {
                // Its length may have come to the disk sooner.
                let mut bytes = std::fs::read(&path).unwrap();
                bytes[usize::try_from(offset).unwrap()..].fill(ROOM);
                std::fs::write(path, bytes).unwrap();
            } else if number > segment {
                std::fs::remove_file(path).unwrap();
            }
        }
    }

    /// Waits until all that was acknowledged is in the database.
    pub(super) async fn settled(&self, store: &Store) {
        until(|| store.shared().pending.read().is_empty()).await;
    }

    pub(super) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed).cast_unsigned()
    }

    pub(super) fn pass(&self, seconds: u64) {
        self.now.fetch_add(seconds.cast_signed(), Ordering::Relaxed);
    }

    /// The clock is wrong by so much from now on, in seconds.
    pub(super) fn jump(&self, wrong: i64) {
        self.wrong.store(wrong, Ordering::Relaxed);
    }
}

impl Store {
    /// Makes usage rows unreadable that are in the database.
    pub(crate) fn damage_rows(&self, numbers: &[u64]) {
        let damaged = self.shared().disk.write(|transaction| {
            let mut blocks = transaction.open_table(ROWS)?;
            for number in numbers {
                let block = blocks.range(..=*number)?.next_back().transpose()?;
                let (first, block) =
                    block.map(|(first, block)| (first.value(), block.value().to_vec())).unwrap();
                let mut damaged = block[..rows::COUNT_BYTES].to_vec();
                for (at, row) in rows::of_block(first, &block) {
                    put(&mut damaged, if at == *number { b"?" } else { row });
                }
                blocks.insert(first, &damaged[..])?;
            }
            Ok(())
        });
        damaged.unwrap();
    }

    /// How many sessions are held.
    pub(crate) fn held_sessions(&self) -> usize {
        self.shared().holds.names().len()
    }
}

/// A row that costs something.
pub(super) fn row(request: &str, cost: &str, ended_at: u64) -> Row {
    Row {
        request_id: request.to_owned(),
        endpoint: "/v1/chat/completions".to_owned(),
        status: 200,
        duration_ms: 12,
        ttft_ms: Some(7),
        is_streaming: true,
        attempt_index: 0,
        selected_route_id: Some("one:vendor/model".to_owned()),
        request_model: "vendor/model".to_owned(),
        usage: Some(serde_json::value::to_raw_value(&serde_json::json!({"prompt_tokens": 3})).unwrap()),
        prompt_tokens: 3,
        completion_tokens: 0,
        cost: cost.parse().unwrap(),
        pricing: None,
        spend_mode: None,
        user_id: None,
        virtual_key_id: None,
        error_source: None,
        error_message: None,
        prefix_hash: None,
        ended_at,
        is_last: true,
    }
}

/// A receipt with a document of its own.
pub(super) fn receipt(id: &str, chat: Option<&str>, served_at: u64) -> KeptReceipt {
    KeptReceipt {
        id: id.to_owned(),
        chat_id: chat.map(str::to_owned),
        session_id: None,
        document: document(id),
        served_at,
    }
}

pub(super) fn document(id: &str) -> Vec<u8> {
    format!(r#"{{"receipt_id":"{id}"}}"#).into_bytes()
}

/// A request with a row and a receipt.
pub(super) fn finished(key: KeyHash, name: &str, cost: &str, at: u64) -> Finished {
    Finished {
        key,
        rows: vec![row(&format!("req_{name}"), cost, at)],
        receipt: Some(receipt(&format!("rcpt-{name}"), Some(&format!("req_{name}")), at)),
    }
}
