//! Documents and devices that a contract is asked about: it has no list that could be read.

use cloister_app_compose::ComposeHash;
use cloister_chain::{Address, AllowanceQuestion, B256, MAX_QUESTIONS};
use cloister_management_api::{DeviceAllowlist, RevisionPage};

use super::show::unanswered;
use super::{Network, Word};
use crate::api::{Client, read};
use crate::failure::Failure;

/// Most documents that are taken from a server, the newest ones.
const MAX_KNOWN_DOCUMENTS: usize = 1000;
/// Revisions of a page, and pages that are looked at for them.
const PAGE_SIZE: &str = "1000";
const MAX_PAGES: u32 = 5;
/// Most devices that are taken from a server.
const MAX_KNOWN_DEVICES: usize = 1000;

/// What a contract is asked about.
#[derive(Debug, Default)]
pub(super) struct Candidates(Vec<Candidate>);

#[derive(Debug)]
struct Candidate {
    kind: Kind,
    value: B256,
    known_as: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Document,
    Device,
}

/// What a contract says of one of them.
#[derive(Debug)]
pub(super) struct Asked {
    /// `document` or `device`.
    pub(super) kind: &'static str,
    /// Hash or id.
    pub(super) value: B256,
    /// Whether it is in the contract's list.
    pub(super) is_allowed: bool,
    /// What the server calls it; empty for what a person named.
    pub(super) known_as: String,
}

impl Candidates {
    /// Those that a person named.
    pub(super) fn named(hashes: &[ComposeHash], devices: &[Word]) -> Self {
        let mut candidates = Self::default();
        for hash in hashes {
            candidates.add(Kind::Document, B256::from(*hash.as_bytes()), String::new());
        }
        for device in devices {
            candidates.add(Kind::Device, device.0, String::new());
        }
        candidates
    }

    /// Adds the documents of an application's revisions, newest first, and the devices of a server's nodes.
    pub(super) async fn add_known(&mut self, app: Address, client: &Client) -> Result<(), Failure> {
        let app = hex::encode(app);
        let before = self.0.len();
        for page in 1..=MAX_PAGES {
            let number = page.to_string();
            let query = [("page", number.as_str()), ("page_size", PAGE_SIZE)];
            let page_of: RevisionPage = read(&client.get(&["apps", &app, "revisions"], &query).await?)?;
            for revision in page_of.revisions {
                if self.0.len() - before >= MAX_KNOWN_DOCUMENTS {
                    break;
                }
                let name = revision.cvm.and_then(|cvm| cvm.name).map(|name| format!(" of {name}"));
                let known_as = format!("{}{}", revision.revision_id, name.unwrap_or_default());
                self.add(Kind::Document, B256::from(*revision.compose_hash.as_bytes()), known_as);
            }
            if i64::from(page) >= page_of.total_pages {
                break;
            }
        }
        let list: DeviceAllowlist = read(&client.get(&["apps", &app, "device-allowlist"], &[]).await?)?;
        for device in list.devices.into_iter().take(MAX_KNOWN_DEVICES) {
            let value = device.device_id.parse();
            let value =
                value.map_err(|error| Failure::local("the server names a device that is none", error))?;
            self.add(Kind::Device, value, device.node_name.unwrap_or_default());
        }
        Ok(())
    }

    /// Each is asked about once, under the first name that it has.
    fn add(&mut self, kind: Kind, value: B256, known_as: String) {
        if !self.0.iter().any(|known| known.kind == kind && known.value == value) {
            self.0.push(Candidate { kind, value, known_as });
        }
    }

    /// What the contract says of each by itself.
    pub(super) async fn ask(self, network: &Network, app: Address) -> Result<Vec<Asked>, Failure> {
        let mut answers = Vec::with_capacity(self.0.len());
        for part in self.0.chunks(MAX_QUESTIONS) {
            let questions: Vec<_> = part.iter().map(Candidate::question).collect();
            answers.extend(network.chain.allowances(app, &questions).await.map_err(unanswered)?.results);
        }
        let asked = |(candidate, answer): (Candidate, cloister_chain::Allowance)| {
            let (kind, is_allowed) = match candidate.kind {
                Kind::Document => ("document", answer.compose_hash_allowed),
                Kind::Device => ("device", answer.device_id_allowed),
            };
            Asked { kind, value: candidate.value, is_allowed, known_as: candidate.known_as }
        };
        Ok(self.0.into_iter().zip(answers).map(asked).collect())
    }
}

impl Candidate {
    fn question(&self) -> AllowanceQuestion {
        match self.kind {
            Kind::Document => AllowanceQuestion { compose_hash: self.value.0, device_id: [0; 32] },
            Kind::Device => AllowanceQuestion { compose_hash: [0; 32], device_id: self.value.0 },
        }
    }
}
