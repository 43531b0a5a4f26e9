//! The query of a log request.

use jiff::Timestamp;

/// Lines from the end when the query does not say.
const DEFAULT_TAIL: u32 = 1000;
/// Plain numbers from here on are Unix times; smaller ones are ages in seconds.
const FIRST_UNIX_TIME_S: u64 = 1_000_000_000;

/// Which part of a log, and how it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent flag of the query")]
pub(super) struct LogQuery {
    since: Option<Moment>,
    until: Option<Moment>,
    /// `None` for all lines.
    tail: Option<u32>,
    follow: bool,
    timestamps: bool,
    /// Messages as text instead of base64.
    pub(super) text: bool,
    /// Messages alone instead of JSON objects.
    pub(super) bare: bool,
    /// Colours and other control sequences stay in the messages.
    pub(super) ansi: bool,
}

/// A point in time as people give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Seconds before now.
    Ago(u64),
    At(Timestamp),
}

/// A query that cannot be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum QueryError {
    #[error("{0} must be seconds, a number with s, m, h or d, or an RFC 3339 time")]
    Moment(&'static str),
    #[error("tail must be a number of lines or `all`")]
    Tail,
}

impl LogQuery {
    /// Reads an encoded query. Flags count when they have no value, or one that is not `false` or `0`;
    /// unknown members do not count.
    pub(super) fn parse(query: &str) -> Result<Self, QueryError> {
        let mut parsed = Self {
            since: None,
            until: None,
            tail: Some(DEFAULT_TAIL),
            follow: false,
            timestamps: false,
            text: false,
            bare: false,
            ansi: false,
        };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let flag = !matches!(&*value, "false" | "0");
            match &*name {
                "since" => parsed.since = Some(Moment::parse(&value).ok_or(QueryError::Moment("since"))?),
                "until" => parsed.until = Some(Moment::parse(&value).ok_or(QueryError::Moment("until"))?),
                "tail" if value == "all" => parsed.tail = None,
                "tail" => parsed.tail = Some(value.parse().map_err(|_| QueryError::Tail)?),
                "follow" => parsed.follow = flag,
                "timestamps" => parsed.timestamps = flag,
                "text" => parsed.text = flag,
                "bare" => parsed.bare = flag,
                "ansi" => parsed.ansi = flag,
                _ => {}
            }
        }
        Ok(parsed)
    }

    /// The query for the engine's Docker API.
    pub(super) fn for_engine(&self, now: Timestamp) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("stdout", "true").append_pair("stderr", "true");
        query.append_pair("follow", if self.follow { "true" } else { "false" });
        query.append_pair("timestamps", if self.timestamps { "true" } else { "false" });
        query.append_pair("tail", &self.tail.map_or_else(|| "all".to_owned(), |lines| lines.to_string()));
        for (name, moment) in [("since", self.since), ("until", self.until)] {
            if let Some(moment) = moment {
                query.append_pair(name, &moment.unix_seconds(now).to_string());
            }
        }
        query.finish()
    }
}

impl Moment {
    fn parse(text: &str) -> Option<Self> {
        let seconds_per_unit = match text.chars().next_back()? {
            's' => Some(1),
            'm' => Some(60),
            'h' => Some(60 * 60),
            'd' => Some(24 * 60 * 60),
            _ => None,
        };
        if let Some(seconds) = seconds_per_unit {
            let count: u64 = text.get(..text.len() - 1)?.parse().ok()?;
            return Some(Self::Ago(count.checked_mul(seconds)?));
        }
        match text.parse::<u64>() {
            Ok(age) if age < FIRST_UNIX_TIME_S => Some(Self::Ago(age)),
            Ok(time) => Some(Self::At(Timestamp::from_second(i64::try_from(time).ok()?).ok()?)),
            Err(_) => Some(Self::At(text.parse().ok()?)),
        }
    }

    fn unix_seconds(self, now: Timestamp) -> i64 {
        match self {
            Self::Ago(seconds) => now.as_second().saturating_sub_unsigned(seconds).max(0),
            Self::At(time) => time.as_second(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn for_engine(query: &str) -> String {
        LogQuery::parse(query).unwrap().for_engine(Timestamp::from_second(2_000_000_000).unwrap())
    }

    #[test]
    fn translates_to_the_engines_query() {
        let queries = [
            "",
            "follow&timestamps=1&tail=20&text&bare&lines=5",
            "follow=false&tail=all&since=42m&until=90",
            "since=1999999999&until=2033-05-18T03:33:20Z",
            "since=1d",
        ];
        let translated: Vec<_> =
            queries.iter().map(|query| format!("{query}\n  {}", for_engine(query))).collect();
        insta::assert_snapshot!(translated.join("\n"));
    }

    #[test]
    fn says_what_is_wrong() {
        assert_eq!(LogQuery::parse("since=yesterday"), Err(QueryError::Moment("since")));
        assert_eq!(LogQuery::parse("until="), Err(QueryError::Moment("until")));
        assert_eq!(LogQuery::parse("until=99999999999999999999d"), Err(QueryError::Moment("until")));
        assert_eq!(LogQuery::parse("tail=-1"), Err(QueryError::Tail));
    }

    proptest! {
        #[test]
        fn never_panics(query: String, moment in ".{0,12}[smhd]?") {
            let _ = LogQuery::parse(&query);
            if let Some(moment) = Moment::parse(&moment) {
                moment.unix_seconds(Timestamp::MIN);
            }
        }
    }
}
