//! Starts that need a key management service.

use super::*;
use crate::kms::KmsConfig;

#[tokio::test]
async fn a_key_service_that_is_away_fails_the_operation_with_its_name_and_leaves_no_vm() {
    on_both(|store| async move {
        let clock = Clock::manual(jiff::Timestamp::from_second(1_790_000_000).unwrap());
        let mut bench = Bench::at(clock, store).await;
        let absent = KmsConfig {
            slug: "local".to_owned(),
            guest_url: "https://10.0.2.2:12001".parse().unwrap(),
            directory_url: "https://127.0.0.1:9".parse().unwrap(),
            ca_file: "/nonexistent/root-ca.pem".into(),
            admin_token_file: "/nonexistent/token".into(),
            contract: None,
        };
        bench.kmses = Arc::new(Kmses::open(vec![absent], &bench.store, &bench.clock).await.unwrap());
        let mut row = provision(&bench.ground, 5, "web-1");
        row.expires_at_ms = bench.clock.now_ms() + 600_000;
        row.kms_id = Some(bench.kmses.all()[0].id());
        let mut change = bench.store.change().await.unwrap();
        change.put_provision(&row).await.unwrap();
        change.commit().await.unwrap();
        bench.start_workers(None).await;
        let cvm = bench.create().await.unwrap();
        while bench.store.cvm(cvm.id).await.unwrap().unwrap().operation_id.is_some() {
            bench.clock.advance_ms(5_000);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let row = bench.at_rest(&cvm).await;
        assert_eq!(row.status, CvmStatus::Error);
        let reason = "KMS local cannot be called: its certificate or the token is missing; was it \
                      bootstrapped? (gave up after 60 s)";
        assert_eq!(row.boot_error.as_deref(), Some(reason));
        assert_eq!((bench.nodes.vm_count(), bench.nodes.power_ons()), (0, 0));

        // A service that nobody configured any more: trying again does not help.
        bench.stop_workers().await;
        bench.kmses = Arc::default();
        bench.start_workers(None).await;
        bench.request(&cvm, OperationKind::PowerOn).await.unwrap();
        let row = bench.at_rest(&cvm).await;
        let reason = "the KMS that the CVM was made with is not part of this installation any more";
        assert_eq!((row.status, row.boot_error.as_deref()), (CvmStatus::Error, Some(reason)));
    })
    .await;
}
