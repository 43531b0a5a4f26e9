//! Sending transactions after a person saw what they do, or printing them for somebody else.

use std::io::BufRead as _;

use cloister_chain::{Address, Progress as Step, Receipt, Sender, Signer};
use serde_json::{Value, json};

use super::calls::Call;
use super::network::Network;
use crate::failure::{Exit, Failure};
use crate::output::Output;

/// Whether to ask before something is sent.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Agreement {
    /// Do not ask before transactions are sent
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Somebody who can send transactions.
#[derive(Debug)]
pub(crate) struct Account<'a> {
    network: &'a Network,
    sender: Sender,
}

impl<'a> Account<'a> {
    /// The account of a signer.
    pub(crate) fn new(network: &'a Network, signer: Signer) -> Self {
        Self { network, sender: Sender::new(network.chain.clone(), signer) }
    }

    /// Its address.
    pub(crate) fn address(&self) -> Address {
        self.sender.address()
    }

    /// Shows what would be sent, and asks unless somebody agreed already.
    pub(crate) fn agree(&self, calls: &[Call], agreement: Agreement, output: &Output) -> Result<(), Failure> {
        output.say(&format!("On {}, from account {}:", self.network.words(), self.address()));
        for call in calls {
            output.say(&format!("  {}", call.line()));
        }
        if agreement.yes {
            return Ok(());
        }
        if !output.can_ask() {
            return Err(Failure::usage("transactions need --yes where nobody can be asked"));
        }
        output.prompt("Send this? Type yes to agree:");
        let mut answer = String::new();
        std::io::stdin()
            .lock()
            .read_line(&mut answer)
            .map_err(|error| Failure::local("cannot read the answer", error))?;
        if answer.trim() == "yes" {
            return Ok(());
        }
        Err(Failure::new(Exit::Failed, "nothing was sent"))
    }

    /// Sends one call after the other, each once the one before it is confirmed; their receipts. `say` hears how far
    /// it is.
    pub(crate) async fn send(
        &self,
        calls: &[Call],
        mut say: impl FnMut(&str),
    ) -> Result<Vec<Receipt>, Failure> {
        let mut receipts = Vec::with_capacity(calls.len());
        for call in calls {
            say(&format!("sending {}", call.name()));
            let transaction = call.transaction();
            let step = |step| said(&step).iter().for_each(|words| say(words));
            let sent = self.sender.send(&transaction, step).await;
            receipts.push(sent.map_err(|error| not_sent(call, receipts.len(), error))?);
        }
        Ok(receipts)
    }
}

/// What is worth saying about a step: on a development chain nothing is waited for.
fn said(step: &Step) -> Option<String> {
    match step {
        Step::AwaitingSignature => Some("waiting for the wallet's owner".to_owned()),
        Step::Sent { transaction } => Some(format!("waiting for transaction {transaction}")),
        Step::Included { confirmations: 0, .. } => None,
        Step::Included { block, confirmations } => {
            Some(format!("in block {block}, confirmed by {confirmations}"))
        }
    }
}

fn not_sent(call: &Call, done: usize, error: cloister_chain::SendError) -> Failure {
    let failure = Failure::new(Exit::Failed, format!("{} was not done", call.words)).caused_by(error);
    if done == 0 { failure } else { failure.hint(format!("the {done} before it were done, and count")) }
}

/// Prints what somebody else has to send: one line each, or a document with everything.
pub(crate) fn print(calls: &[Call], network: &Network, output: &Output) {
    if output.json {
        output.document(&document(calls, network));
        return;
    }
    for call in calls {
        output.say(&format!("On {}, {}", network.words(), call.line()));
        let to = call.to.map_or_else(|| "create".to_owned(), |to| to.to_string());
        output.line(&format!("{to} {}", call.data));
    }
}

/// What is to be sent, for programs.
pub(crate) fn document(calls: &[Call], network: &Network) -> Value {
    let calls: Vec<Value> = calls.iter().map(Call::document).collect();
    json!({ "chain_id": network.id(), "transactions": calls })
}

/// What was sent, for programs.
pub(crate) fn receipts_document(calls: &[Call], receipts: &[Receipt]) -> Value {
    let sent = calls.iter().zip(receipts).map(|(call, receipt)| {
        json!({
            "to": call.to.map(|to| to.to_string()), "method": call.words,
            "transaction": receipt.transaction.to_string(), "block": receipt.block.number,
        })
    });
    Value::Array(sent.collect())
}
