//! `cloister kms status`.

use cloister_kms_api::admin::{ROTATION_STATUS, RotationStatus};
use cloister_kms_api::{Meta, method};
use serde_json::{Value, json};

use super::connection::AdminArgs;
use super::rotate;
use crate::commands::Outcome;
use crate::failure::{Exit, Failure};
use crate::session::Session;

/// Arguments of `kms status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    admin: AdminArgs,
}

/// Shows what everybody can see, and the rotation to who has the administrator's token.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let (meta, rotation) = match args.admin.open(session) {
        Ok(directory) => {
            let meta: Meta = directory.call(method::META, &json!({})).await?;
            (meta, directory.call::<RotationStatus>(ROTATION_STATUS, &json!({})).await)
        }
        Err(failure) => {
            let directory = args.admin.connection().open(session)?;
            (directory.call::<Meta>(method::META, &json!({})).await?, Err(failure))
        }
    };
    if session.output.json {
        let rotation = rotation.as_ref().map_or(Value::Null, |rotation| json!(rotation));
        session.output.document(&json!({ "meta": meta, "rotation": rotation }));
        return Ok(());
    }
    show(&meta, session);
    match rotation {
        Ok(rotation) => rotate::show(&rotation, session),
        Err(failure) => quiet(failure, session)?,
    }
    Ok(())
}

/// Without a token there is no rotation to show; anything else is a failure.
fn quiet(failure: Failure, session: &Session) -> Outcome {
    if matches!(failure.exit, Exit::Unauthorised | Exit::Usage) {
        session.output.say(&format!("Progress of rotations is for the administrator: {failure}"));
        return Ok(());
    }
    Err(failure)
}

fn show(meta: &Meta, session: &Session) {
    let current = meta.roots.last();
    session.output.fields(&[
        ("Domain", Some(meta.domain.clone())),
        ("Version", Some(meta.version.clone())),
        (
            "Evidence",
            Some(if meta.is_dev { "development: NO HARDWARE PROTECTION" } else { "hardware" }.to_owned()),
        ),
        ("Current root", current.map(|root| root.version.to_string())),
        ("Root authority", current.map(|root| hex::encode(&root.ca_pubkey))),
        ("Root key (secp256k1)", Some(hex::encode(&meta.k256_pubkey))),
        ("Log verifier key", Some(meta.log_verifier_key.clone())),
        ("Contract", meta.kms_contract_address.clone()),
        ("Gateway app", meta.gateway_app_id.clone()),
    ]);
}
