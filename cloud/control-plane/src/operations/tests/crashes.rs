//! A worker dies at every boundary of every step; the next one finishes the work exactly once.

use parking_lot::Mutex;

use super::*;

/// Panics once at one boundary, which ends the worker's task with its lease still held.
fn die_once_at(kind: OperationKind, step: Step, boundary: Boundary) -> (Observer, Arc<Mutex<bool>>) {
    let died = Arc::new(Mutex::new(false));
    let seen = Arc::clone(&died);
    let observer: Observer = Arc::new(move |at_kind, at_step, at_boundary| {
        if (at_kind, at_step, at_boundary) == (kind, step, boundary) {
            let first_time = !std::mem::replace(&mut *seen.lock(), true);
            assert!(!first_time, "the worker dies here");
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
                })
                .await;
            }
        }
    }
}
