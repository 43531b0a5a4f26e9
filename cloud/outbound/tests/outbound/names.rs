//! A resolver that says what a test tells it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::Mutex;

use cloister_outbound::{Lookup, LookupError, Outbound, OutboundConfig, Resolve};

type Found = Result<Vec<IpAddr>, LookupError>;

/// Answers by name: one after the other, the last for ever.
#[derive(Debug, Default)]
pub(crate) struct Names {
    answers: Mutex<HashMap<String, Vec<Found>>>,
    asked: Mutex<Vec<String>>,
}

impl Names {
    pub(crate) fn of(entries: &[(&str, &[&str])]) -> Arc<Self> {
        let names = Self::default();
        for (name, answers) in entries {
            names.then(name, answers);
        }
        Arc::new(names)
    }

    /// What is answered next, after what was said before.
    pub(crate) fn then(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.answers.lock().unwrap().entry(name.to_owned()).or_default().push(Ok(addresses));
    }

    pub(crate) fn fail(&self, name: &str, error: LookupError) {
        self.answers.lock().unwrap().entry(name.to_owned()).or_default().push(Err(error));
    }

    /// All names that were asked for, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Resolve for Names {
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(host.to_owned());
            let mut answers = self.answers.lock().unwrap();
            let answers = answers.get_mut(host).ok_or(LookupError::Unknown)?;
            if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
        })
    }
}

/// A client of an operator who allows nothing but public addresses.
pub(crate) fn strict() -> Outbound {
    Outbound::new(OutboundConfig::default(), Names::of(&[]))
}

/// A client of an operator who allows the loopback, also without TLS.
pub(crate) fn local(names: Arc<Names>) -> Outbound {
    allowing(&["127.0.0.0/8", "::1/128"], true, names)
}

pub(crate) fn allowing(networks: &[&str], plain_http_to_allowed: bool, names: Arc<Names>) -> Outbound {
    let allowed = networks.iter().map(|network| network.parse().unwrap()).collect();
    Outbound::new(OutboundConfig { allowed, plain_http_to_allowed, extra_roots: Vec::new() }, names)
}
