//! The accounts of the test mnemonic "test test test test test test test test test test test junk". Everybody knows
//! their keys.

use cloister_chain::{Address, LocalKey};
use cloister_contracts::hex;
use zeroize::Zeroizing;

/// An account of a development chain, with its public "secret" key.
#[derive(Clone, Debug)]
pub struct Account {
    address: [u8; 20],
    secret: [u8; 32],
}

impl Account {
    /// Its address.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::from(self.address)
    }

    /// Its secret key, which is no secret.
    #[must_use]
    pub fn secret(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.secret)
    }

    /// A key to sign with.
    pub fn key(&self) -> Result<LocalKey, cloister_chain::InvalidKey> {
        LocalKey::from_bytes(&self.secret())
    }
}

/// The accounts; the first one deploys the contracts and owns them.
pub const ACCOUNTS: [Account; 4] = [
    Account {
        address: hex!("f39Fd6e51aad88F6F4ce6aB8827279cffFb92266"),
        secret: hex!("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"),
    },
    Account {
        address: hex!("70997970C51812dc3A010C7d01b50e0d17dc79C8"),
        secret: hex!("59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d"),
    },
    Account {
        address: hex!("3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"),
        secret: hex!("5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a"),
    },
    Account {
        address: hex!("90F79bf6EB2c4f870365E785982E1f101E93b906"),
        secret: hex!("7c852118294e51e653712a81e05800f419141751be58f605c371e15141b007a6"),
    },
];
