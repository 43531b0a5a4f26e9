//! A request under an idempotency key has its effect once, whoever dies when.

use std::time::Duration;

use super::*;
use crate::store::{Begun, Ending, KeptAnswer, NamedRequest, Run, StoreError, Times};

const LASTING: i64 = 60_000;
const DAY: i64 = 24 * 60 * 60 * 1000;

fn request(api_key_id: i64, fingerprint: &str) -> NamedRequest<'_> {
    NamedRequest { api_key_id, workspace_id: 1, key_hash: "name", fingerprint }
}

async fn begin(store: &Store, request: NamedRequest<'_>, now_ms: i64) -> Begun {
    let times = Times { now_ms, running: Duration::from_mins(1), kept: Duration::from_hours(24) };
    let mut change = store.upkeep().await.unwrap();
    let begun = change.begin_run(request, times, 3).await.unwrap();
    change.commit().await.unwrap();
    begun
}

#[track_caller]
fn runs(begun: Begun) -> Run {
    match begun {
        Begun::Runs(run) => run,
        other => panic!("{other:?}"),
    }
}

async fn end(store: &Store, run: &Run, ending: Ending) {
    let mut change = store.upkeep().await.unwrap();
    change.end_run(run, &ending).await.unwrap();
    change.commit().await.unwrap();
}

async fn carry_out(store: &Store, run: &Run) -> Result<()> {
    let mut change = store.upkeep().await.unwrap();
    change.carry_out(run).await?;
    change.commit().await
}

fn answer() -> KeptAnswer {
    KeptAnswer { status: 201, content_type: Some("application/json".into()), sealed: "sealed".into() }
}

async fn key(store: &Store) -> i64 {
    let ground = ground(store).await;
    let mut change = store.change().await.unwrap();
    let new = NewApiKey {
        user_id: ground.user,
        workspace_id: ground.workspace,
        name: "key".into(),
        key_hash: "key".into(),
        key_prefix: String::new(),
        scope: KeyScope::Deploy,
        default_version: String::new(),
        expires_at_ms: None,
    };
    let id = change.insert_api_key(&new, NOW).await.unwrap();
    change.commit().await.unwrap();
    id
}

#[tokio::test]
async fn an_answer_is_kept_for_a_day() {
    on_both(|store| async move {
        let key = key(&store).await;
        let run = runs(begin(&store, request(key, "a"), NOW).await);
        assert_eq!(begin(&store, request(key, "a"), NOW).await, Begun::RunsAlready);
        assert_eq!(begin(&store, request(key, "b"), NOW).await, Begun::IsAnother);
        end(&store, &run, Ending::Success(answer())).await;
        assert_eq!(begin(&store, request(key, "a"), NOW + DAY).await, Begun::Answered(answer()));
        assert_eq!(begin(&store, request(key, "b"), NOW + DAY).await, Begun::IsAnother);
        runs(begin(&store, request(key, "b"), NOW + DAY + 1).await);
    })
    .await;
}

#[tokio::test]
async fn a_run_that_died_before_its_effect_is_begun_anew_and_has_none_later() {
    on_both(|store| async move {
        let key = key(&store).await;
        let died = runs(begin(&store, request(key, "a"), NOW).await);
        assert_eq!(begin(&store, request(key, "a"), NOW + LASTING - 1).await, Begun::RunsAlready);
        let next = runs(begin(&store, request(key, "a"), NOW + LASTING).await);
        assert!(matches!(carry_out(&store, &died).await, Err(StoreError::TakenOver)));
        // Neither does its end end the other one.
        end(&store, &died, Ending::Success(answer())).await;
        carry_out(&store, &next).await.unwrap();
        end(&store, &next, Ending::Success(answer())).await;
        assert_eq!(begin(&store, request(key, "a"), NOW + LASTING).await, Begun::Answered(answer()));
    })
    .await;
}

#[tokio::test]
async fn a_run_that_died_behind_its_effect_is_not_begun_again() {
    on_both(|store| async move {
        let key = key(&store).await;
        let died = runs(begin(&store, request(key, "a"), NOW).await);
        carry_out(&store, &died).await.unwrap();
        assert_eq!(begin(&store, request(key, "a"), NOW).await, Begun::RunsAlready);
        assert_eq!(begin(&store, request(key, "a"), NOW + LASTING).await, Begun::AnswerLost);
        assert_eq!(begin(&store, request(key, "b"), NOW + LASTING).await, Begun::IsAnother);
    })
    .await;
}

#[tokio::test]
async fn a_failure_without_effect_leaves_the_name_free_and_one_with_effect_does_not() {
    on_both(|store| async move {
        let key = key(&store).await;
        let failed = runs(begin(&store, request(key, "a"), NOW).await);
        end(&store, &failed, Ending::Refusal(answer())).await;
        let failed = runs(begin(&store, request(key, "b"), NOW).await);
        carry_out(&store, &failed).await.unwrap();
        end(&store, &failed, Ending::Refusal(answer())).await;
        assert_eq!(begin(&store, request(key, "b"), NOW).await, Begun::Answered(answer()));
    })
    .await;
}

#[tokio::test]
async fn a_failure_is_nobodys_answer_and_a_wish_to_repeat_frees_the_name() {
    on_both(|store| async move {
        let key = key(&store).await;
        for ending in [Ending::Failure, Ending::Again] {
            let failed = runs(begin(&store, request(key, "a"), NOW).await);
            end(&store, &failed, ending).await;
        }
        let again = runs(begin(&store, request(key, "b"), NOW).await);
        carry_out(&store, &again).await.unwrap();
        end(&store, &again, Ending::Again).await;
        let failed = runs(begin(&store, request(key, "a"), NOW).await);
        carry_out(&store, &failed).await.unwrap();
        end(&store, &failed, Ending::Failure).await;
        assert_eq!(begin(&store, request(key, "a"), NOW).await, Begun::AnswerLost);
    })
    .await;
}

#[tokio::test]
async fn of_too_many_the_oldest_that_ended_is_forgotten() {
    on_both(|store| async move {
        let key = key(&store).await;
        let named = |key_hash| NamedRequest { api_key_id: key, workspace_id: 1, key_hash, fingerprint: "a" };
        for (name, later) in [("1", 0), ("2", 1), ("3", 2)] {
            runs(begin(&store, named(name), NOW + later).await);
        }
        assert_eq!(begin(&store, named("4"), NOW).await, Begun::TooMany, "all of them run");
        for name in ["3", "2"] {
            let Begun::Runs(run) = begin(&store, named(name), NOW + LASTING + 2).await else {
                panic!("{name}")
            };
            end(&store, &run, Ending::Success(answer())).await;
        }
        runs(begin(&store, named("4"), NOW + LASTING + 3).await);
        let mut change = store.upkeep().await.unwrap();
        assert_eq!(change.delete_old_requests(NOW + DAY, Duration::from_hours(24), 10).await.unwrap(), 0);
        assert_eq!(change.delete_old_requests(NOW + DAY + 1, Duration::from_hours(24), 10).await.unwrap(), 1);
        change.commit().await.unwrap();
    })
    .await;
}
