//! Figures by labels, of bounded number, as Prometheus reads them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

/// Most combinations of labels of one figure. Those that come later are counted together.
const MAX_SERIES: usize = 4096;
/// What their labels are called.
const OTHER: &str = "other";

type Labels<const N: usize> = [Cow<'static, str>; N];

/// One figure of a kind for each combination of labels.
#[derive(Debug)]
pub(super) struct Family<T, const N: usize> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; N],
    series: RwLock<BTreeMap<Labels<N>, Arc<T>>>,
}

/// A kind of figures.
pub(super) trait Figure: Default {
    /// What Prometheus calls the kind.
    const KIND: &'static str;

    /// Writes the lines of one figure; `labels` are written already, without braces.
    fn write(&self, name: &str, labels: &str, out: &mut String);
}

impl<T: Figure, const N: usize> Family<T, N> {
    pub(super) fn new(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        Self { name, help, labels, series: RwLock::default() }
    }

    /// The figure of a combination of labels.
    pub(super) fn of(&self, values: [&str; N]) -> Arc<T> {
        let borrowed: [Cow<'_, str>; N] = values.map(Cow::Borrowed);
        {
            let series = self.series.read();
            // A map that is only read may have keys that live shorter.
            let series: &BTreeMap<[Cow<'_, str>; N], Arc<T>> = &series;
            if let Some(figure) = series.get(&borrowed) {
                return Arc::clone(figure);
            }
        }
        let mut series = self.series.write();
        let has_room = series.len() < MAX_SERIES;
        let values = if has_room { values } else { [OTHER; N] };
        Arc::clone(series.entry(values.map(|value| Cow::Owned(value.to_owned()))).or_default())
    }

    /// Writes all figures.
    pub(super) fn write(&self, out: &mut String) {
        let _ = writeln!(out, "# HELP {} {}", self.name, self.help);
        let _ = writeln!(out, "# TYPE {} {}", self.name, T::KIND);
        for (values, figure) in self.series.read().iter() {
            let pairs = self.labels.iter().zip(values);
            let labels: Vec<String> =
                pairs.map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
            figure.write(self.name, &labels.join(","), out);
        }
    }
}

pub(super) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Writes one line.
pub(super) fn line(name: &str, labels: &str, value: impl std::fmt::Display, out: &mut String) {
    let _ = if labels.is_empty() {
        writeln!(out, "{name} {value}")
    } else {
        writeln!(out, "{name}{{{labels}}} {value}")
    };
}

/// Only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }
}

impl Figure for Counter {
    const KIND: &'static str = "counter";

    fn write(&self, name: &str, labels: &str, out: &mut String) {
        line(name, labels, self.0.load(Ordering::Relaxed), out);
    }
}

/// Upper bounds of the buckets: microseconds, and the same as text in seconds.
const BOUNDS: [(u64, &str); 18] = [
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (500_000, "0.5"),
    (1_000_000, "1"),
    (2_500_000, "2.5"),
    (5_000_000, "5"),
    (10_000_000, "10"),
    (30_000_000, "30"),
    (60_000_000, "60"),
    (120_000_000, "120"),
    (600_000_000, "600"),
];

/// How long things take.
#[derive(Debug, Default)]
pub(super) struct Durations {
    buckets: [AtomicU64; BOUNDS.len()],
    longer: AtomicU64,
    micros: AtomicU64,
}

impl Durations {
    pub(super) fn add(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.iter().zip(&self.buckets).find(|((bound, _), _)| micros <= *bound);
        let bucket = bucket.map_or(&self.longer, |(_, bucket)| bucket);
        bucket.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Figure for Durations {
    const KIND: &'static str = "histogram";

    fn write(&self, name: &str, labels: &str, out: &mut String) {
        let bucket = format!("{name}_bucket");
        let comma = if labels.is_empty() { "" } else { "," };
        let mut count = 0;
        for ((_, bound), figure) in BOUNDS.iter().zip(&self.buckets) {
            count += figure.load(Ordering::Relaxed);
            line(&bucket, &format!("{labels}{comma}le=\"{bound}\""), count, out);
        }
        count += self.longer.load(Ordering::Relaxed);
        line(&bucket, &format!("{labels}{comma}le=\"+Inf\""), count, out);
        let micros = self.micros.load(Ordering::Relaxed);
        let seconds = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        line(&format!("{name}_sum"), labels, seconds, out);
        line(&format!("{name}_count"), labels, count, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_bounded() {
        let family = Family::<Counter, 1>::new("calls_total", "Calls.", ["who"]);
        family.of(["a\"\n\\"]).add(2);
        let mut text = String::new();
        family.write(&mut text);
        assert_eq!(
            text,
            "# HELP calls_total Calls.\n# TYPE calls_total counter\ncalls_total{who=\"a\\\"\\n\\\\\"} 2\n"
        );
        for number in 0..2 * MAX_SERIES {
            family.of([&number.to_string()]).add(1);
        }
        let mut text = String::new();
        family.write(&mut text);
        assert_eq!(text.lines().count(), 2 + MAX_SERIES + 1);
        let other = 2 * MAX_SERIES - (MAX_SERIES - 1);
        assert!(text.contains(&format!("calls_total{{who=\"other\"}} {other}\n")));
    }

    #[test]
    fn buckets_count_up() {
        let family = Family::<Durations, 0>::new("time_seconds", "Time.", []);
        for millis in [1, 2, 2_000_000] {
            family.of([]).add(Duration::from_millis(millis));
        }
        let mut text = String::new();
        family.write(&mut text);
        for line in [
            "time_seconds_bucket{le=\"0.0005\"} 0",
            "time_seconds_bucket{le=\"0.001\"} 1",
            "time_seconds_bucket{le=\"0.0025\"} 2",
            "time_seconds_bucket{le=\"600\"} 2",
            "time_seconds_bucket{le=\"+Inf\"} 3",
            "time_seconds_sum 2000.003000",
            "time_seconds_count 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
