//! Who signs transactions: a key in a file or typed in, or a wallet that keeps its keys to itself.

use std::path::{Path, PathBuf};

use cloister_chain::{Address, Clock, LocalKey, Signer, Wallet};
use url::Url;
use zeroize::Zeroizing;

use super::network::Network;
use crate::failure::Failure;
use crate::files::read_secret;
use crate::output::Output;
use crate::parts::is_for_its_owner;
use crate::secrets;

/// Longest text of a key, in bytes.
const MAX_BYTES: u64 = 4096;

/// Options that say who signs. A key is never an argument or a variable, which other programs can read.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Signing")]
pub(crate) struct SignerOptions {
    /// File with the account's secret key, 64 hex digits, readable by you only
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Ask for the secret key, and do not show it
    #[arg(long, conflicts_with_all = ["key_file", "signer_url"])]
    ask_key: bool,
    /// Wallet on this machine that signs, by its JSON-RPC interface: hardware keys stay where they are
    #[arg(long, value_name = "URL", conflicts_with = "key_file")]
    signer_url: Option<Url>,
    /// Account of that wallet [default: its first one]
    #[arg(long, value_name = "ADDRESS", requires = "signer_url")]
    signer_account: Option<Address>,
}

impl SignerOptions {
    /// Whether anybody was named.
    pub(crate) const fn is_named(&self) -> bool {
        self.key_file.is_some() || self.ask_key || self.signer_url.is_some()
    }

    /// Who signs, if anybody was named.
    pub(crate) async fn signer(&self, network: &Network, output: &Output) -> Result<Option<Signer>, Failure> {
        if let Some(url) = &self.signer_url {
            let wallet =
                Wallet::connect(url, network.chain.config(), self.signer_account, &Clock::system()).await;
            let wallet =
                wallet.map_err(|error| Failure::usage("the wallet cannot be used").caused_by(error))?;
            return Ok(Some(Signer::Wallet(wallet)));
        }
        let text = match &self.key_file {
            Some(path) => Some(read(path)?),
            None if self.ask_key => Some(secrets::ask(output, "Secret key (not shown):", "the secret key")?),
            None => None,
        };
        text.map(|text| key(&text).map(Signer::Local)).transpose()
    }

    /// Who signs; asked for where nobody was named.
    pub(crate) async fn required(&self, network: &Network, output: &Output) -> Result<Signer, Failure> {
        let asking = Self { ask_key: true, ..Self::default() };
        match self.signer(network, output).await? {
            Some(signer) => Ok(signer),
            None if output.can_ask() => asking.signer(network, output).await?.ok_or_else(nobody),
            None => Err(nobody()),
        }
    }
}

fn nobody() -> Failure {
    Failure::usage("who signs?")
        .hint("name a key: --key-file FILE, or a wallet: --signer-url URL")
        .hint("or print what somebody else has to send: --calldata")
}

/// The text of a key file that nobody else can read.
fn read(path: &Path) -> Result<Zeroizing<String>, Failure> {
    is_for_its_owner(path)?;
    read_secret(path, MAX_BYTES)
}

fn key(text: &str) -> Result<LocalKey, Failure> {
    let digits = text.trim();
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    let mut secret = Zeroizing::new([0; 32]);
    hex::decode_to_slice(digits, secret.as_mut_slice())
        .map_err(|_| Failure::usage("a secret key has 64 hex digits, and this has not"))?;
    LocalKey::from_bytes(&secret).map_err(|error| Failure::usage("the key cannot be used").caused_by(error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SECRET: &str = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";

    #[test]
    fn a_key_that_others_can_read_is_refused_and_none_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let with_mode = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            read(&path).and_then(|text| key(&text)).map(|key| key.address().to_string())
        };
        let address = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";
        assert_eq!(with_mode(&format!("0x{SECRET}\n"), 0o600).unwrap(), address);
        for (text, mode) in
            [(SECRET, 0o640), (SECRET, 0o604), (&SECRET[1..], 0o600), (&"0".repeat(64), 0o600)]
        {
            let failure = with_mode(text, mode).unwrap_err();
            assert!(!failure.chain().contains("0974bec39"), "{}", failure.chain());
        }
    }
}
