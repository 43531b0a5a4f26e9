//! What a person chooses for a program that is to act in the person's name: where, and how much.

use cloister_management_api::KeyScope;
use maud::{Markup, html};

use super::form::Fields;
use crate::api::Api;
use crate::api::account::tokens::may_make;
use crate::api::error::ApiResult;
use crate::store::WorkspaceRow;

/// Scopes that a person chooses among, and what each is called.
const SCOPES: [(KeyScope, &str); 4] = [
    (KeyScope::Inference, "ask the inference gateway, and nothing else"),
    (KeyScope::Read, "look at everything"),
    (KeyScope::Deploy, "look, and change CVMs, applications and images"),
    (KeyScope::Admin, "all that you may"),
];
/// What to say of a form in which nothing is chosen that could be.
pub(in crate::api) const NOT_MADE: &str = "Choose one of your workspaces, and what is allowed there.";
/// What to say where no key can be made.
pub(in crate::api) const TOO_MANY_KEYS: &str =
    "This workspace has too many API keys, or made too many in the last minute. Delete some, or wait.";

/// Whether the workspace may have one more key now.
pub(in crate::api) async fn has_room(api: &Api, workspace_id: i64) -> ApiResult<bool> {
    match may_make(api, workspace_id).await {
        Ok(()) => Ok(true),
        Err(error) if error.status().is_client_error() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Fields for it, with no more than was asked for.
pub(in crate::api) fn fields(label: &str, workspaces: &[WorkspaceRow], asked: KeyScope) -> Markup {
    html! {
        label for="workspace" { "In the workspace" }
        select #workspace name="workspace" {
            @for workspace in workspaces { option value=(workspace.slug) { (workspace.name) " (" (workspace.slug) ")" } }
        }
        label for="allowed" { (label) }
        select #allowed name="allowed" {
            @for (offered, words) in SCOPES.iter().filter(|(offered, _)| asked.includes(*offered)) {
                option value=(offered.as_str()) selected[*offered == asked] { (words) }
            }
        }
    }
}

/// What was chosen; nothing, if it is not one of the person's workspaces, or more than was asked for.
pub(in crate::api) fn made<'a>(
    fields: &Fields,
    workspaces: &'a [WorkspaceRow],
    asked: KeyScope,
) -> Option<(&'a WorkspaceRow, KeyScope)> {
    let workspace = workspaces.iter().find(|workspace| workspace.slug == fields.text("workspace"))?;
    let scope = fields.text("allowed").parse().ok().filter(|scope| asked.includes(*scope))?;
    Some((workspace, scope))
}
