//! `cloister chain show` and `needs`: what contracts say, asked of the chain itself.

use cloister_app_compose::ComposeHash;
use cloister_chain::{Address, Allowance, AllowanceQuestion, AppContractView, B256, ChainError};
use serde_json::{Value, json};

use super::calls::{self, Call};
use super::candidates::{Asked, Candidates};
use super::{ChainOptions, Contract, Network, Word, send};
use crate::args::CvmName;
use crate::commands::Outcome;
use crate::commands::update::Wanted;
use crate::failure::{Exit, Failure};
use crate::output::{Align, Table};
use crate::session::Session;

/// Arguments of `chain show`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister chain show 0x… --hash 0x…")]
pub(crate) struct Args {
    /// The application: address of its contract
    app: Contract,
    /// Document that it is asked about, by its compose hash; may be repeated
    #[arg(long, value_name = "HASH")]
    hash: Vec<ComposeHash>,
    /// Device that it is asked about; may be repeated
    #[arg(long, value_name = "ID")]
    device: Vec<Word>,
    /// Ask also about what the server knows: documents that the application's CVMs have or had, and devices of its
    /// nodes. The server only names them, the chain says what is allowed
    #[arg(long)]
    known: bool,
    #[command(flatten)]
    chain: ChainOptions,
}

/// Arguments of `chain needs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister chain needs my-app -c compose.yaml --calldata")]
pub(crate) struct NeedsArgs {
    #[command(flatten)]
    name: CvmName,
    #[command(flatten)]
    wanted: Wanted,
    /// Device that it would run on [default: the one that the server says it runs on]
    #[arg(long, value_name = "ID")]
    device: Option<Word>,
    /// Print what has to be sent, for wallets of several people
    #[arg(long)]
    calldata: bool,
    #[command(flatten)]
    chain: ChainOptions,
}

/// A document that is to run on a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    /// The application's contract.
    pub(crate) app: Address,
    /// The document.
    pub(crate) compose_hash: ComposeHash,
    /// The device, if it matters.
    pub(crate) device: Option<B256>,
    /// The document of the server's that this one was made of, or which it is. What is in there nobody here has
    /// written, so that only what the contract allowed before may be built upon.
    pub(crate) base: Option<ComposeHash>,
}

impl Need {
    /// What the owner has still to send, by what the chain says now.
    pub(crate) async fn missing(&self, network: &Network) -> Result<Vec<Call>, Failure> {
        let (answer, base_allowed, any_device) = self.ask(network).await?;
        if !answer.compose_hash_allowed && !base_allowed {
            return Err(self.unknown_base());
        }
        let device = self.device.filter(|_| !any_device && !answer.device_id_allowed);
        let hash = (!answer.compose_hash_allowed).then(|| calls::allow_hash(self.app, self.compose_hash));
        Ok(device.map(|device| calls::allow_device(self.app, device)).into_iter().chain(hash).collect())
    }

    /// What the contract says of the document on the device, whether the document that it was made of is allowed, and
    /// whether every device is.
    async fn ask(&self, network: &Network) -> Result<(Allowance, bool, bool), Failure> {
        let device_id = self.device.unwrap_or_default().0;
        let question = |hash: ComposeHash| AllowanceQuestion { compose_hash: *hash.as_bytes(), device_id };
        let questions: Vec<_> = [self.compose_hash].into_iter().chain(self.base).map(question).collect();
        let answers = network.chain.allowances(self.app, &questions).await.map_err(unanswered)?;
        if !answers.is_contract {
            return Err(no_contract(self.app, network));
        }
        let answer = answers.results.first().copied().unwrap_or_default();
        // A chain that leaves an answer out is refused by its reader.
        let base = answers.results.get(1).is_none_or(|answer| answer.compose_hash_allowed);
        Ok((answer, base, answers.allow_any_device))
    }

    fn unknown_base(&self) -> Failure {
        let base = self.base.unwrap_or(self.compose_hash);
        let message =
            format!("the server says that document {base} runs, which contract {} does not allow", self.app);
        Failure::new(Exit::Unverified, message)
            .hint("nothing was sent; what was made of it may hold what you have not written")
            .hint(format!(
                "read all of it, and if it is right allow it by its hash: cloister chain allow-hash {} {}",
                self.app, self.compose_hash
            ))
    }
}

/// Shows one application.
pub(super) async fn show(args: Args, session: &Session) -> Outcome {
    let (network, output) = (args.chain.network(session)?, &session.output);
    let kms_contract = network.kms_contract()?;
    let app = args.app.0;
    let view = network.chain.app_contract(kms_contract, app).await.map_err(unanswered)?;
    if !view.has_code {
        return Err(no_contract(app, &network));
    }
    let mut candidates = Candidates::named(&args.hash, &args.device);
    if args.known {
        candidates.add_known(app, &session.client()?).await?;
    }
    let asked = candidates.ask(&network, app).await?;
    let safe = match view.owner.filter(|_| view.owner_has_code) {
        Some(owner) => network.chain.safe(owner).await.map_err(unanswered)?,
        None => None,
    };
    if output.json {
        output.document(&document(app, &network, &view, &asked));
        return Ok(());
    }
    let yes_no = |value: Option<bool>| value.map(|value| if value { "yes" } else { "no" }.to_owned());
    let owner = view.owner.map(|owner| {
        let kind = match safe {
            Some(safe) => format!("a Safe, {} of {} sign", safe.threshold, safe.owners),
            None if view.owner_has_code => "a contract".to_owned(),
            None => "an account".to_owned(),
        };
        format!("{owner} ({kind})")
    });
    output.fields(&[
        ("Application", Some(app.to_string())),
        ("Chain", Some(format!("{} at block {}", network.words(), view.at.number))),
        (
            "KMS contract",
            Some(format!("{kms_contract}{}", if view.registered { "" } else { ", which does not know it" })),
        ),
        ("Owner", owner),
        ("Offered to", view.pending_owner.filter(|owner| !owner.is_zero()).map(|owner| owner.to_string())),
        ("Any device", yes_no(view.allow_any_device)),
        ("Up-to-date platforms only", yes_no(view.require_tcb_up_to_date)),
        ("Code is final", yes_no(view.upgrades_disabled)),
    ]);
    if !asked.is_empty() {
        let mut table = Table::new(&[
            ("KIND", Align::Left),
            ("VALUE", Align::Left),
            ("ALLOWED", Align::Left),
            ("KNOWN AS", Align::Left),
        ]);
        for one in asked {
            let allowed = if one.is_allowed { "yes" } else { "no" };
            table.row([one.kind.to_owned(), one.value.to_string(), allowed.to_owned(), one.known_as]);
        }
        output.say("");
        output.table(&table, "");
    }
    Ok(())
}

fn document(app: Address, network: &Network, view: &AppContractView, asked: &[Asked]) -> Value {
    let text = |address: Option<Address>| {
        address.filter(|address| !address.is_zero()).map(|address| address.to_string())
    };
    let asked = asked.iter().map(|one| {
        let known_as = Some(&one.known_as).filter(|name| !name.is_empty());
        json!({ "kind": one.kind, "value": one.value.to_string(), "allowed": one.is_allowed, "known_as": known_as })
    });
    json!({
        "app_id": hex::encode(app), "chain_id": network.id(), "registered": view.registered,
        "owner": text(view.owner), "owner_is_contract": view.owner_has_code,
        "pending_owner": text(view.pending_owner), "allow_any_device": view.allow_any_device,
        "require_tcb_up_to_date": view.require_tcb_up_to_date, "upgrades_disabled": view.upgrades_disabled,
        "version": view.version, "asked": asked.collect::<Vec<_>>(),
        "block": { "number": view.at.number, "hash": view.at.hash.to_string() },
    })
}

/// Shows what an update would need; changes nothing, at the server neither.
pub(super) async fn needs(args: NeedsArgs, session: &Session) -> Outcome {
    let (network, output) = (args.chain.network(session)?, &session.output);
    let client = session.client()?;
    let plan = args.wanted.plan(&client, &args.name.cvm).await?;
    let app_id = plan.app_id()?;
    let device = match args.device {
        Some(word) => Some(word.0),
        None => plan.device(),
    };
    let need = Need {
        app: cloister_contracts::app_address(app_id),
        compose_hash: plan.compose_hash(),
        device,
        base: Some(plan.base()),
    };
    let missing = need.missing(&network).await?;
    if args.calldata {
        send::print(&missing, &network, output);
        return Ok(());
    }
    if output.json {
        let mut document = send::document(&missing, &network);
        if let Some(members) = document.as_object_mut() {
            members.insert("app_id".to_owned(), json!(app_id));
            members.insert("compose_hash".to_owned(), json!(need.compose_hash));
            members.insert("device_id".to_owned(), json!(need.device.map(hex::encode)));
        }
        output.document(&document);
        return Ok(());
    }
    output.fields(&[
        ("Application", Some(need.app.to_string())),
        ("Document", Some(need.compose_hash.to_string())),
        ("Device", need.device.map(hex::encode)),
    ]);
    if missing.is_empty() {
        output.say("All of it is allowed.");
        return Ok(());
    }
    let mut table = Table::new(&[("CONTRACT", Align::Left), ("TO BE CALLED BY ITS OWNER", Align::Left)]);
    for call in &missing {
        table.row([call.to.map(|to| to.to_string()).unwrap_or_default(), call.words.clone()]);
    }
    output.say("");
    output.table(&table, "");
    Ok(())
}

/// The chain gave no answer that can be believed.
pub(crate) fn unanswered(error: ChainError) -> Failure {
    Failure::new(Exit::Unreachable, "the chain gave no answer").caused_by(error)
}

fn no_contract(app: Address, network: &Network) -> Failure {
    Failure::new(Exit::NotFound, format!("there is no contract at {app} on {}", network.words())).hint(
        "is that the chain of the application? name endpoints of another: --rpc-file FILE --chain-id ID",
    )
}
