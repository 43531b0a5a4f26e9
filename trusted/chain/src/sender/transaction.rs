//! EIP-1559 transactions: what is signed and sent.

use alloy_primitives::{Address, B256, Bytes, keccak256};
use alloy_rlp::{Encodable, encode_list};
use k256::ecdsa::SigningKey;
use zeroize::Zeroizing;

/// Type byte of transactions with a base fee (EIP-2718, EIP-1559).
const TYPE: u8 = 2;

/// What a transaction shall do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Whom to call; nobody to make a contract.
    pub to: Option<Address>,
    /// The call, or the code that makes the contract.
    pub data: Bytes,
    /// What goes with it, in wei.
    pub value: u128,
}

impl Transaction {
    /// A call of the contract at `to`.
    #[must_use]
    pub const fn call(to: Address, data: Bytes) -> Self {
        Self { to: Some(to), data, value: 0 }
    }

    /// Makes a contract.
    #[must_use]
    pub const fn create(code: Bytes) -> Self {
        Self { to: None, data: code, value: 0 }
    }
}

/// A transaction with everything that a signature covers.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub(super) chain_id: u64,
    pub(super) nonce: u64,
    /// In wei for each unit of gas.
    pub(super) max_priority_fee: u128,
    /// In wei for each unit of gas, base fee included.
    pub(super) max_fee: u128,
    pub(super) gas: u64,
    pub(super) transaction: Transaction,
}

/// A transaction as it is sent.
#[derive(Clone, Debug)]
pub(super) struct Signed {
    pub(super) raw: Vec<u8>,
    pub(super) hash: B256,
}

/// Bytes that are no secret key: zero, or beyond the order of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these 32 bytes are no secp256k1 key; check the key file")]
pub struct InvalidKey;

/// A secret key in this process; wiped when dropped, without a readable form.
pub struct LocalKey {
    key: SigningKey,
    address: Address,
}

impl LocalKey {
    /// The key with these 32 bytes.
    pub fn from_bytes(secret: &Zeroizing<[u8; 32]>) -> Result<Self, InvalidKey> {
        let key = SigningKey::from_slice(secret.as_slice()).map_err(|_| InvalidKey)?;
        let point = key.verifying_key().to_sec1_point(false);
        let coordinates = point.as_bytes().get(1..).ok_or(InvalidKey)?;
        let address = Address::from_slice(keccak256(coordinates).get(12..).ok_or(InvalidKey)?);
        Ok(Self { key, address })
    }

    /// Its account.
    #[must_use]
    pub const fn address(&self) -> Address {
        self.address
    }

    pub(super) fn sign(&self, prepared: &Prepared) -> Signed {
        let digest = keccak256(prepared.encoded(None));
        let (signature, recovery) = self.key.sign_prehash_recoverable(digest.as_slice());
        let raw = prepared.encoded(Some((recovery.is_y_odd(), &signature.to_bytes())));
        let hash = keccak256(&raw);
        Signed { raw, hash }
    }
}

impl std::fmt::Debug for LocalKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LocalKey").field(&self.address).finish()
    }
}

impl Prepared {
    /// The transaction as it is signed, or with its signature (parity, r and s).
    fn encoded(&self, signature: Option<(bool, &[u8])>) -> Vec<u8> {
        let Transaction { to, data, value } = &self.transaction;
        let to: &[u8] = to.as_ref().map_or(&[], |to| to.as_slice());
        let no_access_list: Vec<u8> = Vec::new();
        let access_list = List(&no_access_list);
        let data = data.as_ref();
        let mut fields: Vec<&dyn Encodable> = vec![
            &self.chain_id,
            &self.nonce,
            &self.max_priority_fee,
            &self.max_fee,
            &self.gas,
            &to,
            value,
            &data,
            &access_list,
        ];
        let (parity, scalars) = signature.unwrap_or_default();
        let (r, s) = scalars.split_at(scalars.len() / 2);
        let (r, s) = (number(r), number(s));
        if signature.is_some() {
            fields.extend([&parity as &dyn Encodable, &r, &s]);
        }
        let mut encoded = vec![TYPE];
        encode_list::<&dyn Encodable, dyn Encodable>(&fields, &mut encoded);
        encoded
    }
}

/// A list whose encoded elements are there already.
struct List<'a>(&'a [u8]);

impl Encodable for List<'_> {
    fn encode(&self, out: &mut dyn alloy_rlp::BufMut) {
        alloy_rlp::Header { list: true, payload_length: self.0.len() }.encode(out);
        out.put_slice(self.0);
    }
}

/// Numbers have no leading zeros.
fn number(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.get(zeros..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published key of a development node, and what public tools make of it.
    const SECRET: &str = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";

    fn key() -> LocalKey {
        let mut secret = Zeroizing::new([0; 32]);
        hex::decode_to_slice(SECRET, secret.as_mut_slice()).unwrap();
        LocalKey::from_bytes(&secret).unwrap()
    }

    #[test]
    fn a_key_has_its_published_account_and_no_readable_form() {
        assert_eq!(key().address().to_string(), "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266");
        assert!(!format!("{:?}", key()).contains("ac0974"));
        assert_eq!(LocalKey::from_bytes(&Zeroizing::new([0; 32])).unwrap_err(), InvalidKey);
        assert_eq!(LocalKey::from_bytes(&Zeroizing::new([255; 32])).unwrap_err(), InvalidKey);
    }

    #[test]
    fn who_signed_can_be_recovered_from_what_is_sent() {
        for nonce in 0..50 {
            let prepared = Prepared {
                chain_id: 31337,
                nonce,
                max_priority_fee: 1_500_000_000,
                max_fee: 30_000_000_000,
                gas: 21_000,
                transaction: Transaction { to: Some(Address::repeat_byte(7)), data: Bytes::new(), value: 1 },
            };
            let signed = key().sign(&prepared);
            assert_eq!(signed.raw[0], TYPE);
            assert_eq!(signed.hash, keccak256(&signed.raw));
            let unsigned = prepared.encoded(None);
            // Everything up to the signature stands in both; only the length in front differs.
            let body = |encoded: &[u8]| {
                let mut rest = &encoded[1..];
                alloy_rlp::Header::decode(&mut rest).map(|_| rest.to_vec()).unwrap()
            };
            assert!(body(&signed.raw).starts_with(&body(&unsigned)));
        }
    }
}
