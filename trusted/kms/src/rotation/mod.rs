//! New roots and the end of old ones.
//!
//! A rotation makes a new root, which its predecessor signs. Keys come from the new one from then on, and
//! CVMs get those of older ones too, until they have told that they need them no more. Then the oldest root
//! is retired: its keys are destroyed.

use cloister_kms_api::admin::{ForgetCvm, RetireRoot, RotationStatus};
use cloister_kms_api::log::Event;
use cloister_kms_api::{KmsError, KmsErrorCode};

use crate::clock::Random;
use crate::state::{Keys, Snapshot, check_roots, make_root};

/// Most roots that have keys at the same time.
const MAX_LIVE_ROOTS: usize = 3;
/// Most CVMs that a status names.
const MAX_PENDING: usize = 1000;

impl Keys {
    /// Makes a new root. Not idempotent: each call makes one, while there are less than three with keys.
    pub(crate) async fn start_rotation(&self) -> Result<RotationStatus, KmsError> {
        self.change("start-rotation", |state, now| {
            let live = state.roots.iter().filter(|root| root.k256_key.is_some()).count();
            if live >= MAX_LIVE_ROOTS {
                return Err(refused(format!(
                    "there are {live} roots with keys; retire version {} first, see the status of the rotation \
                     for who still needs it",
                    state.oldest_live()
                )));
            }
            let before = Snapshot::of(state).map_err(|error| internal(&error))?;
            let (root, _) =
                make_root(Some(&before.current), Random::system(), now).map_err(|error| internal(&error))?;
            let event = Event::RotationStarted {
                root_version: root.info.version,
                k256_pubkey: root.info.k256_pubkey.clone(),
            };
            state.roots.push(root);
            check_roots(&state.roots).map_err(|error| internal(&error))?;
            Ok(((), vec![event]))
        })
        .await?;
        Ok(self.rotation_status())
    }

    /// How far the rotation is.
    pub(crate) fn rotation_status(&self) -> RotationStatus {
        self.holders(|holders| {
            let snapshot = self.snapshot();
            let (pending, pending_total, resealed) = holders.pending(snapshot.current.version(), MAX_PENDING);
            RotationStatus { roots: snapshot.root_infos(), resealed, pending, pending_total }
        })
    }

    /// Takes a CVM that will not come back from those that are waited for. Idempotent.
    pub(crate) async fn forget_cvm(&self, forget: ForgetCvm) -> Result<RotationStatus, KmsError> {
        self.forget((forget.app_id, forget.instance_id)).await?;
        Ok(self.rotation_status())
    }

    /// Destroys the keys of the oldest root that has any. Refuses while CVMs need them, unless it is forced.
    /// Idempotent: a root that is retired already stays so.
    pub(crate) async fn retire_root(&self, retire: RetireRoot) -> Result<RotationStatus, KmsError> {
        let RetireRoot { version, force } = retire;
        self.change("retire-root", move |state, now| {
            let (oldest, current) = (state.oldest_live(), state.current_version());
            if (1..oldest).contains(&version) {
                return Ok(((), Vec::new()));
            }
            if version == current {
                return Err(refused(format!(
                    "version {version} of the root is current; start a rotation first"
                )));
            }
            if version != oldest {
                return Err(refused(format!(
                    "roots are retired oldest first: the oldest with keys has version {oldest}"
                )));
            }
            let abandoned = state.holders.under(version);
            if abandoned > 0 && !force {
                return Err(refused(format!(
                    "{abandoned} CVMs have not re-sealed their data yet and would lose it; start them once \
                     more, forget those that were deleted, or force it"
                )));
            }
            state.holders.abandon(version);
            for root in state.roots.iter_mut().filter(|root| root.info.version == version) {
                root.ca_key = None;
                root.k256_key = None;
                root.info.retired_at = Some(now);
            }
            Ok(((), vec![Event::RootRetired { root_version: version, abandoned }]))
        })
        .await?;
        Ok(self.rotation_status())
    }
}

fn refused(reason: String) -> KmsError {
    KmsError::new(KmsErrorCode::BadRequest, reason)
}

fn internal(error: &dyn std::error::Error) -> KmsError {
    KmsError::new(KmsErrorCode::InternalError, error.to_string())
}
