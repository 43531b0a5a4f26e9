//! Lives of CVMs against a simple count of minutes.

mod lives;
mod model;

use cloister_app_compose::AppId;
use cloister_metering::{PriceList, UsageType, Window};

use super::*;
use crate::operations::CvmStatus;
use crate::store::tests::{Ground, cvm, ground, on_both};
use crate::store::{CvmRow, ObservedVm, UsageScope};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
/// 2026-11-22T05:00:00Z.
const START: i64 = 1_795_323_600_000;
const APP: AppId = AppId::from_bytes([5; 20]);

fn scope(ground: &Ground) -> UsageScope {
    UsageScope { workspace_id: ground.workspace, app_id: Some(APP) }
}

/// Charges `cents` for an hour of 2 virtual CPUs, and the same for 20 GiB.
fn prices(cents: u32) -> PriceList {
    let text = format!(
        r#"{{"currency":"USD","storage_gb_hour":"0.{:06}","vcpu_hour":"0.{cents:02}","memory_gb_hour":"0.004",
            "gpu_hour":{{"10de:2335":"3.5"}},"sizes":[{{"id":"small","name":"Small","vcpu":2,"memory_mb":1024,
            "disk_gb":20,"hourly_rate":"0.{cents:02}"}}]}}"#,
        cents * 500
    );
    PriceList::parse(text.as_bytes()).unwrap()
}

fn up(started_at_ms: i64) -> ObservedVm {
    ObservedVm {
        boot_progress: Some("done".to_owned()),
        started_at_ms: Some(started_at_ms),
        ..ObservedVm::default()
    }
}

fn ended(started_at_ms: i64, exited_at_ms: i64) -> ObservedVm {
    ObservedVm {
        started_at_ms: Some(started_at_ms),
        exited_at_ms: Some(exited_at_ms),
        ..ObservedVm::default()
    }
}

async fn set_status(store: &Store, cvm: &CvmRow, status: CvmStatus, now_ms: i64) {
    let mut change = store.change().await.unwrap();
    change.set_cvm_status(cvm.id, status, now_ms).await.unwrap();
    change.commit().await.unwrap();
}

async fn observe(store: &Store, cvm: &CvmRow, seen: &ObservedVm, now_ms: i64) {
    let mut change = store.change().await.unwrap();
    change.observe_cvm(cvm.id, seen, now_ms).await.unwrap();
    change.commit().await.unwrap();
}

async fn report(store: &Store, ground: &Ground, now_ms: i64) {
    let mut change = store.change().await.unwrap();
    change.put_node_report(ground.node, "{}", now_ms).await.unwrap();
    change.commit().await.unwrap();
}

/// Minutes of compute and of storage until a moment.
async fn minutes(store: &Store, ground: &Ground, now_ms: i64) -> (i64, i64) {
    let statement = store.usage_statement(scope(ground), Window::EVER, now_ms, usize::MAX, 0).await.unwrap();
    let of = |usage_type| {
        let records = statement.records.iter().filter(|record| record.usage_type == usage_type);
        records.map(|record| record.minutes).sum()
    };
    (of(UsageType::Compute), of(UsageType::Storage))
}

#[tokio::test]
async fn a_failed_creation_costs_nothing_and_a_later_success_counts_from_then() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let cvm = cvm(&store, &ground, 5, "web-1").await;
        observe(&store, &cvm, &up(START), START).await;
        set_status(&store, &cvm, CvmStatus::Error, START + HOUR).await;
        observe(&store, &cvm, &up(START), START + 2 * HOUR).await;
        assert_eq!(minutes(&store, &ground, START + 3 * HOUR).await, (0, 0));
        set_status(&store, &cvm, CvmStatus::Running, START + 3 * HOUR).await;
        assert_eq!(minutes(&store, &ground, START + 4 * HOUR).await, (60, 60));
    })
    .await;
}

#[tokio::test]
async fn the_disk_counts_while_the_cvm_is_off_and_compute_until_the_vm_ended() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let cvm = cvm(&store, &ground, 5, "web-1").await;
        set_status(&store, &cvm, CvmStatus::Running, START).await;
        set_status(&store, &cvm, CvmStatus::ShuttingDown, START + 10 * MINUTE).await;
        // The node tells of it later, by its own clock.
        observe(&store, &cvm, &ended(START, START + 12 * MINUTE), START + 14 * MINUTE).await;
        set_status(&store, &cvm, CvmStatus::Stopped, START + 15 * MINUTE).await;
        assert_eq!(minutes(&store, &ground, START + 30 * MINUTE).await, (12, 30));
        let mut change = store.change().await.unwrap();
        change.delete_cvm(&cvm, START + 40 * MINUTE).await.unwrap();
        change.commit().await.unwrap();
        assert_eq!(minutes(&store, &ground, START + HOUR).await, (12, 40));
        assert_eq!(store.usage_rate(scope(&ground)).await.unwrap(), 0.into());
    })
    .await;
}

#[tokio::test]
async fn an_end_that_the_node_tells_counts_only_within_the_interval() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let (early, late) = (cvm(&store, &ground, 5, "early").await, cvm(&store, &ground, 6, "late").await);
        for cvm in [&early, &late] {
            set_status(&store, cvm, CvmStatus::Running, START).await;
        }
        observe(&store, &early, &ended(0, START - HOUR), START + 10 * MINUTE).await;
        observe(&store, &late, &ended(0, START + 20 * HOUR), START + 10 * MINUTE).await;
        let workspace = UsageScope { app_id: None, ..scope(&ground) };
        let all = store.usage_intervals(workspace, Window::EVER, None, 100).await.unwrap();
        let compute = all.iter().filter(|interval| interval.span.usage_type == UsageType::Compute);
        let ends: Vec<_> = compute.map(|interval| (interval.span.cvm_id, interval.span.to_ms)).collect();
        assert_eq!(ends, [(late.id, Some(START + 10 * MINUTE))]);
    })
    .await;
}

#[tokio::test]
async fn what_stays_up_in_an_error_is_charged_and_a_guest_cannot_talk_itself_out_of_it() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let cvm = cvm(&store, &ground, 5, "web-1").await;
        set_status(&store, &cvm, CvmStatus::Running, START).await;
        set_status(&store, &cvm, CvmStatus::Updating, START + 10 * MINUTE).await;
        observe(&store, &cvm, &ended(START, START + 10 * MINUTE), START + 10 * MINUTE).await;
        // A change that is not taken back: up, but never healthy.
        observe(&store, &cvm, &up(START), START + 20 * MINUTE).await;
        set_status(&store, &cvm, CvmStatus::Error, START + 30 * MINUTE).await;
        let pulling = ObservedVm { boot_progress: Some("pulling images".to_owned()), ..up(START) };
        observe(&store, &cvm, &pulling, START + 40 * MINUTE).await;
        assert_eq!(minutes(&store, &ground, START + HOUR).await, (50, 60));
    })
    .await;
}

#[tokio::test]
async fn a_silent_node_is_not_charged_for_after_its_last_report() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let cvm = cvm(&store, &ground, 5, "web-1").await;
        let clock = Clock::manual(jiff::Timestamp::from_millisecond(START).unwrap());
        set_status(&store, &cvm, CvmStatus::Running, START).await;
        report(&store, &ground, START + 10 * MINUTE).await;
        // Not long enough to mean anything.
        clock.advance_ms(14 * MINUTE);
        round(&store, &clock, true).await.unwrap();
        assert_eq!(minutes(&store, &ground, START + 14 * MINUTE).await, (14, 14));
        clock.advance_ms(6 * MINUTE);
        round(&store, &clock, true).await.unwrap();
        round(&store, &clock, true).await.unwrap();
        assert_eq!(minutes(&store, &ground, START + HOUR).await, (10, 10));
        // Whatever its status becomes meanwhile: nobody can say whether it runs.
        set_status(&store, &cvm, CvmStatus::Restarting, START + 30 * MINUTE).await;
        set_status(&store, &cvm, CvmStatus::Running, START + 31 * MINUTE).await;
        assert_eq!(minutes(&store, &ground, START + HOUR).await, (10, 10));
        // It ran all the time; nobody could stop it, and nobody pays.
        observe(&store, &cvm, &up(START), START + 40 * MINUTE).await;
        assert_eq!(minutes(&store, &ground, START + HOUR).await, (30, 30));
        assert_eq!(store.cvm(cvm.id).await.unwrap().unwrap().unaccounted_since_ms, None);
    })
    .await;
}

#[tokio::test]
async fn a_vm_that_its_node_starts_again_counts_from_when_its_application_is_up() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let cvm = cvm(&store, &ground, 5, "web-1").await;
        observe(&store, &cvm, &up(START), START).await;
        set_status(&store, &cvm, CvmStatus::Running, START).await;
        // The host was started again; nobody told of the end.
        let booting = ObservedVm { boot_progress: None, ..up(START + 8 * MINUTE) };
        observe(&store, &cvm, &booting, START + 10 * MINUTE).await;
        let pulling = ObservedVm { boot_progress: Some("pulling images".to_owned()), ..booting };
        observe(&store, &cvm, &pulling, START + 11 * MINUTE).await;
        observe(&store, &cvm, &up(START + 8 * MINUTE), START + 12 * MINUTE).await;
        assert_eq!(minutes(&store, &ground, START + 20 * MINUTE).await, (16, 20));
        // Nor is one up that was started again while its node was silent; the guest of one that went on cannot
        // say so.
        for (started_at_ms, expected) in [(START + 8 * MINUTE, (26, 30)), (START + 30 * MINUTE, (26, 40))] {
            let mut change = store.change().await.unwrap();
            let now_ms = started_at_ms.max(START + 20 * MINUTE);
            change.lose_cvm(cvm.id, now_ms, now_ms).await.unwrap();
            change.commit().await.unwrap();
            let pulling = ObservedVm { started_at_ms: Some(started_at_ms), ..pulling.clone() };
            observe(&store, &cvm, &pulling, now_ms).await;
            assert_eq!(minutes(&store, &ground, now_ms + 10 * MINUTE).await, expected);
        }
    })
    .await;
}

#[tokio::test]
async fn a_change_that_is_not_committed_leaves_no_trace() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let cvm = cvm(&store, &ground, 5, "web-1").await;
        let mut change = store.change().await.unwrap();
        change.set_cvm_status(cvm.id, CvmStatus::Running, START).await.unwrap();
        drop(change);
        assert_eq!(minutes(&store, &ground, START + HOUR).await, (0, 0));
    })
    .await;
}

#[tokio::test]
async fn another_price_list_counts_from_the_start_with_it() {
    on_both(|store| async move {
        let store = store.with_prices(prices(6));
        let ground = ground(&store).await;
        let cvm = cvm(&store, &ground, 5, "web-1").await;
        let clock = Clock::manual(jiff::Timestamp::from_millisecond(START).unwrap());
        round(&store, &clock, false).await.unwrap();
        set_status(&store, &cvm, CvmStatus::Running, START).await;
        clock.advance_ms(30 * MINUTE);
        round(&store, &clock, false).await.unwrap();
        let dearer = store.clone().with_prices(prices(12));
        round(&dearer, &clock, false).await.unwrap();
        round(&dearer, &clock, false).await.unwrap();
        let statement =
            store.usage_statement(scope(&ground), Window::EVER, START + HOUR, 10, 0).await.unwrap();
        // 20 GiB cost as much as the size does.
        let costs: Vec<_> =
            statement.records.iter().map(|record| record.cost.normalize().to_string()).collect();
        assert_eq!(costs, ["0.09", "0.09"]);
        assert_eq!(store.usage_rate(scope(&ground)).await.unwrap().normalize().to_string(), "0.24");
        let all = store.usage_intervals(scope(&ground), Window::EVER, None, 10).await.unwrap();
        assert_eq!(all.len(), 4, "no list is applied twice");
    })
    .await;
}

#[tokio::test]
async fn cvms_that_are_older_than_metering_count_from_the_first_start_on() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let (old, never_ran) = (cvm(&store, &ground, 5, "old").await, cvm(&store, &ground, 6, "new").await);
        set_status(&store, &old, CvmStatus::Running, START).await;
        store.forget_usage().await;
        let clock = Clock::manual(jiff::Timestamp::from_millisecond(START + HOUR).unwrap());
        round(&store, &clock, false).await.unwrap();
        assert_eq!(minutes(&store, &ground, START + HOUR).await, (0, 0));
        let workspace = UsageScope { app_id: None, ..scope(&ground) };
        let all = store.usage_intervals(workspace, Window::EVER, None, 10).await.unwrap();
        let found: Vec<_> =
            all.iter().map(|interval| (interval.span.cvm_id, interval.span.from_ms)).collect();
        assert_eq!(found, [(old.id, START + HOUR); 2]);
        assert!(all.iter().all(|interval| interval.vm_uuid != never_ran.vm_uuid));
    })
    .await;
}

#[test]
fn every_status_says_when_a_cvm_serves() {
    use cloister_metering::SERVING;
    let named: Vec<_> = SERVING.iter().map(|(name, _)| name.parse::<CvmStatus>().unwrap()).collect();
    assert_eq!(named.len(), CvmStatus::ALL.len());
    assert!(CvmStatus::ALL.iter().all(|status| named.contains(status)));
}
