//! `cloister billing`: what the workspace has and pays.

use cloister_management_api::Billing;

use super::Outcome;
use super::cvms::minute;
use crate::api::read;
use crate::output::{Align, Table};
use crate::session::Session;

/// Arguments of `billing`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Shows credit, costs and the newest credits.
pub(super) async fn run(_args: Args, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    let document = client.get(&["workspace", "billing"], &[]).await?;
    if output.json {
        output.document(&document);
        return Ok(());
    }
    let billing: Billing = read(&document)?;
    let money = |amount: &str| Some(format!("{amount} {}", billing.currency));
    output.fields(&[
        ("Payment", Some(if billing.is_post_paid { "afterwards" } else { "in advance" }.to_owned())),
        ("Balance", money(&billing.balance)),
        ("Of it granted", money(&billing.granted_balance).filter(|_| billing.granted_balance != "0")),
        ("Owed", money(&billing.outstanding_amount).filter(|_| billing.outstanding_amount != "0")),
        ("This month", money(&billing.month.cost)),
        (
            "Of it inference",
            money(&billing.month.inference_cost).filter(|_| billing.month.inference_cost != "0"),
        ),
        ("Per hour now", money(&billing.hourly_rate)),
        ("Credit lasts until", billing.empty_at.map(minute)),
    ]);
    if !billing.credits.is_empty() {
        let mut table = Table::new(&[
            ("CREDITED", Align::Left),
            ("KIND", Align::Left),
            ("AMOUNT", Align::Right),
            ("REASON", Align::Left),
        ]);
        for credit in billing.credits {
            let kind = credit.kind.as_str().to_owned();
            table.row([minute(credit.created_at), kind, credit.amount, credit.reason]);
        }
        output.data("\n");
        output.table(&table, "");
    }
    if !billing.can_start {
        output.say("Nothing is started before there is credit again; ask the operator. What runs goes on.");
    }
    Ok(())
}
