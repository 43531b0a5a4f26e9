//! `cloister kms log show`.

use std::time::Duration;

use cloister_app_compose::AppId;
use cloister_kms_api::approvals::OwnerKey;
use cloister_kms_api::log::{Approval, AuthorizedAt, Caller, Event, Record, Released};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::pages::Pages;
use super::size;
use crate::commands::Outcome;
use crate::commands::kms::connection::ConnectionArgs;
use crate::session::Session;

/// Records that are shown unless more are asked for.
const LAST: u64 = 100;
/// Pause between looks for new records.
const PAUSE: Duration = Duration::from_secs(1);

/// Arguments of `kms log show`.
#[derive(Debug, clap::Args)]
#[command(after_help = "What is shown is not checked: cloister kms log verify")]
pub(crate) struct Args {
    /// Records of this app only, of the whole log
    #[arg(long, value_name = "ID")]
    app: Option<AppId>,
    /// Begin with this record [default: the last 100; with --app the first]
    #[arg(long, value_name = "INDEX")]
    start: Option<u64>,
    /// Go on with new records as they come
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Shows records, one line each.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let directory = args.connection.open(session)?;
    let mut end = size(&directory).await?;
    let first = if args.app.is_some() { 0 } else { end.saturating_sub(LAST) };
    let mut pages = Pages::from(&directory, args.start.unwrap_or(first));
    loop {
        while pages.next_index() < end {
            let first = pages.next_index();
            for (index, text) in (first..).zip(pages.page(end).await?) {
                show(index, &text, args.app.as_ref(), session);
            }
        }
        if !args.follow {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
        end = size(&directory).await?;
    }
}

fn show(index: u64, text: &str, only: Option<&AppId>, session: &Session) {
    let record = serde_json::from_str::<Record>(text).ok();
    let app = record.as_ref().and_then(|record| app(&record.event));
    if only.is_some_and(|only| app != Some(only)) {
        return;
    }
    if session.output.json {
        let record: Value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        session.output.line(&json!({ "index": index, "record": record }).to_string());
        return;
    }
    let line = match record {
        Some(Record { at, event }) => line(index, at, &event),
        // Of a later version.
        None => format!("{index:>8}  {}", text.replace(['\n', '\t'], " ")),
    };
    session.output.line(&line);
}

fn app(event: &Event) -> Option<&AppId> {
    match event {
        Event::Release { caller, .. } | Event::Refusal { caller, .. } => caller.app_id.as_ref(),
        Event::AppAllowed { app_id, .. }
        | Event::AppRevoked { app_id, .. }
        | Event::OwnersSet { app_id, .. }
        | Event::CvmForgotten { app_id, .. } => Some(app_id),
        Event::Bootstrapped { .. }
        | Event::Onboarded { .. }
        | Event::PlatformRulesSet { .. }
        | Event::RotationStarted { .. }
        | Event::RootRetired { .. } => None,
    }
}

/// One line of text: whoever is refused chooses some of the words.
fn line(index: u64, at: Timestamp, event: &Event) -> String {
    let (kind, what) = words(event);
    format!("{index:>8}  {at:.0}  {kind:<13}  {}", what.replace(['\n', '\t'], " "))
}

fn words(event: &Event) -> (&'static str, String) {
    match event {
        Event::Bootstrapped { k256_pubkey, domain } => {
            ("bootstrapped", format!("root 1 {k256_pubkey:?} of {domain}"))
        }
        Event::Onboarded { k256_pubkey, domain, source_url } => {
            ("onboarded", format!("root {k256_pubkey:?} of {domain} from {source_url}"))
        }
        Event::Release { released, caller, root_version, name_hash, authorized_at } => {
            let name = name_hash.as_ref().map(|hash| format!(" name {hash:?}")).unwrap_or_default();
            let block = authorized_at.as_ref().map(block).unwrap_or_default();
            let what =
                format!("{}{name} under root {root_version} to {}{block}", thing(*released), who(caller));
            ("release", what)
        }
        Event::Refusal { asked, caller, code, reason, count } => {
            let asked = asked.map_or("anything", thing);
            let times = if *count == 1 { String::new() } else { format!(" ({count} times)") };
            ("refusal", format!("{asked} to {}: {code}: {reason}{times}", who(caller)))
        }
        Event::AppAllowed { app_id, compose_hash, approval } => {
            ("app allowed", format!("{app_id} may run {compose_hash}{}", by(approval.as_ref())))
        }
        Event::AppRevoked { app_id, compose_hash, approval } => {
            ("app revoked", format!("{app_id} may no longer run {compose_hash}{}", by(approval.as_ref())))
        }
        Event::OwnersSet { app_id, owners, serial, approved_by } => {
            let keys: Vec<_> = owners.keys().iter().map(OwnerKey::fingerprint).collect();
            let (threshold, keys) = (owners.threshold(), keys.join(", "));
            let approval = Approval { serial: *serial, signers: approved_by.clone() };
            ("owners set", format!("{app_id}: {threshold} of {keys}{}", by(Some(&approval))))
        }
        Event::PlatformRulesSet { rules } => ("rules set", serde_json::to_string(rules).unwrap_or_default()),
        Event::RotationStarted { root_version, k256_pubkey } => {
            ("new root", format!("root {root_version} {k256_pubkey:?}"))
        }
        Event::CvmForgotten { app_id, instance_id, .. } => {
            let instance = instance_id.map_or_else(|| "without identity".to_owned(), |id| id.to_string());
            ("CVM forgotten", format!("app {app_id}, instance {instance}: old roots need not wait for it"))
        }
        Event::RootRetired { root_version, abandoned } => {
            ("root retired", format!("root {root_version}; {abandoned} CVMs still held data under it"))
        }
    }
}

/// Owners who approved.
fn by(approval: Option<&Approval>) -> String {
    approval.map_or_else(String::new, |Approval { serial, signers }| {
        let signers = if signers.is_empty() { "nobody".to_owned() } else { signers.join(", ") };
        format!(", approved by {signers} (serial {serial})")
    })
}

fn block(AuthorizedAt { chain_id, block_number, block_hash }: &AuthorizedAt) -> String {
    format!(" by block {block_number} ({block_hash:?}) of chain {chain_id}")
}

const fn thing(released: Released) -> &'static str {
    match released {
        Released::AppKeys => "app keys",
        Released::NamedKey => "named key",
        Released::Certificate => "certificate",
        Released::Roots => "ROOTS",
        Released::ResealConfirmed => "end of re-sealing",
    }
}

fn who(caller: &Caller) -> String {
    let Caller { app_id, compose_hash, instance_id, os_image_hash: _, device_id, mr_aggregated } = caller;
    let parts = [
        app_id.map(|id| format!("app {id}")),
        instance_id.map(|id| format!("instance {id}")),
        compose_hash.map(|hash| format!("compose {hash}")),
        device_id.as_ref().map(|id| format!("device {id:?}")),
        mr_aggregated.as_ref().map(|hash| format!("machine {hash:?}")),
    ];
    let known: Vec<_> = parts.into_iter().flatten().collect();
    if known.is_empty() { "somebody without evidence".to_owned() } else { known.join(", ") }
}
