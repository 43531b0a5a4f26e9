//! Calendar months in UTC.

use cloister_metering::Window;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// A month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Month {
    first: Date,
}

impl Month {
    /// The one that a moment lies in.
    pub(crate) fn of(now_ms: i64) -> Self {
        let at = Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::UNIX_EPOCH);
        Self { first: at.to_zoned(TimeZone::UTC).date().first_of_month() }
    }

    /// Twelve times its year, and its place in that from 0 on.
    pub(crate) fn number(self) -> i64 {
        i64::from(self.first.year()) * 12 + i64::from(self.first.month()) - 1
    }

    /// Its name, such as `2026-11`.
    pub(crate) fn name(self) -> String {
        self.first.strftime("%Y-%m").to_string()
    }

    /// All of it.
    pub(crate) fn window(self) -> Window {
        let ms_of = |date: Option<Date>| {
            let zoned = date.and_then(|date| date.to_zoned(TimeZone::UTC).ok());
            zoned.map(|zoned| zoned.timestamp().as_millisecond())
        };
        let next = self.first.last_of_month().tomorrow().ok();
        Window {
            start_ms: ms_of(Some(self.first)).unwrap_or(i64::MIN),
            end_ms: ms_of(next).unwrap_or(i64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_millisecond()
    }

    #[test]
    fn months_follow_each_other() {
        let december = Month::of(at("2026-12-31T23:59:59.999Z"));
        let january = Month::of(at("2027-01-01T00:00:00Z"));
        assert_eq!((december.name(), january.name()), ("2026-12".to_owned(), "2027-01".to_owned()));
        assert_eq!(december.number() + 1, january.number());
        assert_eq!(december.window().end_ms, january.window().start_ms);
    }

    proptest! {
        #[test]
        fn every_moment_is_in_its_month(now_ms in at("1970-01-01T00:00:00Z")..at("9000-01-01T00:00:00Z")) {
            let window = Month::of(now_ms).window();
            prop_assert!((window.start_ms..window.end_ms).contains(&now_ms));
            prop_assert_eq!(Month::of(window.end_ms).number(), Month::of(now_ms).number() + 1);
        }
    }
}
