//! A worker dies at every boundary of every step; the next one finishes the work exactly once.

use parking_lot::Mutex;

use super::*;
use crate::store::tests::embedded;

/// Panics once at one boundary, which ends the worker's task with its lease still held.
fn die_once_at(kind: OperationKind, step: Step, boundary: Boundary) -> (Observer, Arc<Mutex<bool>>) {
    die_at(kind, step, boundary, 1)
}

/// The same when the boundary is reached for the `nth` time.
fn die_at(kind: OperationKind, step: Step, boundary: Boundary, nth: u32) -> (Observer, Arc<Mutex<bool>>) {
    let died = Arc::new(Mutex::new(false));
    let (seen, times) = (Arc::clone(&died), Mutex::new(0));
    let observer: Observer = Arc::new(move |at_kind, at_step, at_boundary| {
        if (at_kind, at_step, at_boundary) == (kind, step, boundary) {
            *times.lock() += 1;
            let is_due = *times.lock() == nth;
            *seen.lock() |= is_due;
            assert!(!is_due, "the worker dies here");
        }
    });
    (observer, died)
}

impl Bench {
    /// Waits for the death, then does what a new process does.
    async fn take_over_after(&mut self, died: &Mutex<bool>) {
        while !*died.lock() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.stop_workers().await;
        self.store.expire_all_leases().await.unwrap();
        self.start_workers(None).await;
    }
}

const BOUNDARIES: [Boundary; 3] = [Boundary::Before, Boundary::CarriedOut, Boundary::Recorded];

#[tokio::test]
async fn a_restart_survives_a_death_at_every_boundary() {
    on_both(|store| async move {
        let mut bench = Bench::new(store).await;
        let cvm = bench.running_cvm().await;
        let (kind, mut restarts) = (OperationKind::Restart, 0);
        for step in kind.rules().steps {
            for boundary in BOUNDARIES {
                bench.stop_workers().await;
                let (observer, died) = die_once_at(kind, *step, boundary);
                bench.start_workers(Some(observer)).await;
                bench.request(&cvm, kind).await.unwrap();
                bench.take_over_after(&died).await;
                assert_eq!(bench.at_rest(&cvm).await.status, CvmStatus::Running, "{step} {boundary:?}");
                restarts += 1;
            }
        }
        assert_eq!(bench.nodes.power_ons(), 1 + restarts, "one power-on per restart");
        for operation in bench.operations(&cvm).await {
            assert_eq!(operation.status, OperationStatus::Completed);
            let events = bench.events(&operation).await;
            let expected = operation.kind.rules().steps.len() + 2;
            assert_eq!(events.len(), expected, "no event is lost or doubled: {events:?}");
        }
        bench.check_told(&cvm).await;
    })
    .await;
}

#[tokio::test]
async fn creation_and_deletion_survive_a_death_at_every_boundary() {
    for kind in [OperationKind::Create, OperationKind::Delete] {
        for (index, step) in kind.rules().steps.iter().enumerate() {
            for boundary in BOUNDARIES {
                on_both(|store| async move {
                    let mut bench = Bench::without_workers(store).await;
                    let (observer, died) = die_once_at(kind, *step, boundary);
                    bench.start_workers(Some(observer)).await;
                    let cvm = bench.create().await.unwrap();
                    if kind == OperationKind::Delete {
                        bench.at_rest(&cvm).await;
                        bench.request(&cvm, kind).await.unwrap();
                    }
                    bench.take_over_after(&died).await;
                    let row = bench.at_rest(&cvm).await;
                    let expected = usize::from(kind == OperationKind::Create);
                    assert_eq!(row.deleted_at_ms.is_none(), expected == 1);
                    assert_eq!(bench.nodes.vm_count(), expected, "{kind} {index} {boundary:?}");
                    assert_eq!(bench.nodes.power_ons(), 1, "{kind} {index} {boundary:?}");
                    bench.check_told(&cvm).await;
                })
                .await;
            }
        }
    }
}

/// A way through the steps of a change, and where it ends.
#[derive(Clone, Copy)]
struct Way {
    kind: OperationKind,
    power: Power,
    /// Whether the new revision does not boot.
    fails: bool,
}

/// Deaths on a way: a step, and for how many times it is reached then.
fn deaths(way: Way) -> Vec<(Step, u32)> {
    let rules = way.kind.rules_for(way.power);
    if !way.fails {
        return rules.steps.iter().map(|step| (*step, 1)).collect();
    }
    // Up to the boot that fails each step was taken once.
    let failed = rules.steps.iter().position(|step| *step == Step::AwaitBoot).unwrap();
    let times = |step: &Step| 1 + u32::from(rules.steps[..=failed].contains(step));
    // The one that fails is begun and not carried out.
    let nth = |step: &Step| if *step == Step::AwaitBoot { 1 } else { times(step) };
    rules.undo.iter().map(|step| (*step, nth(step))).collect()
}

impl Bench {
    /// Changes the CVM while the worker dies at a boundary; what it is then.
    async fn change_through_a_death(
        &mut self,
        cvm: &CvmRow,
        way: Way,
        death: (Step, u32),
        boundary: Boundary,
    ) {
        let before = self.at_rest(cvm).await;
        let (step, nth) = death;
        // A step that fails is begun and recorded once more than it is carried out.
        let is_failing_step = way.fails && step == Step::AwaitBoot;
        let nth = nth + u32::from(is_failing_step && boundary != Boundary::CarriedOut);
        self.stop_workers().await;
        let (observer, died) = die_at(way.kind, step, boundary, nth);
        self.start_workers(Some(observer)).await;
        if way.fails {
            self.nodes.set_fault(Step::AwaitBoot, Fault::BootErrorOnce("bad image"));
        }
        let number = before.operation_count;
        let accepted = self.update(cvm, |wanted| wanted.app_compose = format!("{number}")).await.unwrap();
        self.take_over_after(&died).await;
        let row = self.at_rest(cvm).await;
        let place = format!("{step} {boundary:?} {}", way.fails);
        assert_eq!(row.status, before.status, "{place}");
        let expected = if way.fails { before.revision_id } else { Some(accepted.revision_id) };
        assert_eq!(row.revision_id, expected, "{place}");
        let runs = self.nodes.runs(cvm.vm_uuid).map(|spec| spec.app_compose);
        assert_eq!(runs, (row.status == CvmStatus::Running).then_some(row.app_compose), "{place}");
        let events = self.events(self.operations(cvm).await.last().unwrap()).await;
        let mut once = events.clone();
        once.dedup();
        assert_eq!(once, events, "{place}: no event is doubled");
    }

    /// Every `nth` death of a way, counted from the first.
    async fn changes_through_deaths(store: Store, way: Way, nth: usize) {
        let mut bench = Self::new(store).await;
        let cvm = bench.running_cvm().await;
        if way.power == Power::Off {
            bench.request(&cvm, OperationKind::Shutdown).await.unwrap();
            bench.at_rest(&cvm).await;
        }
        let all = deaths(way);
        let places = all.iter().flat_map(|death| BOUNDARIES.map(|boundary| (*death, boundary)));
        for (death, boundary) in places.step_by(nth) {
            bench.change_through_a_death(&cvm, way, death, boundary).await;
        }
        bench.check_told(&cvm).await;
        bench.stop_workers().await;
    }
}

#[tokio::test]
async fn a_change_survives_a_death_at_every_boundary_on_the_way_and_on_the_way_back() {
    let kind = OperationKind::ComposeUpdate;
    let ways = [(Power::On, false), (Power::On, true), (Power::Off, false)];
    for (power, fails) in ways {
        let way = Way { kind, power, fails };
        let dir = tempfile::tempdir().unwrap();
        let store = embedded(dir.path()).await;
        Bench::changes_through_deaths(store, way, 1).await;
    }
    on_both(|store| Bench::changes_through_deaths(store, Way { kind, power: Power::On, fails: true }, 5))
        .await;
}
