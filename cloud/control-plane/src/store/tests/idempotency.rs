//! A request under an idempotency key has its effect once, whoever dies when.

use std::time::Duration;

use super::*;
use crate::store::{Begun, KeptAnswer, NamedRequest, Run, StoreError, Times};

const LASTING: i64 = 60_000;
const DAY: i64 = 24 * 60 * 60 * 1000;

fn request(api_key_id: i64, fingerprint: &str) -> NamedRequest<'_> {
    NamedRequest { api_key_id, key_hash: "name", fingerprint }
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

async fn end(store: &Store, run: &Run, answer: &KeptAnswer, is_success: bool) {
    let mut change = store.upkeep().await.unwrap();
    change.end_run(run, answer, is_success).await.unwrap();
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
        end(&store, &run, &answer(), true).await;
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
        end(&store, &died, &answer(), true).await;
        carry_out(&store, &next).await.unwrap();
        end(&store, &next, &answer(), true).await;
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
        end(&store, &failed, &answer(), false).await;
        let failed = runs(begin(&store, request(key, "b"), NOW).await);
        carry_out(&store, &failed).await.unwrap();
        end(&store, &failed, &answer(), false).await;
        assert_eq!(begin(&store, request(key, "b"), NOW).await, Begun::Answered(answer()));
    })
    .await;
}

#[tokio::test]
async fn a_key_has_so_many_requests_until_they_are_forgotten() {
    on_both(|store| async move {
        let key = key(&store).await;
        let named = |key_hash| NamedRequest { api_key_id: key, key_hash, fingerprint: "a" };
        for name in ["1", "2", "3"] {
            runs(begin(&store, named(name), NOW).await);
        }
        assert_eq!(begin(&store, named("4"), NOW).await, Begun::TooMany);
        assert_eq!(begin(&store, named("3"), NOW).await, Begun::RunsAlready);
        let mut change = store.upkeep().await.unwrap();
        assert_eq!(change.delete_old_requests(NOW + DAY, Duration::from_hours(24), 10).await.unwrap(), 0);
        assert_eq!(change.delete_old_requests(NOW + DAY + 1, Duration::from_hours(24), 2).await.unwrap(), 2);
        change.commit().await.unwrap();
        runs(begin(&store, named("4"), NOW).await);
    })
    .await;
}
