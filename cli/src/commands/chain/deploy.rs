//! `cloister chain deploy-kms` and `deploy-app`: new contracts.

use cloister_app_compose::ComposeHash;
use cloister_chain::{Address, Bytes, Receipt};
use cloister_contracts::events::{DeployedApp, Log, deployed_apps};
use cloister_contracts::{NewApp, artifacts, compose_word};
use serde_json::json;

use super::calls::{self, Call};
use super::send::{self, Account};
use super::{Network, Sending, Word};
use crate::commands::Outcome;
use crate::failure::{Exit, Failure};
use crate::output::Progress;
use crate::session::Session;

/// Arguments of `chain deploy-kms`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: cloister chain deploy-kms --rpc-file base.txt --chain-id 8453 --key-file key"
)]
pub(crate) struct KmsArgs {
    /// Who owns the contract [default: the account that deploys it]
    #[arg(long, value_name = "ADDRESS")]
    owner: Option<Address>,
    #[command(flatten)]
    sending: Sending,
}

/// Arguments of `chain deploy-app`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister chain deploy-app --hash 0x… --device 0x… --key-file key")]
pub(crate) struct AppArgs {
    /// Who owns the contract, alone able to change it [default: the account that deploys it]
    #[arg(long, value_name = "ADDRESS")]
    owner: Option<Address>,
    /// First document that may run, by its compose hash
    #[arg(long, value_name = "HASH")]
    hash: Option<ComposeHash>,
    /// First device that it may run on
    #[arg(long, value_name = "ID")]
    device: Option<Word>,
    /// Let it run on every device
    #[arg(long)]
    any_device: bool,
    /// Refuse machines that lack security updates
    #[arg(long)]
    up_to_date: bool,
    /// Make the contract's code final, at once
    #[arg(long)]
    final_code: bool,
    #[command(flatten)]
    sending: Sending,
}

/// Two implementations, then the proxy that leads to them and knows its owner from its first moment.
pub(super) async fn kms(args: KmsArgs, session: &Session) -> Outcome {
    let (network, output) = (args.sending.chain.network(session)?, &session.output);
    if args.sending.calldata {
        return Err(Failure::usage("a KMS contract is made by three transactions that need each other's addresses")
            .hint("deploy it from an ordinary account with --owner ADDRESS, which may be a wallet of several people"));
    }
    let signer = args.sending.signer.required(&network, output).await?;
    let account = Account::new(&network, signer);
    let owner = args.owner.unwrap_or_else(|| account.address());
    let kms_code =
        Call::create("the code of the KMS contract", Bytes::from_static(&artifacts::KMS_IMPLEMENTATION));
    let app_code = Call::create(
        "the code of applications' contracts",
        Bytes::from_static(&artifacts::APP_IMPLEMENTATION),
    );
    let proxy = |kms, app| {
        let what = format!("the KMS contract, owned by {owner}");
        Call::create(&what, artifacts::kms_proxy(kms, owner, Some(app)))
    };
    // The addresses are known only once the code is there.
    let shown = [kms_code.clone(), app_code.clone(), proxy(Address::ZERO, Address::ZERO)];
    account.agree(&shown, args.sending.agreement, output)?;
    let mut progress = output.progress();
    let code = account.send(&[kms_code, app_code], |words| progress.phase(words)).await?;
    let made: Vec<Address> = code.iter().filter_map(|receipt| receipt.contract_address).collect();
    let [kms_implementation, app_implementation] = made[..] else { return Err(nowhere()) };
    let created =
        account.send(&[proxy(kms_implementation, app_implementation)], |words| progress.phase(words)).await?;
    let contract = created.first().and_then(|receipt| receipt.contract_address).ok_or_else(nowhere)?;
    progress.done("the KMS contract is there");
    if output.json {
        output.document(&json!({
            "chain_id": network.id(), "kms_contract": contract.to_string(), "owner": owner.to_string(),
            "kms_implementation": kms_implementation.to_string(),
            "app_implementation": app_implementation.to_string(),
        }));
        return Ok(());
    }
    output.line(&contract.to_string());
    output.say("Next: allow guest images (chain allow-image) and the KMS itself (chain allow-kms), then start it with");
    output.say(&format!(
        "  cloister serve kms --kms-contract {contract} --chain-id {} --chain-rpc-file FILE",
        network.id()
    ));
    Ok(())
}

fn nowhere() -> Failure {
    Failure::new(Exit::Failed, "the chain made a contract and does not say where")
        .hint("ask another endpoint for the transaction: its receipt has the address")
}

/// A contract for an application, by the factory of the KMS contract.
pub(super) async fn app(args: AppArgs, session: &Session) -> Outcome {
    let (network, output) = (args.sending.chain.network(session)?, &session.output);
    let kms_contract = network.kms_contract()?;
    let app = |owner| NewApp {
        owner,
        disable_upgrades: args.final_code,
        require_tcb_up_to_date: args.up_to_date,
        allow_any_device: args.any_device,
        device_id: args.device.map(|word| word.0),
        compose_hash: args.hash.map(compose_word),
    };
    if args.sending.calldata {
        let owner = args
            .owner
            .ok_or_else(|| Failure::usage("who owns the contract?").hint("name it: --owner ADDRESS"))?;
        send::print(&[calls::new_app(kms_contract, &app(owner))], &network, output);
        return Ok(());
    }
    let account = Account::new(&network, args.sending.signer.required(&network, output).await?);
    let new = app(args.owner.unwrap_or_else(|| account.address()));
    account.agree(&[calls::new_app(kms_contract, &new)], args.sending.agreement, output)?;
    let mut progress = output.progress();
    let (made, receipt) = make_app(&account, &network, kms_contract, &new, &mut progress).await?;
    progress.done("the application's contract is there");
    if output.json {
        output.document(&json!({
            "chain_id": network.id(), "app_id": hex::encode(made), "owner": new.owner.to_string(),
            "kms_contract": kms_contract.to_string(), "transaction": receipt.transaction.to_string(),
        }));
    } else {
        output.line(&made.to_string());
    }
    Ok(())
}

/// Has the factory make a contract, and finds out where it is and that it is what was wanted.
pub(crate) async fn make_app(
    account: &Account<'_>,
    network: &Network,
    kms_contract: Address,
    app: &NewApp,
    progress: &mut Progress,
) -> Result<(Address, Receipt), Failure> {
    let mut receipts =
        account.send(&[calls::new_app(kms_contract, app)], |words| progress.phase(words)).await?;
    let receipt = receipts.pop().ok_or_else(nowhere)?;
    let logs =
        receipt.logs.iter().map(|log| Log { address: log.address, topics: &log.topics, data: &log.data });
    let by_us = |made: &DeployedApp| made.deployer == account.address();
    let made = deployed_apps(logs, kms_contract).find(by_us).ok_or_else(nowhere)?.app;
    progress.phase("looking at the new contract");
    let view = network.chain.app_contract(kms_contract, made).await.map_err(super::show::unanswered)?;
    if view.registered && view.owner == Some(app.owner) {
        return Ok((made, receipt));
    }
    Err(Failure::new(Exit::Unverified, format!("{made} is not registered, or {} does not own it", app.owner))
        .hint(format!("do not use it; is {kms_contract} the KMS contract that you mean?")))
}
