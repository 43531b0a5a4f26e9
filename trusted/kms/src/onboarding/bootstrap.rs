use std::collections::BTreeMap;

use cloister_kms_api::log::Event;
use cloister_kms_api::{BootstrapResponse, Hex, KmsError, statements};

use super::domain::Domain;
use super::machine::Machine;
use super::{Onboarding, failed};
use crate::clock::Random;
use crate::state::{Keys, NewState, make_root};

impl Onboarding {
    /// The first root with evidence that this machine made it, in one durable step.
    pub(super) async fn make_first_root(
        &self,
        domain: &Domain,
    ) -> Result<(Keys, BootstrapResponse), KmsError> {
        let (root, secrets) =
            make_root(None, Random::system(), self.clock.now()).map_err(|error| failed(&error))?;
        let public = secrets.public().clone();
        drop(secrets);
        let report_data = statements::bootstrap_report_data(&public.ca_pubkey, &public.k256_pubkey);
        let machine = Machine::prove(&self.agent, &self.verifier, &report_data)
            .await
            .map_err(|error| failed(&error))?;
        let attestation = machine.evidence.versioned(&report_data).map_err(|error| failed(&error))?;
        let response = BootstrapResponse {
            public_key: Hex::from(public.ca_pubkey.clone()),
            attestation: Hex::from(attestation),
            measurement: Hex::from(machine.mr_aggregated),
            ca_pubkey: Hex::from(public.ca_pubkey),
            k256_pubkey: Hex::from(public.k256_pubkey),
        };
        let origin =
            Event::Bootstrapped { k256_pubkey: response.k256_pubkey.clone(), domain: domain.to_string() };
        let new = NewState {
            domain: domain.to_string(),
            roots: vec![root],
            bootstrap: Some(response.clone()),
            policy: (*self.rules).clone(),
            owned: BTreeMap::new(),
            origin,
        };
        let keys = self.create(new, "bootstrap").await?;
        Ok((keys, response))
    }

    /// Makes the state, where it may wait for the disk.
    pub(super) async fn create(&self, new: NewState, name: &'static str) -> Result<Keys, KmsError> {
        let store = self.store.clone();
        let created = tokio::task::spawn_blocking(move || store.create(new, name)).await;
        created.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
    }
}
