//! Passwords: Argon2id (RFC 9106) with what OWASP's Password Storage Cheat Sheet asks for, 19 MiB, two passes, one lane.

use std::sync::Arc;

use argon2::{Argon2, PasswordHasher, PasswordVerifier};
use tokio::sync::{Semaphore, TryAcquireError};
use zeroize::Zeroizing;

use super::People;
use crate::clock::Random;

/// Fewest characters of a password.
pub(crate) const MIN_PASSWORD_CHARS: usize = 12;
/// Most bytes of a password.
const MAX_PASSWORD_BYTES: usize = 1024;
/// Passwords that are hashed at the same time: each takes 19 MiB and a processor.
const AT_ONCE: usize = 2;
/// Passwords that wait for that.
const WAITING: usize = 64;
/// What the password of nobody is compared with, so that it takes as long: no password is known that gives it.
const DECOY: &str = "$argon2id$v=19$m=19456,t=2,p=1$Y2xvaXN0ZXItbm9ib2R5\
                     $bm9ib2R5IGtub3dzIGEgcGFzc3dvcmQgZm9yIHRoaXM";

/// Why a password was not looked at.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PasswordError {
    /// Too many wait.
    #[error("too many passwords are being checked; try again in a moment")]
    Busy,
    /// The library refuses, or its thread ended.
    #[error("a password could not be hashed")]
    Hash,
    /// No randomness for the salt.
    #[error(transparent)]
    Random(#[from] crate::clock::NoRandomness),
}

/// Why nobody may have this password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    /// It is found by trying.
    #[error("A password has at least {MIN_PASSWORD_CHARS} characters; several words make a good one")]
    Short,
    /// It is no password of a person.
    #[error("A password has at most {MAX_PASSWORD_BYTES} bytes")]
    Long,
    /// It is the first that anybody tries.
    #[error("A password is something else than the user name")]
    Name,
}

/// Bounds what hashing takes of the machine.
pub(super) struct Hashing {
    running: Arc<Semaphore>,
    waiting: Semaphore,
}

impl Default for Hashing {
    fn default() -> Self {
        Self { running: Arc::new(Semaphore::new(AT_ONCE)), waiting: Semaphore::new(WAITING) }
    }
}

impl Hashing {
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PasswordError> {
        let _waiting = match self.waiting.try_acquire() {
            Ok(place) => place,
            Err(TryAcquireError::NoPermits) => return Err(PasswordError::Busy),
            Err(TryAcquireError::Closed) => return Err(PasswordError::Hash),
        };
        let running = Arc::clone(&self.running).acquire_owned().await.map_err(|_| PasswordError::Hash)?;
        // The place goes with the thread: a caller that gives up does not let another one begin.
        let hashed = tokio::task::spawn_blocking(move || {
            let _running = running;
            work()
        });
        hashed.await.map_err(|_| PasswordError::Hash)
    }
}

impl People {
    /// Whether somebody may have a password.
    pub(crate) fn fits(password: &str, username: &str) -> Result<(), Unfit> {
        if password.len() > MAX_PASSWORD_BYTES {
            return Err(Unfit::Long);
        }
        if password.chars().count() < MIN_PASSWORD_CHARS {
            return Err(Unfit::Short);
        }
        if password.eq_ignore_ascii_case(username) { Err(Unfit::Name) } else { Ok(()) }
    }

    /// What is kept of a password: a PHC string.
    pub(crate) async fn hashed(
        &self,
        password: Zeroizing<String>,
        random: Random,
    ) -> Result<String, PasswordError> {
        let salt: [u8; 16] = random.bytes()?;
        let hash = self.hashing.run(move || {
            Argon2::default().hash_password_with_salt(password.as_bytes(), &salt).map(|phc| phc.to_string())
        });
        hash.await?.map_err(|_| PasswordError::Hash)
    }

    /// Whether a password is the one of which this was kept; never, and after as long a time, if nothing was.
    pub(crate) async fn is_password(
        &self,
        password: Zeroizing<String>,
        phc: Option<String>,
    ) -> Result<bool, PasswordError> {
        self.hashing
            .run(move || {
                let kept = phc.as_deref().unwrap_or(DECOY);
                let same = Argon2::default().verify_password(password.as_bytes(), kept).is_ok();
                same && phc.is_some()
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(text: &str) -> Zeroizing<String> {
        Zeroizing::new(text.to_owned())
    }

    #[tokio::test]
    async fn a_password_is_known_by_what_is_kept_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let people = People::open(dir.path(), Random).unwrap();
        let phc = people.hashed(password("four random words"), Random).await.unwrap();
        assert!(phc.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{phc}");
        assert_ne!(phc, people.hashed(password("four random words"), Random).await.unwrap(), "salted");
        for (tried, is_it) in [("four random words", true), ("four random word", false), ("", false)] {
            assert_eq!(people.is_password(password(tried), Some(phc.clone())).await.unwrap(), is_it);
        }
        assert!(!people.is_password(password("four random words"), None).await.unwrap());
        assert!(!people.is_password(password("x"), Some("no PHC string".into())).await.unwrap());
    }

    /// What takes another time would tell who has a password.
    #[tokio::test]
    async fn the_decoy_costs_what_a_password_costs() {
        let dir = tempfile::tempdir().unwrap();
        let people = People::open(dir.path(), Random).unwrap();
        let parameters = |phc: &str| phc.rsplitn(3, '$').last().map(str::to_owned);
        let phc = people.hashed(password("four random words"), Random).await.unwrap();
        assert_eq!(parameters(DECOY), parameters(&phc));
        // It is compared, not refused for its form.
        let refused = Argon2::default().verify_password(b"x", DECOY);
        assert!(matches!(refused, Err(argon2::password_hash::Error::PasswordInvalid)), "{refused:?}");
    }

    #[tokio::test]
    async fn only_so_many_wait() {
        let hashing = Hashing::default();
        let places: Vec<_> = std::iter::from_fn(|| hashing.waiting.try_acquire().ok()).collect();
        assert_eq!(places.len(), WAITING);
        assert!(matches!(hashing.run(|| ()).await, Err(PasswordError::Busy)));
        drop(places);
        assert!(hashing.run(|| ()).await.is_ok());
    }

    #[test]
    fn what_is_guessed_at_once_is_no_password() {
        for (text, fits) in [
            ("elevenchars", Err(Unfit::Short)),
            ("twelve chars", Ok(())),
            ("a-login-name", Err(Unfit::Name)),
            ("A-Login-Name", Err(Unfit::Name)),
        ] {
            assert_eq!(People::fits(text, "a-login-name"), fits, "{text}");
        }
        assert_eq!(People::fits(&"x".repeat(MAX_PASSWORD_BYTES + 1), ""), Err(Unfit::Long));
    }
}
