//! What was stolen is presented at the same moment as what was not.

use super::super::Installation;

/// Whichever request comes first: nobody has a key that works.
async fn two_at_once_have_nothing(installation: Installation) {
    let mut browser = installation.logged_in().await;
    for _ in 0..4 {
        let code = browser.code("read").await;
        let (one, other) = tokio::join!(installation.exchange(&code, &[]), installation.exchange(&code, &[]));
        let answers = [one, other];
        assert!(answers.iter().filter(|answer| answer.status == 200).count() <= 1);
        for answer in answers.iter().filter(|answer| answer.status == 200) {
            assert_eq!(installation.me(&answer.json()).await, 401);
        }

        let code = browser.code("read").await;
        let token = installation.exchange(&code, &[]).await.expect(200).json();
        let (one, other) = tokio::join!(installation.renew(&token, &[]), installation.renew(&token, &[]));
        assert_eq!(installation.me(&token).await, 401);
        for answer in [one, other].iter().filter(|answer| answer.status == 200) {
            assert_eq!(installation.me(&answer.json()).await, 401);
            installation.renew(&answer.json(), &[]).await.expect(400);
        }
        installation.app.clock.advance_ms(60_000);
    }
}

#[tokio::test]
async fn two_at_once_have_nothing_on_sqlite() {
    two_at_once_have_nothing(Installation::new().await).await;
}

#[tokio::test]
async fn two_at_once_have_nothing_on_postgresql() {
    two_at_once_have_nothing(Installation::on_postgres().await).await;
}
