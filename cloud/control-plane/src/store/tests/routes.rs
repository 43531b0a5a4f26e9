//! Where applications run.

use super::*;

#[tokio::test]
async fn routes_are_those_of_living_cvms_with_their_nodes() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let (first, second) =
            (cvm(&store, &ground, 1, "web-1").await, cvm(&store, &ground, 2, "web-2").await);
        let mut change = store.change().await.unwrap();
        change.put_node_report(ground.node, "{}", NOW).await.unwrap();
        let instance = "ab".repeat(20).parse().unwrap();
        let instance_id = Some(instance);
        let health = Some("healthy".to_owned());
        let seen = ObservedVm { instance_id, health, started_at_ms: Some(NOW), ..ObservedVm::default() };
        change.observe_cvm(first.id, &seen, NOW).await.unwrap();
        change.commit().await.unwrap();

        let expected = RouteRow {
            vm_uuid: first.vm_uuid,
            status: CvmStatus::Creating,
            boot_progress: None,
            health: Some("healthy".to_owned()),
            started_at_ms: Some(NOW),
            exited_at_ms: None,
            node_id: ground.node,
            node_name: "alpha".to_owned(),
            report: Some("{}".to_owned()),
            reported_at_ms: Some(NOW),
        };
        assert_eq!(store.routes_of_app(first.app_id).await.unwrap(), std::slice::from_ref(&expected));
        assert_eq!(store.routes_of_instance(instance).await.unwrap(), std::slice::from_ref(&expected));
        let other = store.routes_of_app(second.app_id).await.unwrap();
        assert_eq!((other.len(), other[0].vm_uuid, other[0].reported_at_ms), (1, second.vm_uuid, Some(NOW)));

        // Who claims it later gets it when nobody has it any more.
        let mut change = store.change().await.unwrap();
        change.observe_cvm(second.id, &seen, NOW).await.unwrap();
        change.commit().await.unwrap();
        assert_eq!(store.routes_of_instance(instance).await.unwrap(), [expected]);
        let mut change = store.change().await.unwrap();
        change.delete_cvm(&first, NOW).await.unwrap();
        change.commit().await.unwrap();
        assert_eq!(store.routes_of_app(first.app_id).await.unwrap(), []);
        assert_eq!(store.routes_of_instance(instance).await.unwrap(), []);
        let mut change = store.change().await.unwrap();
        change.observe_cvm(second.id, &seen, NOW).await.unwrap();
        change.commit().await.unwrap();
        assert_eq!(store.routes_of_instance(instance).await.unwrap()[0].vm_uuid, second.vm_uuid);
    })
    .await;
}
