//! `cloister chain`: the contracts that decide what applications may run, read and changed on the chain itself. No
//! server is believed; what one names is only asked about.

mod calls;
mod candidates;
mod deploy;
mod network;
mod owner;
mod send;
mod show;
mod signer;

pub(crate) use calls::{Call, allow_image, allow_kms, allow_kms_device, new_app, publish_keys};
pub(crate) use deploy::make_app;
pub(crate) use network::{ChainOptions, FILE as NETWORK_FILE, Network, Published};
pub(crate) use owner::{OwnerOptions, Waiting};
pub(crate) use send::{Account, Agreement};
pub(crate) use show::{Need, unanswered};
pub(crate) use signer::SignerOptions;

use std::str::FromStr;

use cloister_app_compose::ComposeHash;
use cloister_chain::{Address, B256};
use serde_json::json;

use super::Outcome;
use crate::failure::Failure;
use crate::output::Output;
use crate::session::Session;

/// The subcommands of `chain`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Put a KMS contract and the code of applications onto a chain
    DeployKms(Box<deploy::KmsArgs>),
    /// Make the contract of a new application
    DeployApp(Box<deploy::AppArgs>),
    /// Let an application run a document, by its compose hash
    AllowHash(Box<Change<ComposeHash>>),
    /// Take that back: CVMs with the document get no keys at their next start
    RemoveHash(Box<Change<ComposeHash>>),
    /// Let an application run on a device
    AllowDevice(Box<Change<Word>>),
    /// Take that back
    RemoveDevice(Box<Change<Word>>),
    /// Let an application run on every device, or on those of its list only
    AllowAnyDevice(Box<Change<Switch>>),
    /// Let machines with a guest image have keys (for the owner of a KMS contract)
    AllowImage(Box<KmsChange>),
    /// Take that back
    RemoveImage(Box<KmsChange>),
    /// Let a KMS with these aggregated measurements have the roots (for the owner of a KMS contract)
    AllowKms(Box<KmsChange>),
    /// Take that back
    RemoveKms(Box<KmsChange>),
    /// Let a KMS run on a device (for the owner of a KMS contract)
    AllowKmsDevice(Box<KmsChange>),
    /// Take that back
    RemoveKmsDevice(Box<KmsChange>),
    /// Offer a contract to another owner, who has to accept
    TransferOwner(Box<Change<Address>>),
    /// Take a contract over that was offered to you
    AcceptOwner(Box<OneArgs>),
    /// Show who owns an application's contract, and what it allows
    Show(Box<show::Args>),
    /// Show what an update of a CVM needs to be allowed
    Needs(Box<show::NeedsArgs>),
}

/// What every change takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Sending {
    /// Print the transactions instead of sending them, for wallets of several people
    #[arg(long)]
    calldata: bool,
    #[command(flatten)]
    agreement: Agreement,
    #[command(flatten)]
    chain: ChainOptions,
    #[command(flatten)]
    signer: SignerOptions,
}

/// Arguments of a change of one contract.
#[derive(Debug, clap::Args)]
pub(crate) struct Change<T: FromStr + Clone + Send + Sync + 'static>
where
    T::Err: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Address of the contract; an application's is its id
    contract: Contract,
    /// What changes
    value: T,
    #[command(flatten)]
    sending: Sending,
}

/// Arguments of a change of a KMS contract.
#[derive(Debug, clap::Args)]
pub(crate) struct KmsChange {
    /// Hash or id, 64 hex digits
    value: Word,
    #[command(flatten)]
    sending: Sending,
}

/// Arguments that name one contract.
#[derive(Debug, clap::Args)]
pub(crate) struct OneArgs {
    /// Address of the contract
    contract: Contract,
    #[command(flatten)]
    sending: Sending,
}

/// The address of a contract: 40 hex digits, with or without `0x` or `app_`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contract(pub(crate) Address);

/// 32 bytes, 64 hex digits with or without `0x`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Word(pub(crate) B256);

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Switch(bool);

/// A text that cannot be meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// An address.
    #[error("an address has 40 hex digits")]
    Address,
    /// A hash or id.
    #[error("it has 64 hex digits")]
    Word,
    /// A switch.
    #[error("write on or off")]
    Switch,
}

impl FromStr for Contract {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        text.strip_prefix("app_").unwrap_or(text).parse().map(Self).map_err(|_| Malformed::Address)
    }
}

impl FromStr for Word {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        text.parse().map(Self).map_err(|_| Malformed::Word)
    }
}

impl FromStr for Switch {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        match text {
            "on" => Ok(Self(true)),
            "off" => Ok(Self(false)),
            _ => Err(Malformed::Switch),
        }
    }
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    let of_app = |call: fn(Address, B256) -> Call, change: Box<Change<Word>>| {
        (call(change.contract.0, change.value.0), change.sending)
    };
    let of_hash = |call: fn(Address, ComposeHash) -> Call, change: Box<Change<ComposeHash>>| {
        (call(change.contract.0, change.value), change.sending)
    };
    let of_kms = |call: fn(Address, B256) -> Call, change: Box<KmsChange>| -> Result<_, Failure> {
        let kms = change.sending.chain.network(session)?.kms_contract()?;
        Ok((call(kms, change.value.0), change.sending))
    };
    let (call, sending) = match command {
        Command::DeployKms(args) => return deploy::kms(*args, session).await,
        Command::DeployApp(args) => return deploy::app(*args, session).await,
        Command::Show(args) => return show::show(*args, session).await,
        Command::Needs(args) => return show::needs(*args, session).await,
        Command::AllowHash(change) => of_hash(calls::allow_hash, change),
        Command::RemoveHash(change) => of_hash(calls::remove_hash, change),
        Command::AllowDevice(change) => of_app(calls::allow_device, change),
        Command::RemoveDevice(change) => of_app(calls::remove_device, change),
        Command::AllowAnyDevice(change) => {
            (calls::any_device(change.contract.0, change.value.0), change.sending)
        }
        Command::AllowImage(change) => of_kms(calls::allow_image, change)?,
        Command::RemoveImage(change) => of_kms(calls::remove_image, change)?,
        Command::AllowKms(change) => of_kms(calls::allow_kms, change)?,
        Command::RemoveKms(change) => of_kms(calls::remove_kms, change)?,
        Command::AllowKmsDevice(change) => of_kms(calls::allow_kms_device, change)?,
        Command::RemoveKmsDevice(change) => of_kms(calls::remove_kms_device, change)?,
        Command::TransferOwner(change) => {
            (calls::transfer_owner(change.contract.0, change.value), change.sending)
        }
        Command::AcceptOwner(args) => (calls::accept_owner(args.contract.0), args.sending),
    };
    carry_out(&[call], &sending, session).await
}

/// Sends the calls, or prints them.
async fn carry_out(calls: &[Call], sending: &Sending, session: &Session) -> Outcome {
    let network = sending.chain.network(session)?;
    let output = &session.output;
    if sending.calldata {
        send::print(calls, &network, output);
        return Ok(());
    }
    let signer = sending.signer.required(&network, output).await?;
    let account = Account::new(&network, signer);
    account.agree(calls, sending.agreement, output)?;
    let mut progress = output.progress();
    let receipts = account.send(calls, |words| progress.phase(words)).await?;
    progress.done("done");
    done(calls, &receipts, output);
    Ok(())
}

fn done(calls: &[Call], receipts: &[cloister_chain::Receipt], output: &Output) {
    if output.json {
        output.document(&json!({ "sent": send::receipts_document(calls, receipts) }));
    } else {
        for receipt in receipts {
            output.line(&receipt.transaction.to_string());
        }
    }
}
