//! Dated versions of the interface.

use std::fmt;

use jiff::civil::{Date, date};

/// Request header that names the wanted version.
pub const VERSION_HEADER: &str = "x-phala-version";

/// A dated version, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApiVersion {
    /// The first dated version: flat account, `HostedCvm` lists.
    V20251028,
    /// `CVMInfo` lists and details with text ids.
    V20260121,
    /// Every id of a CVM is a text.
    V20260522,
    /// Key management is described by contract.
    V20260623,
}

/// A version header that is not a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("X-Phala-Version must be a date such as 2026-01-21")]
pub struct NotADate;

impl ApiVersion {
    /// Every version, oldest first.
    pub const ALL: [Self; 4] = [Self::V20251028, Self::V20260121, Self::V20260522, Self::V20260623];
    /// What a caller gets who names no version and has none with the key.
    pub const OLDEST: Self = Self::V20251028;
    /// The newest version.
    pub const NEWEST: Self = Self::V20260623;

    /// The date.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V20251028 => "2025-10-28",
            Self::V20260121 => "2026-01-21",
            Self::V20260522 => "2026-05-22",
            Self::V20260623 => "2026-06-23",
        }
    }

    /// The newest version not later than a date; dates before the first version get the first.
    pub fn select(text: &str) -> Result<Self, NotADate> {
        // Written out, so that only this form of a date is one.
        let wellformed = text.len() == 10 && text.parse::<Date>().is_ok_and(|date| date.to_string() == text);
        if !wellformed {
            return Err(NotADate);
        }
        let newest = Self::ALL.into_iter().rev().find(|version| version.as_str() <= text);
        Ok(newest.unwrap_or(Self::OLDEST))
    }

    /// The version of a request: the header, else the key's own, else the oldest.
    pub fn of_request(header: Option<&str>, of_key: Option<&str>) -> Result<Self, NotADate> {
        match (header, of_key) {
            (Some(header), _) => Self::select(header),
            (None, Some(of_key)) => Ok(Self::select(of_key).unwrap_or(Self::OLDEST)),
            (None, None) => Ok(Self::OLDEST),
        }
    }

    /// Since when a version is not to be relied on for new work; `None` for those that are. It is answered all the same.
    #[must_use]
    pub const fn deprecated_since(self) -> Option<Date> {
        match self {
            // Its successor is all that the published clients need.
            Self::V20251028 => Some(date(2026, 1, 21)),
            Self::V20260121 | Self::V20260522 | Self::V20260623 => None,
        }
    }

    /// The version of exactly this date.
    #[must_use]
    pub fn of_date(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// Whether ids of CVMs are texts everywhere.
    #[must_use]
    pub fn has_text_ids(self) -> bool {
        self >= Self::V20260522
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn selects_the_newest_not_later() {
        for (text, version) in [
            ("2020-01-01", ApiVersion::V20251028),
            ("2025-10-28", ApiVersion::V20251028),
            ("2026-01-20", ApiVersion::V20251028),
            ("2026-01-21", ApiVersion::V20260121),
            ("2026-05-22", ApiVersion::V20260522),
            ("2099-12-31", ApiVersion::V20260623),
        ] {
            assert_eq!(ApiVersion::select(text), Ok(version), "{text}");
        }
    }

    #[test]
    fn header_wins_over_key_and_must_be_a_date() {
        let of = ApiVersion::of_request;
        assert_eq!(of(Some("2026-01-21"), Some("2025-10-28")), Ok(ApiVersion::V20260121));
        assert_eq!(of(None, Some("2026-01-21")), Ok(ApiVersion::V20260121));
        assert_eq!(of(None, None), Ok(ApiVersion::V20251028));
        for text in ["", "latest", "2026-1-21", "20260121", "2026-13-01", "2026-01-21T00:00:00"] {
            assert_eq!(of(Some(text), None), Err(NotADate), "{text}");
        }
    }

    proptest! {
        #[test]
        fn later_dates_never_give_older_versions(a in "202[4-7]-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])", b in "202[4-7]-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])") {
            let (a, b) = if a <= b { (a, b) } else { (b, a) };
            prop_assert!(ApiVersion::select(&a).unwrap() <= ApiVersion::select(&b).unwrap());
        }
    }
}
