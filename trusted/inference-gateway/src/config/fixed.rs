//! Members that hold from one start to the next: what was opened, bound or told to clients by them stays.

use super::GatewayConfig;

type IsSame = fn(&GatewayConfig, &GatewayConfig) -> bool;

macro_rules! fixed {
    ($($name:ident),+ $(,)?) => {
        [$((stringify!($name), (|one, other| one.$name == other.$name) as IsSame)),+]
    };
}

const FIXED: [(&str, IsSame); 14] = fixed![
    bind,
    metrics_bind,
    state_dir,
    tls,
    body_memory_mib,
    receipts,
    traces,
    trust,
    agent_socket,
    subject,
    source,
    keyset_lifetime_s,
    enable_e2ee,
    direct_serving,
];

/// Requests under way belong to who admitted them.
const CONTROL: (&str, IsSame) = ("control", |one, other| one.control.is_some() == other.control.is_some());

impl GatewayConfig {
    /// Members by which another configuration needs a start, in the order of the table.
    #[must_use]
    pub fn fixed_otherwise(&self, other: &Self) -> Vec<&'static str> {
        let all = FIXED.into_iter().chain([CONTROL]);
        all.filter(|(_, is_same)| !is_same(self, other)).map(|(name, _)| name).collect()
    }
}
