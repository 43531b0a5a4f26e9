//! Second factors: codes by time (RFC 6238: SHA-1, six digits, 30 s, which every authenticator knows), and backup codes.

use cloister_management_api::UserId;
use totp_rs::{Builder, Totp};
use zeroize::Zeroizing;

use super::{People, PeopleError};
use crate::clock::{NoRandomness, Random};
use crate::sealing::derived;

/// Backup codes that somebody gets at once.
const BACKUP_CODES: usize = 10;
/// Codes of the step before and after are accepted, too.
const SKEW_STEPS: u16 = 1;
const SECRET_BYTES: usize = 20;
const DIGITS: usize = 6;
const ISSUER: &str = "Cloister";
/// Letters that nobody takes for others. Twelve of them are 51 bits.
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const GROUP: usize = 4;
const GROUPS: usize = 3;

/// What somebody presents as the second factor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Presented {
    /// A code by time, of this step.
    Step(i64),
    /// A backup code, by its hash.
    Backup(String),
}

/// A secret that an authenticator is to have.
pub(crate) struct Enrolment {
    /// For typing: base32.
    pub(crate) text: Zeroizing<String>,
    /// For a camera: an `otpauth:` URL.
    pub(crate) url: Zeroizing<String>,
}

impl People {
    /// A new secret, sealed for a user.
    pub(crate) fn new_second_factor(&self, user_id: i64, random: Random) -> Result<String, PeopleError> {
        let secret: [u8; SECRET_BYTES] = random.bytes()?;
        Ok(self.sealer.seal(&place(user_id), secret.to_vec(), random)?)
    }

    /// What an authenticator needs.
    pub(crate) fn enrolment(
        &self,
        user_id: i64,
        username: &str,
        sealed: &str,
    ) -> Result<Enrolment, PeopleError> {
        let totp = self.totp(user_id, username, sealed)?;
        Ok(Enrolment {
            text: Zeroizing::new(totp.secret().to_base32()),
            url: Zeroizing::new(totp.to_url().map_err(|_| PeopleError::Secret)?),
        })
    }

    /// What a typed text may be: whether a code by time is right is known here, whether it was used, or a backup code is
    /// there, only to the store.
    pub(crate) fn presented(
        &self,
        user_id: i64,
        sealed: &str,
        typed: &str,
        now_ms: i64,
    ) -> Result<Option<Presented>, PeopleError> {
        let typed: String = typed.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
        if typed.len() == DIGITS && typed.bytes().all(|byte| byte.is_ascii_digit()) {
            let at_s = u64::try_from(now_ms / 1000).unwrap_or_default();
            let step = self.totp(user_id, "user", sealed)?.check(&typed, at_s);
            return Ok(step.and_then(|step| i64::try_from(step).ok()).map(Presented::Step));
        }
        if typed.len() != GROUP * GROUPS {
            return Ok(None);
        }
        self.backup_code_hash(user_id, &typed.to_ascii_uppercase()).map(|hash| Some(Presented::Backup(hash)))
    }

    /// New backup codes, and what is kept of them.
    pub(crate) fn backup_codes(
        &self,
        user_id: i64,
        random: Random,
    ) -> Result<(Vec<Zeroizing<String>>, Vec<String>), PeopleError> {
        let mut codes = Vec::with_capacity(BACKUP_CODES);
        let mut hashes = Vec::with_capacity(BACKUP_CODES);
        while codes.len() < BACKUP_CODES {
            let letters = letters(random)?;
            hashes.push(self.backup_code_hash(user_id, &letters)?);
            let groups: Vec<_> = letters.as_bytes().chunks(GROUP).map(String::from_utf8_lossy).collect();
            codes.push(Zeroizing::new(groups.join("-")));
        }
        Ok((codes, hashes))
    }

    fn backup_code_hash(&self, user_id: i64, letters: &str) -> Result<String, PeopleError> {
        let of = [&user_id.to_be_bytes(), letters.as_bytes()].concat();
        Ok(hex::encode(*derived(&*self.key, b"cloister-backup-code", &of)?))
    }

    fn totp(&self, user_id: i64, username: &str, sealed: &str) -> Result<Totp, PeopleError> {
        let secret = self.sealer.open(&place(user_id), sealed).map_err(|_| PeopleError::Foreign)?;
        Builder::new()
            .with_skew(SKEW_STEPS)
            .with_secret(secret.to_vec())
            .with_issuer(Some(ISSUER))
            .with_account_name(username)
            .build()
            .map_err(|_| PeopleError::Secret)
    }

    /// What a user's authenticator would show at a time.
    #[cfg(test)]
    pub(crate) fn shown(&self, user_id: i64, sealed: &str, now_ms: i64) -> String {
        self.totp(user_id, "user", sealed)
            .unwrap()
            .generate(u64::try_from(now_ms / 1000).unwrap())
            .to_string()
    }
}

/// What a sealed secret is bound to.
fn place(user_id: i64) -> Vec<u8> {
    [b"cloister-second-factor ".as_slice(), UserId(user_id).to_string().as_bytes()].concat()
}

fn letters(random: Random) -> Result<Zeroizing<String>, NoRandomness> {
    let mut text = Zeroizing::new(String::with_capacity(GROUP * GROUPS));
    while text.len() < GROUP * GROUPS {
        for byte in random.bytes::<16>()? {
            let letter = LETTERS.get(usize::from(byte) % LETTERS.len());
            // 240 is twelve times twenty: each letter is as likely as the others.
            if let Some(letter) = letter.filter(|_| byte < 240 && text.len() < GROUP * GROUPS) {
                text.push(char::from(*letter));
            }
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn people() -> People {
        People::open(tempfile::tempdir().unwrap().path(), Random).unwrap()
    }

    /// RFC 6238 appendix B, the last six of its eight digits.
    #[test]
    fn codes_are_those_of_the_standard() {
        let people = people();
        let secret = b"12345678901234567890".to_vec();
        let sealed = people.sealer.seal(&place(7), secret, Random).unwrap();
        for (at_s, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            let presented = people.presented(7, &sealed, code, at_s * 1000).unwrap();
            assert_eq!(presented, Some(Presented::Step(at_s / 30)), "{at_s}");
            assert_eq!(people.shown(7, &sealed, at_s * 1000), code);
        }
        let enrolment = people.enrolment(7, "ada", &sealed).unwrap();
        assert_eq!(*enrolment.text, "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ");
        assert!(enrolment.url.starts_with("otpauth://totp/Cloister:ada?secret="), "{}", *enrolment.url);
    }

    #[test]
    fn a_code_is_good_for_its_step_and_the_two_beside_it() {
        let people = people();
        let sealed = people.new_second_factor(7, Random).unwrap();
        let now_ms = 1_800_000_000_000;
        let code = people.shown(7, &sealed, now_ms);
        for (later_s, is_good) in [(-31, false), (-30, true), (0, true), (59, true), (60, false)] {
            let presented = people.presented(7, &sealed, &code, now_ms + later_s * 1000).unwrap();
            let expected = is_good.then_some(Presented::Step(now_ms / 30_000));
            assert_eq!(presented, expected, "{later_s}");
        }
        let spaced = format!(" {} {} ", &code[..3], &code[3..]);
        assert!(people.presented(7, &sealed, &spaced, now_ms).unwrap().is_some());
    }

    #[test]
    fn a_secret_opens_for_its_user_in_its_installation_only() {
        let people = people();
        let sealed = people.new_second_factor(7, Random).unwrap();
        assert!(people.enrolment(7, "ada", &sealed).is_ok());
        assert!(matches!(people.enrolment(8, "ada", &sealed), Err(PeopleError::Foreign)));
        assert!(matches!(self::people().enrolment(7, "ada", &sealed), Err(PeopleError::Foreign)));
    }

    #[test]
    fn backup_codes_are_typed_in_any_way_and_belong_to_one_user() {
        let people = people();
        let sealed = people.new_second_factor(7, Random).unwrap();
        let (codes, hashes) = people.backup_codes(7, Random).unwrap();
        assert_eq!((codes.len(), hashes.len()), (BACKUP_CODES, BACKUP_CODES));
        for (code, hash) in codes.iter().zip(&hashes) {
            assert!(code.len() == 14 && code.bytes().all(|byte| byte == b'-' || LETTERS.contains(&byte)));
            let expected = Some(Presented::Backup(hash.clone()));
            for typed in [code.to_string(), code.to_lowercase().replace('-', " ")] {
                assert_eq!(people.presented(7, &sealed, &typed, 0).unwrap(), expected);
            }
            assert_ne!(people.presented(8, &sealed, code, 0).unwrap(), expected);
        }
        for typed in ["", "12345", "1234567", "BCDF-GHJK-LMNPQ", "\u{e4}"] {
            assert_eq!(people.presented(7, &sealed, typed, 0).unwrap(), None, "{typed}");
        }
    }
}
