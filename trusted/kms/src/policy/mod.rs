//! Who may have keys.
//!
//! The caller's evidence is verified before anybody is asked here. What an authority refuses is
//! `UNAUTHORIZED` when it does not accept the platform (device, TCB status, advisories), and
//! `MEASUREMENT_NOT_FOUND` when it does not know what the platform measured.

use cloister_kms_api::log::AuthorizedAt;

mod boot_info;
mod rules;
#[cfg(test)]
mod tests;
mod webhook;

pub(crate) use boot_info::{BootInfo, Form};
pub use rules::InvalidRules;
pub(crate) use rules::{check_platform_rules, decide, decide_app, refuse_revoked};
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
    /// Where a chain decides: the newest block that said yes.
    pub(crate) authorized_at: Option<AuthorizedAt>,
}

/// Who decides, besides the rules in the state.
#[derive(Debug, Clone)]
pub(crate) enum Authority {
    /// Nobody.
    BuiltIn,
    /// A service.
    Webhook(Webhook),
}

impl Authority {
    /// Whether the rules in the state decide.
    pub(crate) const fn is_built_in(&self) -> bool {
        matches!(self, Self::BuiltIn)
    }

    /// The contract that decides, if one does.
    pub(crate) fn contract(&self) -> Option<String> {
        match self {
            Self::BuiltIn | Self::Webhook(_) => None,
        }
    }
}
