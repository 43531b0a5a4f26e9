//! Who may have keys.
//!
//! The caller's evidence is verified before anybody is asked here. What an authority refuses is
//! `UNAUTHORIZED` when it does not accept the platform (device, TCB status, advisories), and
//! `MEASUREMENT_NOT_FOUND` when it does not know what the platform measured.

use cloister_kms_api::KmsError;
use cloister_kms_api::admin::PolicyDocument;
use cloister_kms_api::log::AuthorizedAt;

mod boot_info;
mod chain;
mod reasons;
mod rules;
#[cfg(test)]
pub(crate) mod tests;
mod webhook;

pub(crate) use boot_info::{BootInfo, Form};
pub(crate) use chain::{ChainAuthority, Contract};
pub use rules::InvalidRules;
use rules::refuse_revoked;
pub(crate) use rules::{check_platform_rules, decide, decide_app};
pub(crate) use webhook::Webhook;
pub use webhook::WebhookError;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// Keys of an application.
    App,
    /// The roots, for another KMS.
    Kms,
}

/// An authority said yes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Gateway application; empty if there is none.
    pub(crate) gateway_app_id: String,
    /// Where a chain decides: the confirmed block that said yes; the newest one at that moment did, too.
    pub(crate) authorized_at: Option<AuthorizedAt>,
}

/// Who decides, besides the rules in the state.
#[derive(Debug, Clone)]
pub(crate) enum Authority {
    /// Nobody.
    BuiltIn,
    /// A service.
    Webhook(Webhook),
    /// A contract.
    Chain(ChainAuthority),
}

impl Authority {
    /// Whether the rules in the state decide.
    pub(crate) const fn is_built_in(&self) -> bool {
        matches!(self, Self::BuiltIn)
    }

    /// The contract that decides, if one does.
    pub(crate) const fn chain(&self) -> Option<&ChainAuthority> {
        match self {
            Self::BuiltIn | Self::Webhook(_) => None,
            Self::Chain(chain) => Some(chain),
        }
    }

    /// Asks; the rules in the state are `policy`. Evidence was verified before.
    pub(crate) async fn ask(
        &self,
        policy: &PolicyDocument,
        question: Question,
        boot: &BootInfo,
    ) -> Result<Grant, KmsError> {
        refuse_revoked(boot)?;
        match self {
            Self::BuiltIn => decide(policy, question, boot),
            Self::Webhook(webhook) => webhook.ask(question, boot).await,
            Self::Chain(chain) => chain.ask(question, boot).await,
        }
    }
}
