//! `cloister usage`: what an application used, or inference, and what that costs.

use std::time::Duration;

use cloister_management_api::{AppUsage, InferenceUsage};

use super::Outcome;
use super::cvms::minute;
use super::revisions::AppName;
use crate::api::read;
use crate::args::path_segment;
use crate::output::{Align, Output, Table};
use crate::session::Session;

/// Longest time that a table may take.
const TABLE_TIMEOUT: Duration = Duration::from_hours(1);

/// Arguments of `usage`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples: cloister usage my-app --from 2026-11-01 --csv > november.csv
          cloister usage --inference --from 2026-11-01")]
pub(crate) struct Args {
    /// App id, or the name of one of its CVMs
    #[arg(value_name = "APP", value_parser = path_segment(), required_unless_present = "inference")]
    app: Option<String>,
    /// What the workspace used of inference, instead of an application
    #[arg(long, conflicts_with_all = ["app", "csv"])]
    inference: bool,
    /// Beginning, such as 2026-11-01 or 2026-11-01T12:00:00Z [default: seven days before the end]
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// End [default: now, or seven days after the beginning]
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// How many records, newest first
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=5000))]
    limit: u32,
    /// Print all records of the time as CSV, for spreadsheets
    #[arg(long, conflicts_with_all = ["json", "limit"])]
    csv: bool,
}

/// Shows the records and the sum.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    let limit = args.limit.to_string();
    let window = [("start_date", &args.from), ("end_date", &args.to)];
    let mut query: Vec<(&str, &str)> =
        window.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
    let Some(app) = args.app else {
        query.push(("limit", &limit));
        let document = client.get(&["workspace", "inference-usage"], &query).await?;
        if output.json {
            output.document(&document);
        } else {
            inference(&read(&document)?, output);
        }
        return Ok(());
    };
    let app = AppName::from(app).id(&client).await?;
    let path = ["apps", &app, "usage"];
    if args.csv {
        query.push(("format", "csv"));
        return client.copy(&path, &query, TABLE_TIMEOUT, |bytes| output.bytes(bytes)).await;
    }
    query.push(("limit", &limit));
    let document = client.get(&path, &query).await?;
    if output.json {
        output.document(&document);
        return Ok(());
    }
    let usage: AppUsage = read(&document)?;
    let mut table = Table::new(&[
        ("HOUR", Align::Left),
        ("CVM", Align::Left),
        ("TYPE", Align::Left),
        ("MINUTES", Align::Right),
        ("COST", Align::Right),
    ]);
    for record in &usage.usage {
        table.row([
            minute(record.billing_start),
            record.instance_id.clone(),
            record.usage_type.clone(),
            record.duration_minutes.to_string(),
            record.cost.to_string(),
        ]);
    }
    output.table(&table, "Nothing was used in this time.");
    if usage.total > 0 {
        let shown = usage.usage.len();
        output.say(&format!("{shown} of {} records; all of them cost {}.", usage.total, usage.total_cost));
    }
    Ok(())
}

/// Shows what was used of inference, and the sum.
fn inference(usage: &InferenceUsage, output: &Output) {
    let mut table = Table::new(&[
        ("HOUR", Align::Left),
        ("MODEL", Align::Left),
        ("KEY", Align::Left),
        ("REQUESTS", Align::Right),
        ("FAILED", Align::Right),
        ("TOKENS IN", Align::Right),
        ("TOKENS OUT", Align::Right),
        ("COST", Align::Right),
    ]);
    for record in &usage.usage {
        table.row([
            minute(record.hour),
            record.model.clone(),
            record.token_name.clone(),
            record.requests.to_string(),
            record.failed_attempts.to_string(),
            record.prompt_tokens.to_string(),
            record.completion_tokens.to_string(),
            record.cost.clone(),
        ]);
    }
    output.table(&table, "No inference was used in this time.");
    if usage.total > 0 {
        let shown = usage.usage.len();
        output.say(&format!(
            "{shown} of {} records; all of them cost {} {}.",
            usage.total, usage.total_cost, usage.currency
        ));
    }
}
