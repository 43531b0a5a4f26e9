//! What can be asked of a chain's contracts.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256};
use cloister_contracts::AppBootInfo;
use cloister_contracts::lens::{
    Account, Allowances, AllowancesAnswer, AppState, AppStateAnswer, KmsState, KmsStateAnswer, MAX_KEYS,
    SafeState, SafeWallet, Verdict, VerdictQuestion,
};

use crate::answers::{
    Allowance, AllowanceQuestion, AppAllowances, AppContractView, Decision, KmsContractView, KmsInfo,
};
use crate::error::{ChainError, printable};
use crate::reader::{Both, Chain};

/// Most questions of one call to [`Chain::allowances`].
pub const MAX_QUESTIONS: usize = 1000;
/// What a refusal says that the newest block does not give a reason for.
const NOT_CONFIRMED: &str = "allowed, but not confirmed yet";

impl Chain {
    /// What the contract of the application at `app` allows; at most [`MAX_QUESTIONS`] questions. One round trip if
    /// the head is known, at most three unless the chain was reorganised meanwhile.
    pub async fn allowances(
        &self,
        app: Address,
        questions: &[AllowanceQuestion],
    ) -> Result<AppAllowances, ChainError> {
        if questions.len() > MAX_QUESTIONS {
            return Err(ChainError::TooMuch { what: "pairs of document and device", limit: MAX_QUESTIONS });
        }
        let hashes = Distinct::of(questions.iter().map(|question| question.compose_hash));
        let devices = Distinct::of(questions.iter().map(|question| question.device_id));
        let inquiries = inquiries(app, &hashes.words, &devices.words);
        let Both { at, confirmed, latest } = self.ask(&inquiries).await?;
        let (confirmed, latest) = (merged(confirmed), merged(latest));
        let allow_any_device = confirmed.allow_any_device && latest.allow_any_device;
        let results = questions.iter().map(|question| {
            let in_both = |of: fn(&AllowancesAnswer) -> &Vec<bool>, at: Option<usize>| {
                let is_set = |answer| at.and_then(|at| of(answer).get(at)).copied().unwrap_or(false);
                is_set(&confirmed) && is_set(&latest)
            };
            let compose_hash_allowed =
                in_both(|a| &a.compose_hashes, hashes.position(&question.compose_hash));
            let device_id_allowed = in_both(|a| &a.device_ids, devices.position(&question.device_id));
            // Any device before and this device now, or the reverse: allowed at both blocks.
            let device_at = |answer: &AllowancesAnswer| {
                let listed = devices.position(&question.device_id).and_then(|at| answer.device_ids.get(at));
                answer.allow_any_device || listed.copied().unwrap_or(false)
            };
            let is_allowed = compose_hash_allowed && device_at(&confirmed) && device_at(&latest);
            Allowance { compose_hash_allowed, device_id_allowed, is_allowed }
        });
        let results = results.collect();
        let is_contract = confirmed.is_contract && latest.is_contract;
        Ok(AppAllowances { is_contract, allow_any_device, results, at })
    }

    /// Whether the KMS contract lets the application of `boot` have its keys.
    pub async fn is_app_allowed(
        &self,
        kms_contract: Address,
        boot: &AppBootInfo,
    ) -> Result<Decision, ChainError> {
        self.verdict(VerdictQuestion { kms_contract, for_roots: false, boot: boot.clone() }).await
    }

    /// Whether the KMS contract lets the KMS of `boot` have the roots.
    pub async fn is_kms_allowed(
        &self,
        kms_contract: Address,
        boot: &AppBootInfo,
    ) -> Result<Decision, ChainError> {
        self.verdict(VerdictQuestion { kms_contract, for_roots: true, boot: boot.clone() }).await
    }

    async fn verdict(&self, question: VerdictQuestion) -> Result<Decision, ChainError> {
        let Both { at, confirmed, latest } = self.ask(&[question]).await?;
        let (Some(confirmed), Some(latest)) = (confirmed.first(), latest.first()) else {
            return Err(self.nobody());
        };
        let is_allowed = confirmed.is_allowed && latest.is_allowed;
        let reason = match (confirmed, latest) {
            (_, Verdict { is_allowed: false, reason }) => printable(reason),
            (Verdict { is_allowed: false, .. }, _) => NOT_CONFIRMED.to_owned(),
            _ => String::new(),
        };
        Ok(Decision { is_allowed, reason, at })
    }

    /// What a KMS contract says about itself, and which of the given devices, OS images and measurements it allows; at
    /// most [`MAX_QUESTIONS`] together.
    pub async fn kms_contract(
        &self,
        kms_contract: Address,
        devices: &[[u8; 32]],
        os_images: &[[u8; 32]],
        aggregated_mrs: &[[u8; 32]],
    ) -> Result<KmsContractView, ChainError> {
        let count = devices.len().saturating_add(os_images.len()).saturating_add(aggregated_mrs.len());
        if count > MAX_QUESTIONS {
            return Err(ChainError::TooMuch {
                what: "devices, images and measurements",
                limit: MAX_QUESTIONS,
            });
        }
        let words = |keys: &[[u8; 32]]| keys.iter().copied().map(B256::from).collect();
        let inquiry = KmsState {
            kms_contract,
            devices: words(devices),
            os_images: words(os_images),
            aggregated_mrs: words(aggregated_mrs),
        };
        let Both { at, confirmed, latest } = self.ask(&[inquiry]).await?;
        let (Some(state), Some(latest)) = (confirmed.into_iter().next(), latest.into_iter().next()) else {
            return Err(self.nobody());
        };
        let both = |of: fn(&KmsStateAnswer) -> &Vec<bool>| {
            of(&state).iter().zip(of(&latest)).map(|(then, now)| *then && *now).collect()
        };
        Ok(KmsContractView {
            has_code: state.account == Account::Contract,
            owner: state.owner,
            pending_owner: state.pending_owner,
            devices_allowed: both(|answer| &answer.devices),
            os_images_allowed: both(|answer| &answer.os_images),
            aggregated_mrs_allowed: both(|answer| &answer.aggregated_mrs),
            kms_info: state.kms_info.map(|info| KmsInfo {
                k256_public_key: info.k256Pubkey,
                ca_public_key: info.caPubkey,
                quote: info.quote,
                event_log: info.eventlog,
            }),
            gateway_app_id: state.gateway_app_id.unwrap_or_default(),
            app_implementation: state.app_implementation,
            at,
        })
    }

    /// What the contract of the application at `app` says about itself, and whether the KMS contract knows it.
    pub async fn app_contract(
        &self,
        kms_contract: Address,
        app: Address,
    ) -> Result<AppContractView, ChainError> {
        let Both { at, confirmed, latest } = self.ask(&[AppState { kms_contract, app }]).await?;
        let (Some(state), Some(latest)) = (confirmed.into_iter().next(), latest.into_iter().next()) else {
            return Err(self.nobody());
        };
        let AppStateAnswer { owner, pending_owner, version, allow_any_device, .. } = state;
        Ok(AppContractView {
            has_code: state.account == Account::Contract,
            registered: state.is_registered && latest.is_registered,
            owner,
            pending_owner,
            owner_has_code: state.owner_account != Account::Plain,
            version,
            allow_any_device,
            require_tcb_up_to_date: state.require_tcb_up_to_date,
            upgrades_disabled: state.upgrades_disabled,
            at,
        })
    }
}

impl Chain {
    /// The wallet of several people that is at an address, if what is there says that it is one of the kind that is
    /// called Safe, at the confirmed block and at the newest one. It is no permission.
    pub async fn safe(&self, account: Address) -> Result<Option<SafeWallet>, ChainError> {
        let Both { confirmed, latest, .. } = self.ask(&[SafeState { account }]).await?;
        let was_one = confirmed.into_iter().next().flatten().is_some();
        Ok(latest.into_iter().next().flatten().filter(|_| was_one))
    }
}

/// Words without repetitions, and where each stands.
struct Distinct {
    words: Vec<B256>,
    positions: BTreeMap<[u8; 32], usize>,
}

impl Distinct {
    fn of(keys: impl Iterator<Item = [u8; 32]>) -> Self {
        let mut distinct = Self { words: Vec::new(), positions: BTreeMap::new() };
        for key in keys {
            distinct.positions.entry(key).or_insert_with(|| {
                distinct.words.push(B256::from(key));
                distinct.words.len().saturating_sub(1)
            });
        }
        distinct
    }

    fn position(&self, key: &[u8; 32]) -> Option<usize> {
        self.positions.get(key).copied()
    }
}

/// As many inquiries as it takes, each with as much as one may ask.
fn inquiries(app: Address, hashes: &[B256], devices: &[B256]) -> Vec<Allowances> {
    let tagged = hashes.iter().map(|hash| (true, *hash)).chain(devices.iter().map(|device| (false, *device)));
    let tagged: Vec<(bool, B256)> = tagged.collect();
    let inquiry = |part: &[(bool, B256)]| {
        let of =
            |is_hash| part.iter().filter(move |(tag, _)| *tag == is_hash).map(|(_, word)| *word).collect();
        Allowances { app, compose_hashes: of(true), device_ids: of(false) }
    };
    if tagged.is_empty() {
        return vec![inquiry(&[])];
    }
    tagged.chunks(MAX_KEYS).map(inquiry).collect()
}

/// One answer of several, in which everything must be true everywhere.
fn merged(answers: Vec<AllowancesAnswer>) -> AllowancesAnswer {
    let mut whole = AllowancesAnswer {
        is_contract: !answers.is_empty(),
        allow_any_device: !answers.is_empty(),
        compose_hashes: Vec::new(),
        device_ids: Vec::new(),
    };
    for answer in answers {
        whole.is_contract &= answer.is_contract;
        whole.allow_any_device &= answer.allow_any_device;
        whole.compose_hashes.extend(answer.compose_hashes);
        whole.device_ids.extend(answer.device_ids);
    }
    whole
}
