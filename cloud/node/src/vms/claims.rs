//! Who may be called by which instance identity.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use cloister_app_compose::InstanceId;
use uuid::Uuid;

/// The instance identities that guests told. A guest can say anything, and the ingress routes by these
/// identities: so each VM has one, and keeps it from all others for as long as it exists.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<HashMap<InstanceId, Uuid>>);

impl Claims {
    /// Whether `vm` may be called `instance`. It gives up what it was called before.
    pub(super) fn claim(&self, instance: InstanceId, vm: Uuid) -> bool {
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(holder) = claims.get(&instance) {
            return *holder == vm;
        }
        claims.retain(|_, holder| *holder != vm);
        claims.insert(instance, vm);
        true
    }

    /// Gives up what a VM that is gone was called.
    pub(super) fn release(&self, vm: Uuid) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, holder| *holder != vm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_holder_keeps_an_identity_until_it_is_gone() {
        let claims = Claims::default();
        let [first, second] = [1, 2].map(Uuid::from_u128);
        let [a, b] = [1, 2].map(|byte| InstanceId::from_bytes([byte; 20]));
        assert!(claims.claim(a, first) && claims.claim(a, first));
        assert!(!claims.claim(a, second));
        assert!(claims.claim(b, first), "one identity at a time");
        assert!(claims.claim(a, second));
        claims.release(first);
        assert!(claims.claim(b, second));
    }
}
