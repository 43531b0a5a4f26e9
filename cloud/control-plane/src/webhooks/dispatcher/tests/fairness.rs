use super::*;

/// Waits until a host got so many requests.
async fn until_got(bench: &Bench, host: &str, count: usize) {
    while bench.receivers.requests_to(host).len() < count {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn receivers_that_hang_delay_nobody_else() {
    on_both(|store| async move {
        let mut bench = Bench::without_dispatcher(store).await;
        bench.limits = Limits { per_webhook: 4, fast: 8, slow: 64 };
        for number in 0..12 {
            let host = format!("hangs-{number}");
            bench.receivers.always(&host, Reply::Hangs);
            bench.webhook(&host).await;
        }
        bench.webhook("up").await;
        for number in 0..20 {
            bench.happens(number % 3, &number.to_string()).await;
        }
        bench.start();
        // More hang than there is room for at a time, and still this one gets everything.
        until_got(&bench, "up", 20).await;
        for number in 0..12 {
            assert!(bench.receivers.requests_to(&format!("hangs-{number}")).len() <= 4);
        }
        let under_way = bench.receivers.requests().len() - 20;
        assert!(under_way <= 64 + 8, "{under_way}");
        bench.die().await;
    })
    .await;
}

#[tokio::test]
async fn two_dispatchers_share_the_work_and_do_nothing_twice() {
    on_postgres(|store| async move {
        let mut one = Bench::without_dispatcher(store).await;
        for number in 0..8 {
            one.webhook(&format!("host-{number}")).await;
        }
        for number in 0..30 {
            one.happens(number % 3, &format!("{number:02}")).await;
        }
        one.start();
        let first = one.dispatcher.take();
        one.start();
        one.settled().await;
        first.unwrap().stop().await;
        one.stop().await;
        for number in 0..8 {
            let host = format!("host-{number}");
            let mut markers = one.receivers.markers(&host);
            for cvm in 0..3 {
                let own: Vec<_> =
                    markers.iter().filter(|marker| marker.parse::<usize>().unwrap() % 3 == cvm).collect();
                assert!(own.is_sorted(), "{host} {own:?}");
            }
            markers.sort();
            assert!(
                markers.iter().eq((0..30).map(|number| format!("{number:02}")).collect::<Vec<_>>().iter())
            );
        }
    })
    .await;
}
