//! People whom an OpenID provider knows, and logins on their way through it.

use super::*;

const ISSUER: &str = "https://id.example.org";
const OTHER_ISSUER: &str = "https://id.example.com";

async fn put(store: &Store, user: i64, issuer: &str, subject: &str) -> Result<()> {
    let mut change = store.change().await.unwrap();
    change.put_openid(user, (issuer, subject), NOW).await?;
    change.commit().await
}

async fn keep(store: &Store, token: &str, user_id: Option<i64>, most: i64, now_ms: i64) -> bool {
    let login = OpenidLoginRow { next: "/account".into(), user_id };
    let mut change = store.upkeep().await.unwrap();
    let is_kept = change.insert_openid_login(token, &login, (now_ms, now_ms + 1000), most).await.unwrap();
    change.commit().await.unwrap();
    is_kept
}

async fn take(store: &Store, token: &str, now_ms: i64) -> Option<OpenidLoginRow> {
    let mut change = store.upkeep().await.unwrap();
    let login = change.take_openid_login(token, now_ms).await.unwrap();
    change.commit().await.unwrap();
    login
}

#[tokio::test]
async fn a_subject_of_an_issuer_is_one_user_and_a_user_is_one_subject() {
    on_both(async |store| {
        let ground = ground(&store).await;
        let mut change = store.change().await.unwrap();
        let bob = change.insert_user("bob", "ada@example.org", "user", NOW).await.unwrap();
        change.commit().await.unwrap();
        put(&store, ground.user, ISSUER, "a").await.unwrap();
        // The same name at another issuer is somebody else; so is the same name in other letters.
        put(&store, bob, OTHER_ISSUER, "a").await.unwrap();
        assert_eq!(store.user_of_openid(ISSUER, "a").await.unwrap(), Some(ground.user));
        assert_eq!(store.user_of_openid(OTHER_ISSUER, "a").await.unwrap(), Some(bob));
        for (issuer, subject) in
            [(ISSUER, "A"), (ISSUER, "a "), (ISSUER, ""), ("HTTPS://id.example.org", "a")]
        {
            assert_eq!(store.user_of_openid(issuer, subject).await.unwrap(), None, "{issuer} {subject}");
        }
        assert!(put(&store, bob, ISSUER, "a").await.unwrap_err().is_duplicate());
        assert_eq!(store.user_of_openid(OTHER_ISSUER, "a").await.unwrap(), Some(bob), "nothing was done");
        put(&store, bob, ISSUER, "b").await.unwrap();
        assert_eq!(store.user_of_openid(OTHER_ISSUER, "a").await.unwrap(), None, "instead of the former");
        let openid = store.openid_of_user(bob).await.unwrap();
        assert_eq!(openid, Some((ISSUER.to_owned(), "b".to_owned())));
        let mut change = store.change().await.unwrap();
        change.remove_openid(bob).await.unwrap();
        change.commit().await.unwrap();
        assert_eq!(store.openid_of_user(bob).await.unwrap(), None);
        assert_eq!(store.user_of_openid(ISSUER, "b").await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn a_login_comes_back_once_and_in_time() {
    on_both(async |store| {
        ground(&store).await;
        assert!(keep(&store, "one", None, 2, NOW).await && keep(&store, "two", None, 2, NOW).await);
        assert!(!keep(&store, "three", None, 2, NOW).await, "there is no room");
        let expected = OpenidLoginRow { next: "/account".into(), user_id: None };
        assert_eq!(take(&store, "one", NOW + 999).await, Some(expected));
        assert_eq!(take(&store, "one", NOW + 999).await, None, "once");
        assert_eq!(take(&store, "two", NOW + 1000).await, None, "too late");
        assert_eq!(take(&store, "three", NOW).await, None);
        // Those that are too old make room.
        assert!(keep(&store, "three", None, 1, NOW + 1000).await);
    })
    .await;
}

#[tokio::test]
async fn a_login_that_waits_for_a_code_is_of_one_user() {
    on_both(async |store| {
        let ground = ground(&store).await;
        assert!(
            keep(&store, "code", Some(ground.user), 9, NOW).await && keep(&store, "way", None, 9, NOW).await
        );
        let waiting =
            async |token: &str, now_ms: i64| store.waiting_openid_login(token, now_ms).await.unwrap();
        assert_eq!(waiting("code", NOW).await.and_then(|login| login.user_id), Some(ground.user));
        assert_eq!((waiting("code", NOW + 1000).await, waiting("way", NOW).await), (None, None));
        // What waits for a code does not come back from the provider, and the other way round.
        assert_eq!(take(&store, "code", NOW).await, None);
        let mut change = store.upkeep().await.unwrap();
        for (token, user, now_ms, is_taken) in [
            ("way", ground.user, NOW, false),
            ("code", ground.user + 1, NOW, false),
            ("code", ground.user, NOW + 1000, false),
            ("code", ground.user, NOW, true),
            ("code", ground.user, NOW, false),
        ] {
            let taken = change.take_waiting_openid_login(token, user, now_ms).await.unwrap();
            assert_eq!(taken, is_taken, "{token} {user} {now_ms}");
        }
        change.commit().await.unwrap();

        // Whoever is linked to somebody else meanwhile begins again.
        assert!(keep(&store, "code", Some(ground.user), 9, NOW).await);
        put(&store, ground.user, ISSUER, "a").await.unwrap();
        assert_eq!(waiting("code", NOW).await, None);
        let mut change = store.upkeep().await.unwrap();
        assert_eq!(change.delete_ended_logins(NOW + 1000).await.unwrap(), 1, "the one on its way");
        change.commit().await.unwrap();
    })
    .await;
}
