//! Statements against a count of single minutes.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};

use cloister_metering::{
    Billed, Interval, PriceList, Record, Records, SERVING, Serving, Span, Standing, Statement, UsageType,
    Window, rounded, statement, wanted,
};
use proptest::prelude::*;
use rust_decimal::Decimal;
use uuid::Uuid;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
/// 2026-11-22T05:00:00Z.
const START: i64 = 1_795_323_600_000;

fn interval(cvm_id: i64, usage_type: UsageType, rate: Decimal, from_ms: i64, to_ms: Option<i64>) -> Interval {
    Interval {
        span: Span { cvm_id, usage_type, rate, from_ms, to_ms },
        workspace_id: 7,
        app_id: "ab".repeat(20),
        vm_uuid: Uuid::from_u128(cvm_id.unsigned_abs().into()),
        what: format!("\"disk_gb\":{}", rate.mantissa() % 3),
    }
}

fn compute(from_ms: i64, to_ms: Option<i64>, rate: &str) -> Interval {
    interval(1, UsageType::Compute, rate.parse().unwrap(), from_ms, to_ms)
}

/// Intervals of a few CVMs, those of a meter one after the other, some adjacent, some at the same rate; the last
/// may go on.
fn intervals() -> impl Strategy<Value = Vec<Interval>> {
    let rates = vec!["0", "0.000000001", "0.058", "1", "3.333333333", "0.000000007"];
    let piece = (
        prop_oneof![2 => Just(0_i64), 3 => 0..3 * HOUR, 1 => 0..40 * HOUR],
        prop_oneof![2 => 0..2 * MINUTE, 3 => 0..3 * HOUR, 1 => 0..60 * HOUR, 1 => (0..5_i64).prop_map(|hours| hours * HOUR)],
        prop::sample::select(rates),
    );
    let meter = (
        1..4_i64,
        prop::sample::select(UsageType::ALL.to_vec()),
        prop::collection::vec(piece, 1..12),
        any::<bool>(),
    );
    prop::collection::vec(meter, 1..6).prop_map(|meters| {
        let mut taken = BTreeSet::new();
        let mut all = Vec::new();
        for (cvm, usage_type, pieces, goes_on) in meters {
            if !taken.insert((cvm, usage_type)) {
                continue;
            }
            let (mut at, last) = (START, pieces.len() - 1);
            for (index, (pause, length, rate)) in pieces.into_iter().enumerate() {
                let from = at + pause;
                at = from + length;
                let to = (index != last || !goes_on).then_some(at);
                all.push(interval(cvm, usage_type, rate.parse().unwrap(), from, to));
            }
        }
        all
    })
}

/// Every minute by itself: how many of each hour at which rate.
type Minutes = BTreeMap<(i64, i64, UsageType), BTreeMap<Decimal, i64>>;

fn count(intervals: &[Interval], window: Window, now_ms: i64) -> Minutes {
    let mut counted = BTreeSet::new();
    let mut minutes = Minutes::new();
    for Interval { span, .. } in intervals {
        let end_ms = span.to_ms.unwrap_or(now_ms);
        for minute in span.from_ms / MINUTE..end_ms / MINUTE {
            let begins_at = minute * MINUTE;
            let is_over = begins_at < now_ms / MINUTE * MINUTE;
            let is_inside =
                begins_at >= window.start_ms / MINUTE * MINUTE && begins_at < window.end_ms / MINUTE * MINUTE;
            if is_over && is_inside {
                assert!(counted.insert((span.cvm_id, span.usage_type, minute)), "twice");
                let hour = minutes.entry((-(minute / 60), span.cvm_id, span.usage_type)).or_default();
                *hour.entry(span.rate).or_default() += 1;
            }
        }
    }
    minutes
}

fn cost(parts: &BTreeMap<Decimal, i64>) -> Decimal {
    let part = |(rate, minutes): (&Decimal, &i64)| match minutes {
        60 => *rate,
        minutes => rounded(*rate * Decimal::from(*minutes) / Decimal::from(60)),
    };
    parts.iter().map(part).sum()
}

/// What is compared of a record.
type Facts = (i64, i64, UsageType, i64, Decimal);

fn facts(record: &Record) -> Facts {
    (-record.hour, record.cvm_id, record.usage_type, record.minutes, record.cost)
}

fn all_of(intervals: &[Interval], window: Window, now_ms: i64) -> Statement {
    statement(intervals, window, now_ms, usize::MAX, 0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_statement_is_the_count_of_single_minutes(
        intervals in intervals(), start in -HOUR..80 * HOUR, length in 0..200 * HOUR, now in 0..200 * HOUR,
        limit in 1..40_usize,
    ) {
        let window = Window { start_ms: START + start, end_ms: START + start + length };
        let now_ms = START + now;
        let minutes = count(&intervals, window, now_ms);
        let expected: Vec<Facts> = minutes.iter().map(|((hour, cvm, usage_type), parts)| {
            (*hour, *cvm, *usage_type, parts.values().sum(), cost(parts))
        }).collect();

        let statement = all_of(&intervals, window, now_ms);
        prop_assert_eq!(statement.records.iter().map(facts).collect::<Vec<_>>(), expected.clone());
        prop_assert_eq!(statement.total, u64::try_from(expected.len()).unwrap());
        prop_assert_eq!(statement.total_cost, expected.iter().map(|facts| facts.4).sum::<Decimal>());

        let mut keys = BTreeSet::new();
        for record in &statement.records {
            prop_assert!(keys.insert(record.billing_key()));
            prop_assert!((1..=60).contains(&record.minutes));
            prop_assert!(record.end_minute - record.first_minute >= record.minutes);
            prop_assert!(record.first_minute / 60 == record.hour && (record.end_minute - 1) / 60 == record.hour);
            let details: serde_json::Value = serde_json::from_str(&record.details).unwrap();
            let parts = details["parts"].as_array().unwrap();
            let minutes: i64 = parts.iter().map(|part| part["minutes"].as_i64().unwrap()).sum();
            prop_assert_eq!(minutes, record.minutes);
        }

        // Pages are the same records, cut; every page knows the totals.
        let mut paged = Vec::new();
        loop {
            let page = cloister_metering::statement(&intervals, window, now_ms, limit, paged.len() as u64);
            prop_assert_eq!((page.total, page.total_cost), (statement.total, statement.total_cost));
            prop_assert!(page.records.len() <= limit);
            if page.records.is_empty() {
                break;
            }
            paged.extend(page.records);
        }
        prop_assert_eq!(&paged, &statement.records);

        // And so are those that are passed on one after the other.
        let mut sorted = intervals.clone();
        sorted.sort_by_key(|interval| (interval.span.cvm_id, interval.span.usage_type, interval.span.from_ms));
        let (mut records, mut streamed) = (Records::new(window, now_ms), Vec::new());
        for interval in &sorted {
            records.push(interval, |run| streamed.extend(run.records()));
        }
        records.finish(|run| streamed.extend(run.records()));
        streamed.sort_by_key(|record| (-record.hour, record.cvm_id, record.usage_type));
        prop_assert_eq!(&streamed, &statement.records);
    }

    #[test]
    fn windows_that_meet_on_an_hour_add_up(intervals in intervals(), meets in 0..80_i64) {
        let now_ms = START + 150 * HOUR;
        let middle = START + meets * HOUR;
        let whole = all_of(&intervals, Window::EVER, now_ms);
        let before = all_of(&intervals, Window { end_ms: middle, ..Window::EVER }, now_ms);
        let after = all_of(&intervals, Window { start_ms: middle, ..Window::EVER }, now_ms);
        prop_assert_eq!(whole.total, before.total + after.total);
        prop_assert_eq!(whole.total_cost, before.total_cost + after.total_cost);
        let joined: Vec<_> = after.records.into_iter().chain(before.records).collect();
        prop_assert_eq!(whole.records, joined);
    }

    #[test]
    fn whatever_is_stored_no_minute_counts_twice(
        pieces in prop::collection::vec((0..20 * HOUR, -HOUR..5 * HOUR), 0..12),
    ) {
        let overlapping: Vec<_> = pieces
            .iter()
            .map(|(from, length)| compute(START + from, Some(START + from + length), "1"))
            .collect();
        let statement = all_of(&overlapping, Window::EVER, START + 100 * HOUR);
        let distinct: BTreeSet<i64> = overlapping
            .iter()
            .flat_map(|interval| interval.span.from_ms / MINUTE..interval.span.to_ms.unwrap() / MINUTE)
            .collect();
        let counted: i64 = statement.records.iter().map(|record| record.minutes).sum();
        prop_assert!(counted <= i64::try_from(distinct.len()).unwrap());
        let hours: BTreeSet<i64> = statement.records.iter().map(|record| record.hour).collect();
        prop_assert_eq!(hours.len(), statement.records.len());
    }
}

#[test]
fn an_hour_at_one_rate_costs_that_rate_however_it_is_cut() {
    let pieces: Vec<_> = (0..6)
        .map(|part| {
            compute(START + part * 10 * MINUTE, Some(START + (part + 1) * 10 * MINUTE), "0.100000001")
        })
        .collect();
    let statement = all_of(&pieces, Window::EVER, START + HOUR);
    assert_eq!((statement.total, statement.total_cost.to_string().as_str()), (1, "0.100000001"));
    let record = &statement.records[0];
    assert_eq!(record.details, r#"{"parts":[{"minutes":60,"rate_per_hour":"0.100000001","disk_gb":2}]}"#);
}

#[test]
fn parts_of_an_hour_are_rounded_half_up_at_nine_decimals() {
    for (rate, minutes, cost) in [
        ("0.000000001", 29, "0"),
        ("0.000000001", 30, "0.000000001"),
        ("1", 20, "0.333333333"),
        ("1", 40, "0.666666667"),
        ("3.5", 90, "5.25"),
    ] {
        let used = [compute(START, Some(START + minutes * MINUTE), rate)];
        let statement = all_of(&used, Window::EVER, i64::MAX);
        assert_eq!(statement.total_cost, cost.parse().unwrap(), "{minutes} minutes at {rate}");
    }
}

#[test]
fn a_record_says_when_and_what() {
    let from = START + 12 * MINUTE + 30_000;
    let pieces =
        [compute(from, Some(START + 20 * MINUTE), "0.058"), compute(START + 50 * MINUTE + 1, None, "0.116")];
    let statement = all_of(&pieces, Window::EVER, START + 55 * MINUTE + 59_999);
    let [record] = statement.records.as_slice() else { panic!("{statement:?}") };
    assert_eq!(record.minutes, 13);
    assert_eq!(record.billing_key(), "00000000-0000-0000-0000-000000000001:compute:2026-11-22T05:00:00Z");
    assert_eq!(
        (record.billing_hour().as_str(), record.billing_day().as_str()),
        ("2026-11-22T05:00:00Z", "2026-11-22")
    );
    assert_eq!(record.billing_start().to_string(), "2026-11-22T05:12:00Z");
    assert_eq!(record.billing_end().to_string(), "2026-11-22T05:55:00Z");
    assert_eq!(record.cost, "0.017400000".parse::<Decimal>().unwrap());
    assert_eq!(
        record.details,
        r#"{"parts":[{"minutes":8,"rate_per_hour":"0.058","disk_gb":1},{"minutes":5,"rate_per_hour":"0.116","disk_gb":2}]}"#
    );
    assert_eq!((record.workspace_id, record.event_type()), (7, "usage"));
}

#[test]
fn a_year_of_a_large_application_is_no_more_work_than_its_intervals() {
    let year = 365 * 24;
    let intervals: Vec<_> =
        (0..2000).map(|cvm| interval(cvm, UsageType::Storage, Decimal::ONE, START, None)).collect();
    let now_ms = START + year * HOUR;
    let statement = cloister_metering::statement(&intervals, Window::EVER, now_ms, 5, 2000 * 8000 + 1999);
    assert_eq!((statement.total, statement.total_cost), (2000 * 8760, Decimal::from(2000 * 8760)));
    let places: Vec<_> =
        statement.records.iter().map(|record| (record.hour - START / HOUR, record.cvm_id)).collect();
    assert_eq!(places, [(759, 1999), (758, 0), (758, 1), (758, 2), (758, 3)]);
    assert!(cloister_metering::statement(&intervals, Window::EVER, now_ms, 5, u64::MAX).records.is_empty());
}

#[test]
fn empty_and_reversed_windows_hold_nothing() {
    let intervals = [compute(START, None, "1")];
    for (start, end) in
        [(START, START), (START + HOUR, START), (i64::MAX, i64::MIN), (START + 5 * HOUR, i64::MAX)]
    {
        let window = Window { start_ms: start, end_ms: end };
        assert_eq!(all_of(&intervals, window, START + 2 * HOUR), Statement::default());
    }
    assert_eq!(all_of(&[], Window::EVER, START), Statement::default());
}

fn prices() -> PriceList {
    PriceList::parse(
        br#"{"currency":"USD","storage_gb_hour":"0.000139","vcpu_hour":"0.02","memory_gb_hour":"0.01",
            "gpu_hour":{"10de:2335":"3.5"},"sizes":[{"id":"tdx.small","name":"Small","vcpu":2,"memory_mb":4096,
            "disk_gb":20,"hourly_rate":"0.058"}]}"#,
    )
    .unwrap()
}

fn standing(status: &str) -> Standing<'_> {
    Standing {
        status,
        is_deleted: false,
        is_unaccounted: false,
        is_established: true,
        has_ended: false,
        is_said_to_be_up: false,
        was_serving: false,
    }
}

#[test]
fn meters_say_what_runs_at_which_rate() {
    let mut billed = Billed {
        instance_type: Some("tdx.small".to_owned()),
        vcpu: 2,
        memory_mb: 4096,
        disk_gb: 100,
        ..Billed::default()
    };
    let up = Standing { was_serving: true, ..standing("running") };
    let text = |billed: &Billed| {
        let meters = wanted(&up, billed, &prices());
        let lines = meters
            .iter()
            .map(|meter| format!("{} {} {}", meter.usage_type, meter.rate.normalize(), meter.what));
        lines.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(
        text(&billed),
        "compute 0.058 \"instance_type\":\"tdx.small\",\"vcpu\":2,\"memory_mb\":4096\nstorage 0.0139 \"disk_gb\":100"
    );
    billed.gpus.insert("10de:2335".to_owned(), 2);
    assert!(text(&billed).contains("gpu 7 \"gpus\":{\"10de:2335\":2}\n"));
    billed.instance_type = Some("\"},{\"".to_owned());
    for meter in wanted(&up, &billed, &prices()) {
        serde_json::from_str::<serde_json::Value>(&format!("{{{}}}", meter.what)).unwrap();
    }
}

/// Status by status: (served before, served when its node says just now that it is up, served from before until it
/// ends, disk).
#[test]
fn what_is_metered_in_which_status() {
    let seen = |status: &str, established: bool| {
        let here = Standing { is_established: established, ..standing(status) };
        let told = Standing { is_said_to_be_up: true, ..here };
        let before = Standing { was_serving: true, ..here };
        let ended = Standing { has_ended: true, is_said_to_be_up: true, ..before };
        assert!(!ended.serves(), "{status}");
        for nothing in [Standing { is_deleted: true, ..told }, Standing { is_unaccounted: true, ..told }] {
            assert!(!nothing.serves() && !nothing.stores());
        }
        (here.serves(), told.serves(), before.serves(), here.stores())
    };
    for (status, serving) in SERVING {
        let expected = match serving {
            Serving::Never => (false, false, false),
            Serving::AsTold => (false, true, true),
        };
        let (here, told, before, disk) = seen(status, true);
        assert_eq!(((here, told, before), disk), (expected, true), "{status}");
        let (here, told, _, disk) = seen(status, false);
        let is_created = status == "running";
        assert_eq!((here, told, disk), (false, is_created, is_created), "{status}");
    }
    assert!(!Standing { was_serving: true, ..standing("no status") }.serves());
}
