//! Who changes something, as far as the code that changes it does not have to know: a scope around a request, in which
//! every committed [`crate::store::Change`] leaves a record in the transaction of what it changed.
//!
//! Without a scope nothing is recorded: workers, drivers and reports carry out what somebody asked for, and that was
//! recorded when it was accepted. What the service begins by itself names itself with [`as_system`].

mod head;

use std::sync::{Arc, OnceLock};

use cloister_management_api::{AuditActor, TokenId, UserId};

use crate::clock::Clock;
use crate::store::{Caller, Run};

pub(crate) use head::HeadKey;

/// The chain of the installation; every other one is that of the workspace with its number.
pub(crate) const INSTALLATION: i64 = 0;

tokio::task_local! {
    static SCOPE: Arc<Scope>;
}

/// Parts of the service that change something without a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    /// A budget that is used up stops CVMs.
    Budget,
    /// A deletion that was asked for and is due.
    ScheduledDelete,
    /// A node that joined with an invitation.
    Node,
    /// Somebody at the control plane's own machine.
    Operator,
}

impl System {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::ScheduledDelete => "scheduled delete",
            Self::Node => "node",
            Self::Operator => "operator",
        }
    }
}

/// What is changed, as far as the request itself says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// What kind of thing the operation changes.
    pub(crate) kind: &'static str,
    /// What the request calls it; empty where it names nothing.
    pub(crate) id: String,
}

/// Who changes something, with which operation, and in which chain that is recorded.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) actor: AuditActor,
    pub(crate) request_id: Option<String>,
    pub(crate) operation: &'static str,
    pub(crate) named: Named,
    pub(crate) clock: Clock,
    chain: OnceLock<i64>,
    run: OnceLock<Run>,
}

impl Scope {
    /// Somebody whose chain is found later, at the latest by [`in_workspace`].
    pub(crate) fn new(actor: AuditActor, operation: &'static str, named: Named, clock: Clock) -> Self {
        Self {
            actor,
            request_id: None,
            operation,
            named,
            clock,
            chain: OnceLock::new(),
            run: OnceLock::new(),
        }
    }

    /// The same for a request.
    pub(crate) fn of_request(mut self, id: Option<String>) -> Self {
        self.request_id = id;
        self
    }

    /// The same in a chain.
    pub(crate) fn in_chain(self, chain: i64) -> Self {
        let _ = self.chain.set(chain);
        self
    }

    /// Says that all of it is one run of a request, which has its effect once.
    pub(crate) fn is_run(&self, run: Run) {
        let _ = self.run.set(run);
    }

    /// The run of a request that all of it is.
    pub(crate) fn run(&self) -> Option<&Run> {
        self.run.get()
    }

    /// Its chain; that of the installation where nobody said.
    pub(crate) fn chain(&self) -> i64 {
        self.chain.get().copied().unwrap_or(INSTALLATION)
    }
}

/// Whoever has an API key.
pub(crate) fn key_holder(caller: &Caller) -> AuditActor {
    AuditActor {
        kind: "key".to_owned(),
        name: Some(caller.username.clone()),
        user_id: Some(UserId(caller.user_id)),
        key_id: Some(TokenId(caller.api_key_id)),
        key_prefix: Some(caller.key_prefix.clone()),
    }
}

/// Somebody who logged in, or uses a link that is for that user.
pub(crate) fn person(username: &str, user_id: i64) -> AuditActor {
    AuditActor { user_id: Some(UserId(user_id)), ..nobody("person", Some(username)) }
}

/// Somebody who gets an account by this.
pub(crate) fn newcomer(username: &str) -> AuditActor {
    nobody("person", Some(username))
}

/// Whoever does not show who it is.
pub(crate) fn stranger() -> AuditActor {
    nobody("stranger", None)
}

/// Whoever has the token of a prepared change.
pub(crate) fn token_holder() -> AuditActor {
    nobody("commit_token", None)
}

fn nobody(kind: &str, name: Option<&str>) -> AuditActor {
    AuditActor {
        kind: kind.to_owned(),
        name: name.map(str::to_owned),
        user_id: None,
        key_id: None,
        key_prefix: None,
    }
}

/// The scope of what runs now.
pub(crate) fn current() -> Option<Arc<Scope>> {
    SCOPE.try_with(Arc::clone).ok()
}

/// Runs something in a scope. A task that is spawned in it is not in it.
pub(crate) async fn within<F: Future>(scope: impl Into<Arc<Scope>>, work: F) -> F::Output {
    SCOPE.scope(scope.into(), work).await
}

/// Runs something that the service does by itself to something of a kind, in the chain of a workspace or of the
/// installation.
pub(crate) async fn as_system<F: Future>(
    system: System,
    (operation, kind): (&'static str, &'static str),
    chain: i64,
    clock: &Clock,
    work: F,
) -> F::Output {
    let actor = nobody("system", Some(system.as_str()));
    let named = Named { kind, id: String::new() };
    let scope = Scope::new(actor, operation, named, clock.clone());
    within(scope.in_chain(chain), work).await
}

/// Says whose chain it is, where a request itself tells nothing but a token. The first word counts.
pub(crate) fn in_workspace(workspace_id: i64) {
    if let Some(scope) = current() {
        let _ = scope.chain.set(workspace_id);
    }
}
