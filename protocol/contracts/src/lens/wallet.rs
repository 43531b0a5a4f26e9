use alloy_primitives::{Address, U256};

use super::{Account, Findings, Inquiry, read, wire};
use crate::abi::Safe;

/// Most owners of a wallet that is recognised.
pub const MAX_SAFE_OWNERS: u32 = 100;
/// Longest `VERSION()` that is read, in bytes: place and length, and one word of text.
const MAX_VERSION_BYTES: u32 = 96;

/// Whether a contract is a wallet of several people of the kind that is called Safe. It is the contract's own word:
/// good for telling people what they look at, and no permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SafeState {
    /// The contract.
    pub account: Address,
}

/// A wallet that answers as a Safe does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SafeWallet {
    /// How many of the owners have to sign.
    pub threshold: u32,
    /// How many there are.
    pub owners: u32,
}

impl Inquiry for SafeState {
    /// `None`: it is something else.
    type Answer = Option<SafeWallet>;

    fn question(&self) -> wire::Question {
        wire::Question {
            flags: Vec::new(),
            reads: vec![
                read(self.account, &Safe::VERSIONCall {}, MAX_VERSION_BYTES),
                read(self.account, &Safe::getThresholdCall {}, 32),
                read(self.account, &Safe::getOwnersCall {}, 64 + 32 * MAX_SAFE_OWNERS),
            ],
        }
    }

    fn conclude(&self, mut findings: Findings) -> Option<Option<SafeWallet>> {
        let version = findings.read()?;
        let is_contract = version.target == Account::Contract;
        let version = version.value::<String>();
        let threshold = findings.read()?.value::<U256>();
        let owners = findings.read()?.value::<Vec<Address>>();
        Some(wallet(version.as_deref(), threshold, owners.as_deref()).filter(|_| is_contract))
    }
}

/// A wallet with answers that belong together: a version, owners that can be, and as many signatures as they can give.
fn wallet(version: Option<&str>, threshold: Option<U256>, owners: Option<&[Address]>) -> Option<SafeWallet> {
    let (threshold, owners) = (u32::try_from(threshold?).ok()?, owners?);
    let mut distinct = owners.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let are_owners = distinct.len() == owners.len() && !owners.contains(&Address::ZERO);
    let count = u32::try_from(owners.len()).ok()?;
    let is_safe = is_version(version?) && are_owners && (1..=count).contains(&threshold);
    is_safe.then_some(SafeWallet { threshold, owners: count })
}

/// Three numbers, and of wallets on second layers a mark of that.
fn is_version(text: &str) -> bool {
    let numbers = text.strip_suffix("+L2").unwrap_or(text);
    let is_number =
        |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    numbers.split('.').count() == 3 && numbers.split('.').all(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_that_belong_together_are_a_wallet() {
        let owner = Address::repeat_byte;
        let three = [owner(1), owner(2), owner(3)];
        let of = |version, threshold: u64, owners: &[Address]| {
            wallet(Some(version), Some(U256::from(threshold)), Some(owners))
        };
        for version in ["1.3.0", "1.4.1", "1.3.0+L2", "10.20.300"] {
            assert_eq!(of(version, 2, &three), Some(SafeWallet { threshold: 2, owners: 3 }), "{version}");
        }
        for version in ["", "1", "1.3", "1.3.0.1", "v1.3.0", "1..0", "1.3.0+l2", "1.3.0000", "1.3.x"] {
            assert_eq!(of(version, 2, &three), None, "{version}");
        }
        assert!(of("1.3.0", 3, &three).is_some() && of("1.3.0", 1, &three[..1]).is_some());
        assert_eq!(of("1.3.0", 0, &three), None);
        assert_eq!(of("1.3.0", 4, &three), None);
        assert_eq!(of("1.3.0", 1, &[]), None);
        assert_eq!(of("1.3.0", 1, &[owner(1), owner(1)]), None);
        assert_eq!(of("1.3.0", 1, &[owner(1), Address::ZERO]), None);
        let some = Some(U256::from(1));
        assert_eq!(wallet(None, some, Some(&three)), None);
        assert_eq!(wallet(Some("1.3.0"), None, Some(&three)), None);
        assert_eq!(wallet(Some("1.3.0"), Some(U256::MAX), Some(&three)), None);
        assert_eq!(wallet(Some("1.3.0"), some, None), None);
    }
}
