//! People who log in: how passwords are hashed, and what second factors are made of. What is kept of them is in
//! `store/people.rs`, the pages are in `api/people`.
//!
//! The key that seals lies beside the fleet's authority, never in the database: a copy of the database alone makes no
//! codes, and no backup code is found in it by trying.

mod names;
mod passwords;
mod second_factors;

use std::path::Path;

use cloister_fleet_tls::{FleetTlsError, shared_secret};
use zeroize::Zeroizing;

use crate::clock::{NoRandomness, Random};
use crate::sealing::{SealError, Sealer};

pub(crate) use names::{is_mail_address, is_subject, is_username};
pub(crate) use passwords::{MIN_PASSWORD_CHARS, PasswordError, Unfit};
pub(crate) use second_factors::{Enrolment, Presented};

const KEY_FILE: &str = "second-factors.key";

/// Why people cannot log in.
#[derive(Debug, thiserror::Error)]
pub enum PeopleError {
    /// The key cannot be read or made.
    #[error(transparent)]
    Key(#[from] FleetTlsError),
    /// No randomness.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// The cipher refuses.
    #[error("second factors cannot be sealed")]
    Cipher,
    /// What is stored was not sealed with this key for this user.
    #[error(
        "the second factor of a user does not open with {KEY_FILE} of this installation; restore the file, or remove the \
         second factor: cloister accounts reset NAME --remove-second-factor"
    )]
    Foreign,
    /// The library refuses the secret.
    #[error("no codes can be made of the secret of a second factor")]
    Secret,
}

impl From<SealError> for PeopleError {
    fn from(error: SealError) -> Self {
        match error {
            SealError::Random(error) => Self::Random(error),
            SealError::Cipher => Self::Cipher,
        }
    }
}

/// Checks passwords and codes of people.
pub struct People {
    hashing: passwords::Hashing,
    key: Zeroizing<[u8; 32]>,
    sealer: Sealer,
}

impl People {
    /// With the key in a directory, which is made when there is none.
    pub fn open(dir: &Path, random: Random) -> Result<Self, PeopleError> {
        let key = Zeroizing::new(shared_secret(dir, KEY_FILE, random.bytes()?)?);
        Ok(Self { hashing: passwords::Hashing::default(), sealer: Sealer::new(&key)?, key })
    }
}
