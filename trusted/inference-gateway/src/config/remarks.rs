//! What is allowed in a configuration, and seldom meant.

use std::collections::BTreeSet;

use url::{Host, Url};

use super::{GatewayConfig, Pricing};
use crate::upstream::names::of_this_machine;

impl GatewayConfig {
    /// What an operator should know of it, each with its member first.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.keys.is_empty() && self.control.is_none() {
            remarks.push("keys: there are none, and no control: nobody may ask".to_owned());
        }
        if self.agent_socket.is_none() {
            remarks.push(
                "agent_socket: there is none: keys are made anew at each start, and nothing can be proved"
                    .to_owned(),
            );
        }
        if self.tls.is_none() && !self.bind.ip().is_loopback() {
            remarks.push(
                "bind: without tls, keys and prompts come in clear, unless something in front ends TLS"
                    .to_owned(),
            );
        }
        for (index, upstream) in self.upstreams.iter().enumerate() {
            if upstream.base_url.scheme() == "http" && !is_loopback(&upstream.base_url) {
                remarks.push(format!(
                    "upstreams[{index}].base_url: prompts go there in clear, and so does a bearer_token"
                ));
            }
        }
        let served: BTreeSet<&str> =
            self.upstreams.iter().flat_map(|upstream| upstream.models.keys()).map(String::as_str).collect();
        for (index, key) in self.keys.iter().enumerate() {
            let unknown: Vec<&str> =
                key.models.iter().flatten().map(String::as_str).filter(|id| !served.contains(id)).collect();
            if !unknown.is_empty() {
                remarks.push(format!("keys[{index}].models: nobody serves {}", unknown.join(", ")));
            }
        }
        let free: Vec<&str> = served.into_iter().filter(|id| self.is_free(id)).collect();
        if !free.is_empty() && self.control.is_none() {
            remarks.push(format!("models: without a price, and so free: {}", free.join(", ")));
        }
        remarks
    }

    /// Whether some upstream serves a model at no price.
    fn is_free(&self, id: &str) -> bool {
        let of_all = self.models.iter().find(|model| model.id == id).map(|model| &model.pricing);
        let mut serving = self.upstreams.iter().filter(|upstream| upstream.models.contains_key(id));
        serving.any(|upstream| {
            upstream.pricing.get(id).or(of_all).is_none_or(|pricing| *pricing == Pricing::default())
        })
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => of_this_machine(name).is_some(),
        None => false,
    }
}
