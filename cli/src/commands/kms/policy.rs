//! `cloister kms policy`: the built-in rules.

use std::path::PathBuf;

use cloister_app_compose::{AppId, ComposeHash};
use cloister_kms_api::admin::{
    ALLOW_APP, AllowApp, GET_POLICY, PlatformRules, PolicyDocument, REVOKE_APP, SET_PLATFORM_RULES,
};
use serde_json::{Value, json};

use super::connection::{AdminArgs, read_text};
use crate::commands::Outcome;
use crate::failure::Failure;
use crate::output::{Align, Table};
use crate::session::Session;

/// The subcommands of `kms policy`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show the rules
    Show(ShowArgs),
    /// Let an app run a compose document
    Allow(AppArgs),
    /// Take that back; CVMs that run keep their keys until they restart
    Revoke(AppArgs),
    /// Replace the rules for images, platforms and other KMSes
    SetPlatformRules(RulesArgs),
}

/// Arguments of `kms policy show`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

/// Arguments of `kms policy allow` and `revoke`.
#[derive(Debug, clap::Args)]
pub(crate) struct AppArgs {
    /// App id
    app: AppId,
    /// Hash of the compose document
    compose_hash: ComposeHash,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Arguments of `kms policy set-platform-rules`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The file is JSON: {\"osImages\": [HASH…], \"devices\": [ID…], \"allowedTcbStatuses\": [\"UpToDate\"], \
\"deniedAdvisoryIds\": [], \"kmsMeasurements\": [HASH…]}. Without devices any will do; without osImages any that runs \
on a development platform, and none on hardware; an empty list lets none in.")]
pub(crate) struct RulesArgs {
    /// The rules
    file: PathBuf,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    let words = match command {
        Command::Show(args) => return show(&args, session).await,
        Command::Allow(args) => {
            change(&args, ALLOW_APP, session).await?;
            format!("{} may run {}.", args.app, args.compose_hash)
        }
        Command::Revoke(args) => {
            change(&args, REVOKE_APP, session).await?;
            format!("{} may no longer run {}.", args.app, args.compose_hash)
        }
        Command::SetPlatformRules(args) => {
            let rules: PlatformRules = serde_json::from_str(&read_text(&args.file)?).map_err(|error| {
                Failure::usage(format!("{} does not hold rules", args.file.display())).caused_by(error)
            })?;
            args.admin.open(session)?.call::<Value>(SET_PLATFORM_RULES, &rules).await?;
            "The rules are replaced.".to_owned()
        }
    };
    if session.output.json {
        session.output.document(&json!({}));
    } else {
        session.output.say(&words);
    }
    Ok(())
}

async fn change(args: &AppArgs, method: &str, session: &Session) -> Outcome {
    let pair = AllowApp::new(args.app, args.compose_hash);
    args.admin.open(session)?.call::<Value>(method, &pair).await.map(drop)
}

async fn show(args: &ShowArgs, session: &Session) -> Outcome {
    let policy: PolicyDocument = args.admin.open(session)?.call(GET_POLICY, &json!({})).await?;
    if session.output.json {
        session.output.document(&json!(policy));
        return Ok(());
    }
    let PolicyDocument { platform, apps } = policy;
    let list = |hashes: &[cloister_kms_api::Hex]| {
        let hashes: Vec<_> = hashes.iter().map(hex::encode).collect();
        if hashes.is_empty() { "none".to_owned() } else { hashes.join(", ") }
    };
    let or =
        |hashes: &Option<Vec<_>>, absent: &str| hashes.as_deref().map_or_else(|| absent.to_owned(), list);
    session.output.fields(&[
        ("Images", Some(or(&platform.os_images, "any in development, none on hardware"))),
        ("Devices", Some(or(&platform.devices, "any"))),
        ("TCB statuses", Some(platform.allowed_tcb_statuses.join(", "))),
        ("Denied advisories", Some(platform.denied_advisory_ids.join(", ")).filter(|ids| !ids.is_empty())),
        ("Other KMSes", Some(list(&platform.kms_measurements))),
    ]);
    let mut table = Table::new(&[("APP", Align::Left), ("COMPOSE HASH", Align::Left)]);
    for (app, hashes) in &apps {
        for hash in hashes {
            table.row([app.to_string(), hash.to_string()]);
        }
    }
    session.output.table(&table, "No app may run anything yet.");
    Ok(())
}
