//! `cloister budget`: what an application may cost in a month.

use cloister_management_api::{Amount, AppBudget, BudgetState, amount_text};
use serde_json::{Value, json};

use super::Outcome;
use super::revisions::AppName;
use crate::api::read;
use crate::failure::Failure;
use crate::session::Session;

/// The subcommands of `budget`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Set what an application may cost in a month
    Set(SetArgs),
    /// Show an application's budget and what the month cost so far
    Show(ShowArgs),
    /// Remove an application's budget
    Remove(RemoveArgs),
}

/// Arguments of `budget set`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister budget set my-app 100 --alert-percent 75 --stop")]
pub(crate) struct SetArgs {
    #[command(flatten)]
    app: AppName,
    /// Most that a month may cost
    #[arg(value_name = "AMOUNT")]
    limit: Amount,
    /// Share of it at which webhooks are told of `app.budget.alert`
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=99))]
    alert_percent: u32,
    /// Stop the application's CVMs when the month costs more, and keep them stopped
    #[arg(long)]
    stop: bool,
}

/// Arguments of `budget show`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    app: AppName,
}

/// Arguments of `budget remove`.
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    app: AppName,
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    let client = session.client()?;
    let document = match command {
        Command::Set(args) => {
            let app = args.app.id(&client).await?;
            let limit = amount_text(args.limit.0);
            let body =
                json!({ "monthly_limit": limit, "alert_percent": args.alert_percent, "stop": args.stop });
            client.put_document(&["apps", &app, "budget"], &body).await?
        }
        Command::Show(args) => {
            let app = args.app.id(&client).await?;
            client.get(&["apps", &app, "budget"], &[]).await?
        }
        Command::Remove(args) => {
            let app = args.app.id(&client).await?;
            client.delete(&["apps", &app, "budget"]).await?;
            session.output.say("The budget is removed; CVMs that it stopped can be started.");
            return Ok(());
        }
    };
    show(&document, session)
}

fn show(document: &Value, session: &Session) -> Result<(), Failure> {
    let output = &session.output;
    if output.json {
        output.document(document);
        return Ok(());
    }
    let budget: AppBudget = read(document)?;
    let state = match budget.state {
        BudgetState::Ok => "within it",
        BudgetState::Alert => "the share for alerts is reached",
        BudgetState::Exceeded => "used up",
    };
    let money = |amount: &str| Some(format!("{amount} {}", budget.currency));
    output.fields(&[
        ("Application", Some(budget.app_id.to_string())),
        ("Monthly limit", money(&budget.monthly_limit)),
        ("Alert at", Some(format!("{} %", budget.alert_percent))),
        ("Then CVMs", Some(if budget.stop { "are stopped" } else { "go on" }.to_owned())),
        ("Spent", Some(format!("{} {} in {}", budget.spent, budget.currency, budget.month))),
        ("State", Some(state.to_owned())),
    ]);
    Ok(())
}
