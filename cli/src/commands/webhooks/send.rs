//! Having something sent: a test, an event again, all of a time again.

use std::str::FromStr;
use std::time::Duration;

use cloister_management_api::{WebhookAttempt, WebhookDelivery, WebhookReplay};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use super::{One, Outcome, PATH, now, told};
use crate::api::{Client, read};
use crate::args::path_segment;
use crate::failure::{Exit, Failure};
use crate::output::Output;

/// Pause between two looks at a delivery.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// A receiver has 10 seconds to answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Arguments of `webhooks resend`.
#[derive(Debug, clap::Args)]
pub(crate) struct ResendArgs {
    #[command(flatten)]
    one: One,
    /// Event id of a delivery, see `cloister webhooks deliveries`
    #[arg(value_name = "EVENT", value_parser = path_segment())]
    event: String,
}

/// Arguments of `webhooks replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister webhooks replay wh_… --since 2h --only-failed")]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    one: One,
    /// Events from this time on: a time such as 2026-01-21T10:00:00Z, or how long ago, such as 90m, 2h or 3d
    #[arg(long, value_name = "TIME")]
    since: Moment,
    /// Events before this time [default: now]
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
    /// Only events that never reached the receiver
    #[arg(long)]
    only_failed: bool,
}

/// A time, or how long ago it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    At(Timestamp),
    Ago(SignedDuration),
}

impl Moment {
    fn at(self, now: Timestamp) -> Result<Timestamp, Failure> {
        match self {
            Self::At(time) => Ok(time),
            Self::Ago(span) => now
                .checked_sub(span)
                .map_err(|error| Failure::usage("the time is too long ago").caused_by(error)),
        }
    }
}

impl FromStr for Moment {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(time) = text.parse() {
            return Ok(Self::At(time));
        }
        let seconds = [('s', 1), ('m', 60), ('h', 60 * 60), ('d', 24 * 60 * 60)];
        let ago = seconds.into_iter().find_map(|(unit, seconds)| {
            let count: u32 = text.strip_suffix(unit)?.parse().ok()?;
            i64::from(count).checked_mul(seconds).map(SignedDuration::from_secs)
        });
        ago.map(Self::Ago).ok_or("write a time like 2026-01-21T10:00:00Z, or how long ago like 90m, 2h or 3d")
    }
}

pub(super) async fn test(one: &One, client: &Client, output: &Output) -> Outcome {
    let document = client.post(&one.below("test"), None).await?;
    let delivery: WebhookDelivery = read(&document)?;
    let path = [PATH[0], PATH[1], &one.webhook, "deliveries", &delivery.event_id, "attempts"];
    let deadline = Instant::now() + PATIENCE;
    loop {
        let document = client.get(&path, &[]).await?;
        let attempts: Vec<WebhookAttempt> = read(&document)?;
        let ended =
            attempts.into_iter().find(|attempt| matches!(attempt.outcome.as_str(), "success" | "failed"));
        if let Some(attempt) = ended {
            if output.json {
                output.document(&document);
            }
            return judged(&attempt, &delivery, output);
        }
        if Instant::now() > deadline {
            return Err(Failure::new(
                Exit::TimedOut,
                "the test was not answered yet; it is tried again later",
            )
            .hint(format!("see what became of it: cloister webhooks deliveries {}", one.webhook)));
        }
        sleep(LOOK_EVERY).await;
    }
}

fn judged(attempt: &WebhookAttempt, delivery: &WebhookDelivery, output: &Output) -> Outcome {
    let WebhookAttempt { response_status: status, duration_ms, error_message, .. } = attempt;
    if attempt.outcome == "success" {
        if !output.json {
            output.say(&format!("{} was taken: {status} after {duration_ms} ms", delivery.event_type));
        }
        return Ok(());
    }
    let reason = match (status, error_message.as_str()) {
        (_, text) if !text.is_empty() => text.to_owned(),
        (status, _) => format!("the receiver answered {status}"),
    };
    Err(Failure::new(Exit::Failed, format!("the test failed: {reason}"))
        .hint("it is tried again after 1 minute, 10 minutes and an hour, as events are"))
}

pub(super) async fn resend(args: &ResendArgs, client: &Client, output: &Output) -> Outcome {
    let path = [PATH[0], PATH[1], &args.one.webhook, "deliveries", &args.event, "resend"];
    let document = client.post(&path, None).await?;
    let id = read::<WebhookDelivery>(&document)?.event_id;
    told(output, &document, &format!("{} is on its way again, as {id}.", args.event));
    Ok(())
}

pub(super) async fn replay(args: &ReplayArgs, client: &Client, output: &Output) -> Outcome {
    let now = now();
    let until = args.until.map_or(Ok(now), |until| until.at(now))?;
    // The end is fixed, so that what is sent meanwhile is not sent again.
    let mut body = Map::new();
    body.insert("since".to_owned(), json!(args.since.at(now)?));
    body.insert("until".to_owned(), json!(until));
    body.insert("only_failed".to_owned(), json!(args.only_failed));
    let (path, mut count) = (args.one.below("replay"), 0);
    loop {
        let replay: WebhookReplay = read(&client.post(&path, Some(&Value::Object(body.clone()))).await?)?;
        count += replay.count;
        let Some(after) = replay.next_after else { break };
        body.insert("after".to_owned(), json!(after));
    }
    told(output, &json!({ "count": count }), &format!("{count} events are on their way again."));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_people_write_them() {
        let now: Timestamp = "2026-01-21T10:00:00Z".parse().unwrap();
        let at = |text: &str| text.parse::<Moment>().map(|moment| moment.at(now).unwrap().to_string());
        assert_eq!(at("2h"), Ok("2026-01-21T08:00:00Z".to_owned()));
        assert_eq!(at("3d"), Ok("2026-01-18T10:00:00Z".to_owned()));
        assert_eq!(at("2026-01-20T00:00:00+02:00"), Ok("2026-01-19T22:00:00Z".to_owned()));
        for text in ["", "h", "-2h", "2 h", "2w", "yesterday", "99999999999d"] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
        assert!("4294967295d".parse::<Moment>().unwrap().at(now).is_err());
    }
}
