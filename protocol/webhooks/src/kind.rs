//! What can happen.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A name that no kind of event has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a kind of event that this service tells of")]
pub struct UnknownEvent;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal;)+) => {
        /// A kind of event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventKind {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl EventKind {
            /// All of them, in the order in which people read them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Its name on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// When it happens, in a sentence.
            #[must_use]
            pub const fn description(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

kinds! {
    /// A CVM was created, and its application runs.
    CvmCreated = "cvm.created";
    /// A CVM that was stopped runs again.
    CvmStarted = "cvm.started";
    /// A CVM could not be created.
    CvmCreateFailed = "cvm.create_failed";
    /// A CVM was restarted, and runs again.
    CvmRestarted = "cvm.restarted";
    /// A CVM has another configuration, or an operation on it failed, which `error` tells.
    CvmUpdated = "cvm.updated";
    /// A CVM was stopped or shut down.
    CvmStopped = "cvm.stopped";
    /// A CVM was deleted.
    CvmDeleted = "cvm.deleted";
    /// A change of a CVM waits until those who decide for its application allow it.
    UpdatePendingApproval = "cvm.update.pending_approval";
    /// A further CVM of an application waits until those who decide for it allow it.
    ReplicaPendingApproval = "cvm.replica.pending_approval";
    /// What an application cost this month passed the share of its budget that was set for alerts.
    BudgetAlert = "app.budget.alert";
    /// What an application cost this month passed its budget.
    BudgetExceeded = "app.budget.exceeded";
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EventKind {
    type Err = UnknownEvent;

    fn from_str(text: &str) -> Result<Self, UnknownEvent> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == text).ok_or(UnknownEvent)
    }
}

impl Serialize for EventKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for EventKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for EventKind {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .enum_values(Some(Self::ALL.iter().map(|kind| kind.as_str())))
            .description(Some("A kind of event."))
            .into()
    }
}

impl utoipa::ToSchema for EventKind {
    fn name() -> std::borrow::Cow<'static, str> {
        "WebhookEventKind".into()
    }
}
