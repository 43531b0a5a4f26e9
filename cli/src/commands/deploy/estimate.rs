//! What a deployment would cost.

use cloister_management_api::Estimate;
use serde_json::Value;

use super::Size;
use crate::api::{Client, read};
use crate::commands::Outcome;
use crate::output::{Align, Output, Table};

/// Members of a provision that say what a CVM costs; the others say where it goes.
const MEMBERS: [&str; 4] = ["instance_type", "vcpu", "memory", "disk_size"];

/// Asks for the costs and shows them; nothing is deployed.
pub(super) async fn run(client: &Client, size: &Size, output: &Output) -> Outcome {
    let mut members = size.members();
    members.retain(|name, _| MEMBERS.contains(&name.as_str()));
    let document = client.post(&["cvms", "estimate"], Some(&Value::Object(members))).await?;
    if output.json {
        output.document(&document);
        return Ok(());
    }
    let estimate: Estimate = read(&document)?;
    let mut table = Table::new(&[
        ("FOR", Align::Left),
        ("WHAT", Align::Left),
        ("HOUR", Align::Right),
        ("DAY", Align::Right),
        ("MONTH", Align::Right),
    ]);
    for part in estimate.parts {
        table.row([part.usage_type, part.what, part.hourly, part.daily, part.monthly]);
    }
    let all = estimate.instance_type.unwrap_or_default();
    table.row(["all".to_owned(), all, estimate.hourly, estimate.daily, estimate.monthly]);
    output.table(&table, "");
    let stopped = estimate.monthly_while_stopped;
    output.say(&format!(
        "Amounts in {}; a month has 730 hours, and costs {stopped} while the CVM is stopped. Nothing was deployed.",
        estimate.currency
    ));
    Ok(())
}
