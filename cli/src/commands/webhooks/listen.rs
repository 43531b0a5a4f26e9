//! `cloister webhooks listen`: events of the workspace, forwarded to a program on this machine.

use std::time::Duration;

use cloister_webhooks::{Envelope, Headered, Secret, sign};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};
use url::Url;
use zeroize::Zeroizing;

use super::{Outcome, PATH, now};
use crate::api::{Client, Event, kept_on_this_machine};
use crate::failure::{Exit, Failure};
use crate::output::{Output, Tone};

/// Longest life of a stream; the server ends it earlier.
const STREAM_LIFETIME: Duration = Duration::from_mins(10);
/// As webhooks have.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pauses before a stream is opened again, after it ended well and after the server did not answer.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What stands for the id of a webhook.
const LISTENER: &str = "listen";

/// Arguments of `webhooks listen`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister webhooks listen --forward-to http://localhost:3000/hook\n\
                        Requests are signed as those of webhooks are, with a secret that is printed once and \
                        forgotten with the command. What fails is not sent again.")]
pub(crate) struct Args {
    /// Address that each event is posted to
    #[arg(long, value_name = "URL", value_parser = web_address)]
    forward_to: Url,
    /// Kinds of events, with commas [default: all]
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    events: Vec<String>,
}

fn web_address(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        _ => Err("write it like http://localhost:3000/hook".to_owned()),
    }
}

/// Forwards until somebody ends it, or the server refuses for good.
pub(super) async fn run(args: Args, client: &Client, output: &Output) -> Outcome {
    let mut random = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *random)
        .map_err(|error| Failure::local("cannot make a secret", std::io::Error::from(error)))?;
    let forwarder = Forwarder::new(args.forward_to, Secret::generate(*random), output)?;
    forwarder.introduce();
    let mut place: Option<String> = None;
    let mut pause = PAUSE;
    loop {
        let mut query: Vec<_> = args.events.iter().map(|kind| ("events", kind.as_str())).collect();
        query.extend(place.as_deref().map(|place| ("after", place)));
        match client.events(&[PATH[0], PATH[1], "events", "stream"], &query, STREAM_LIFETIME).await {
            Ok(mut events) => {
                pause = PAUSE;
                while let Some(event) = events.next().await {
                    forwarder.take(&event).await;
                    place = event.id.or(place);
                }
            }
            Err(failure) if matches!(failure.exit, Exit::Unreachable | Exit::Conflict) => {
                output.say(&format!("{}; trying again", failure.chain()));
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(failure) => return Err(failure),
        }
        sleep(pause).await;
    }
}

/// Sends events to a program.
struct Forwarder<'a> {
    http: reqwest::Client,
    to: Url,
    secret: Secret,
    output: &'a Output,
}

impl<'a> Forwarder<'a> {
    fn new(to: Url, secret: Secret, output: &'a Output) -> Result<Self, Failure> {
        let builder =
            reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(ANSWER_TIMEOUT);
        let http = kept_on_this_machine(builder, &to)
            .build()
            .map_err(|error| Failure::local("cannot prepare TLS", error))?;
        Ok(Self { http, to, secret, output })
    }

    /// The one time that the secret is shown.
    fn introduce(&self) {
        if self.output.json {
            self.output.document(&json!({ "forwarding_to": self.to, "secret": self.secret.expose() }));
            return;
        }
        self.output.say(&format!("Forwarding events to {}; end with Ctrl-C.", self.to));
        self.output.say(&format!("Secret of this session: {}", self.secret.expose()));
    }

    /// Forwards what is an event, and says what became of it.
    async fn take(&self, event: &Event) {
        let Ok(envelope) = serde_json::from_str::<Envelope>(&event.data) else {
            // `ready` and `end`, or a kind that this version does not know.
            if !matches!(event.name.as_str(), "ready" | "end") {
                self.output
                    .say(&format!("{} is a kind of event that this version does not know", event.name));
            }
            return;
        };
        let began = Instant::now();
        let answer = self.post(&envelope, &event.data).await;
        let took_ms = began.elapsed().as_millis();
        let (status, error) = match answer {
            Ok(status) => (status, None),
            Err(error) => (0, Some(error)),
        };
        if self.output.json {
            let mut line = Map::new();
            line.insert("event_id".to_owned(), json!(envelope.id));
            line.insert("event_type".to_owned(), json!(envelope.event));
            line.insert("response_status".to_owned(), json!(status));
            line.insert("error_message".to_owned(), json!(error.unwrap_or_default()));
            line.insert("duration_ms".to_owned(), json!(u64::try_from(took_ms).unwrap_or(u64::MAX)));
            self.output.document(&Value::Object(line));
            return;
        }
        let tone = if (200..300).contains(&status) { Tone::Good } else { Tone::Bad };
        let result = error.unwrap_or_else(|| status.to_string());
        let result = self.output.painted(&result, tone);
        self.output.line(&format!("{}  {}  {result}  {took_ms} ms", envelope.id, envelope.event));
    }

    /// The status of the answer, or why there is none.
    async fn post(&self, envelope: &Envelope, body: &str) -> Result<u16, String> {
        let event = Headered { webhook_id: LISTENER, event_id: &envelope.id, kind: envelope.event };
        let secrets = std::slice::from_ref(&self.secret);
        let headers = sign(secrets, &event, now().as_second(), body.as_bytes());
        let request = self.http.post(self.to.clone()).body(body.to_owned());
        let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        match request.send().await {
            Ok(answer) => Ok(answer.status().as_u16()),
            Err(error) if error.is_timeout() => Err("no answer in 10 s".to_owned()),
            Err(error) if error.is_connect() => Err("nothing listens there".to_owned()),
            Err(error) => Err(error.without_url().to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_web_are_forwarded_to() {
        assert!(web_address("http://localhost:3000/hook").is_ok());
        for text in ["", "localhost:3000", "file:///etc/passwd", "ftp://localhost/", "/hook"] {
            assert!(web_address(text).is_err(), "{text}");
        }
    }
}
