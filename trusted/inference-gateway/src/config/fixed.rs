//! Members that hold from one start to the next: what was opened, bound or told to clients by them stays.

use super::{ConfigError, GatewayConfig, checks};

struct Fixed {
    name: &'static str,
    is_same: fn(&GatewayConfig, &GatewayConfig) -> bool,
    keep: fn(&mut GatewayConfig, &GatewayConfig),
}

macro_rules! fixed {
    ($($name:ident),+ $(,)?) => {
        [$(Fixed {
            name: stringify!($name),
            is_same: |one, other| one.$name == other.$name,
            keep: |config, held| config.$name.clone_from(&held.$name),
        }),+]
    };
}

const FIXED: [Fixed; 14] = fixed![
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

impl GatewayConfig {
    /// The configuration as far as it can hold while another one does, and the members that have to wait for a start. Fails
    /// where what stays does not go with the rest.
    pub fn beside(mut self, held: &Self) -> Result<(Self, Vec<&'static str>), ConfigError> {
        let mut waiting = Vec::new();
        for Fixed { name, is_same, keep } in FIXED {
            if !is_same(&self, held) {
                keep(&mut self, held);
                waiting.push(name);
            }
        }
        if !waiting.is_empty() {
            checks::check(&self)?;
        }
        Ok((self, waiting))
    }
}
