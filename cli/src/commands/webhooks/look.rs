//! Looking at webhooks and at what was sent to them.

use cloister_management_api::{Webhook, WebhookAttempt, WebhookDelivery, WebhookEventType, WebhookFigures};
use jiff::Timestamp;
use serde_json::Value;

use super::{One, Outcome, PATH};
use crate::api::{Client, read};
use crate::args::path_segment;
use crate::commands::cvms::minute;
use crate::output::{Align, Output, Table};

/// Arguments of `webhooks list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {}

/// Arguments of `webhooks event-types`.
#[derive(Debug, clap::Args)]
#[command(after_help = "With --json each kind comes with a JSON Schema of its body and an example.")]
pub(crate) struct EventTypesArgs {}

/// Arguments of `webhooks deliveries`.
#[derive(Debug, clap::Args)]
pub(crate) struct DeliveriesArgs {
    #[command(flatten)]
    one: One,
    /// Most deliveries that are listed
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
    /// How many of the newest to leave out
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    offset: u32,
}

/// Arguments of `webhooks attempts`.
#[derive(Debug, clap::Args)]
pub(crate) struct AttemptsArgs {
    #[command(flatten)]
    one: One,
    /// Event id of the delivery, or its number
    #[arg(value_name = "EVENT", value_parser = path_segment())]
    event: String,
}

pub(super) async fn list(client: &Client, output: &Output) -> Outcome {
    let document = client.get(&PATH, &[]).await?;
    if output.json {
        output.document(&document);
        return Ok(());
    }
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("NAME", Align::Left),
        ("ENABLED", Align::Left),
        ("URL", Align::Left),
        ("EVENTS", Align::Left),
    ]);
    for webhook in read::<Vec<Webhook>>(&document)? {
        table.row([
            webhook.id.to_string(),
            webhook.name.unwrap_or_default(),
            yes_or_no(webhook.enabled),
            webhook.url,
            webhook.events.join(" "),
        ]);
    }
    output
        .table(&table, "There are no webhooks. Make one: cloister webhooks create URL --events cvm.created");
    Ok(())
}

pub(super) fn show(document: &Value, output: &Output) -> Outcome {
    if output.json {
        output.document(document);
        return Ok(());
    }
    let webhook: Webhook = read(document)?;
    output.fields(&[
        ("Webhook", Some(webhook.id.to_string())),
        ("Name", webhook.name),
        ("URL", Some(webhook.url)),
        ("Events", Some(webhook.events.join(" "))),
        ("Enabled", Some(yes_or_no(webhook.enabled))),
        ("Disabled because", webhook.disabled_reason),
        ("Secret", webhook.secret),
        ("Old secret signs until", webhook.previous_secret_until.map(minute)),
        ("Created", Some(minute(webhook.created_at))),
        ("Changed", Some(minute(webhook.updated_at))),
    ]);
    Ok(())
}

pub(super) async fn stats(one: &One, client: &Client, output: &Output) -> Outcome {
    let document = client.get(&one.below("stats"), &[]).await?;
    if output.json {
        output.document(&document);
        return Ok(());
    }
    let figures: WebhookFigures = read(&document)?;
    output.fields(&[
        ("Deliveries", Some(figures.total.to_string())),
        ("Succeeded", Some(format!("{} ({} %)", figures.success_count, figures.success_rate))),
        ("Failed", Some(figures.failed_count.to_string())),
        ("Mean duration", Some(format!("{} ms", figures.avg_duration_ms))),
        ("Longest", Some(format!("{} ms", figures.max_duration_ms))),
        ("Last delivered", figures.last_delivery_at.map(second)),
    ]);
    Ok(())
}

pub(super) async fn deliveries(args: &DeliveriesArgs, client: &Client, output: &Output) -> Outcome {
    let (limit, offset) = (args.limit.to_string(), args.offset.to_string());
    let query = [("limit", limit.as_str()), ("offset", offset.as_str())];
    let document = client.get(&args.one.below("deliveries"), &query).await?;
    if output.json {
        output.document(&document);
        return Ok(());
    }
    let mut table = Table::new(&[
        ("EVENT", Align::Left),
        ("KIND", Align::Left),
        ("BEGAN", Align::Left),
        ("RESULT", Align::Left),
        ("ATTEMPTS", Align::Right),
        ("STATUS", Align::Right),
        ("ERROR", Align::Left),
    ]);
    for delivery in read::<Vec<WebhookDelivery>>(&document)? {
        table.row([
            delivery.event_id,
            delivery.event_type,
            second(delivery.created_at),
            delivery.status,
            delivery.attempts.to_string(),
            status(delivery.response_status),
            delivery.error_message,
        ]);
    }
    output.table(&table, "Nothing was sent to it in the last 30 days.");
    Ok(())
}

pub(super) async fn attempts(args: &AttemptsArgs, client: &Client, output: &Output) -> Outcome {
    let path = [PATH[0], PATH[1], &args.one.webhook, "deliveries", &args.event, "attempts"];
    let document = client.get(&path, &[]).await?;
    if output.json {
        output.document(&document);
        return Ok(());
    }
    let mut table = Table::new(&[
        ("NUMBER", Align::Right),
        ("BEGAN", Align::Left),
        ("RESULT", Align::Left),
        ("MS", Align::Right),
        ("STATUS", Align::Right),
        ("ERROR", Align::Left),
    ]);
    for attempt in read::<Vec<WebhookAttempt>>(&document)? {
        table.row([
            attempt.number.to_string(),
            second(attempt.began_at),
            attempt.outcome,
            attempt.duration_ms.to_string(),
            status(attempt.response_status),
            attempt.error_message,
        ]);
    }
    output.table(&table, "No attempt was made yet.");
    Ok(())
}

pub(super) async fn event_types(client: &Client, output: &Output) -> Outcome {
    let document = client.get(&[PATH[0], PATH[1], "event-types"], &[]).await?;
    if output.json {
        output.document(&document);
        return Ok(());
    }
    let mut table = Table::new(&[("KIND", Align::Left), ("TOLD WHEN", Align::Left)]);
    for kind in read::<Vec<WebhookEventType>>(&document)? {
        table.row([kind.event, kind.description]);
    }
    output.table(&table, "The server tells of nothing.");
    Ok(())
}

fn yes_or_no(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

/// A status of HTTP; 0 stands for none.
fn status(status: i64) -> String {
    if status == 0 { String::new() } else { status.to_string() }
}

fn second(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S").to_string()
}
