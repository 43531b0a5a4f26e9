//! Applications and SSH keys.

use super::*;

/// CVMs of three applications: two of the first, on two images.
async fn scene(store: &Store) -> (Ground, Vec<i64>) {
    let ground = ground(store).await;
    let mut ids = Vec::new();
    for (seed, name, image, vm) in
        [(1, "web-one", "a", 1), (2, "Db_100%", "b", 2), (1, "web-two", "b", 3), (3, "worker", "a", 4)]
    {
        let mut row = provision(&ground, seed, name);
        row.os_image_name = image.to_owned();
        row.listed = i64::from(seed == 2);
        let new = NewCvm::of_provision(&row, ground.user, Uuid::from_u128(vm), None);
        let mut change = store.change().await.unwrap();
        ids.push(change.insert_cvm(&new, NOW + i64::from(seed)).await.unwrap());
        change.commit().await.unwrap();
    }
    (ground, ids)
}

async fn found(store: &Store, filter: &AppFilter) -> Vec<(u8, i64)> {
    let apps = store.apps(filter, 100, 0).await.unwrap();
    assert_eq!(store.count_apps(filter).await.unwrap(), i64::try_from(apps.len()).unwrap());
    apps.iter().map(|app| (app.app_id.as_bytes()[0], app.cvm_count)).collect()
}

#[tokio::test]
async fn apps_are_found_by_what_any_of_their_cvms_is() {
    on_both(|store| async move {
        let (ground, ids) = scene(&store).await;
        let mut change = store.change().await.unwrap();
        change.set_cvm_status(ids[0], CvmStatus::Running, NOW).await.unwrap();
        change.commit().await.unwrap();
        let all = AppFilter::all_of(ground.workspace);
        assert_eq!(found(&store, &all).await, [(3, 1), (1, 2), (2, 1)], "the newest CVM first");
        let text = |text: &str| Some(text.to_owned());
        for (filter, expected) in [
            (AppFilter { search: text("WEB"), ..all.clone() }, vec![(1, 2)]),
            (AppFilter { search: text("02020202"), ..all.clone() }, vec![(2, 1)]),
            (AppFilter { search: text("b_100%"), ..all.clone() }, vec![(2, 1)]),
            (AppFilter { search: text("w%b"), ..all.clone() }, vec![]),
            (AppFilter { search: text("_"), ..all.clone() }, vec![(2, 1)]),
            (AppFilter { search: text("00000004"), ..all.clone() }, vec![(3, 1)]),
            (AppFilter { statuses: Some(vec!["running".into()]), ..all.clone() }, vec![(1, 2)]),
            (
                AppFilter { statuses: Some(vec!["creating".into(), "error".into()]), ..all.clone() },
                vec![(3, 1), (1, 2), (2, 1)],
            ),
            (AppFilter { statuses: Some(vec!["run".into()]), ..all.clone() }, vec![]),
            (AppFilter { statuses: Some(vec![]), ..all.clone() }, vec![]),
            (AppFilter { listed: Some(true), ..all.clone() }, vec![(2, 1)]),
            (AppFilter { listed: Some(false), ..all.clone() }, vec![(3, 1), (1, 2)]),
            (AppFilter { base_image: text("b"), ..all.clone() }, vec![(1, 2), (2, 1)]),
            (AppFilter { instance_type: text("tdx.small"), ..all.clone() }, vec![]),
            (AppFilter { kms_ids: Some(vec![1]), ..all.clone() }, vec![]),
            (AppFilter { node_ids: Some(vec![ground.node]), ..all.clone() }, vec![(3, 1), (1, 2), (2, 1)]),
            (AppFilter { node_ids: Some(vec![ground.node + 1, ground.node * 10]), ..all.clone() }, vec![]),
            (AppFilter::all_of(ground.workspace + 1), vec![]),
        ] {
            assert_eq!(found(&store, &filter).await, expected, "{filter:?}");
        }
        let second = store.apps(&all, 1, 1).await.unwrap();
        assert_eq!((second.len(), second[0].app_id), (1, AppId::from_bytes([1; 20])));
        assert_eq!(store.app_facets(ground.workspace).await.unwrap().len(), 3);
    })
    .await;
}

#[tokio::test]
async fn an_app_is_its_living_cvms() {
    on_both(|store| async move {
        let (ground, ids) = scene(&store).await;
        let apps = [1, 3].map(|seed| AppId::from_bytes([seed; 20]));
        let shown = store.cvms_of_apps(ground.workspace, &apps).await.unwrap();
        assert_eq!(shown.iter().map(|cvm| cvm.id).collect::<Vec<_>>(), [ids[3], ids[2], ids[0]]);
        assert!(store.cvms_of_apps(ground.workspace + 1, &apps).await.unwrap().is_empty());

        for id in [ids[0], ids[3]] {
            let mut change = store.change().await.unwrap();
            let cvm = change.lock_cvm(id).await.unwrap().unwrap();
            change.delete_cvm(&cvm, NOW).await.unwrap();
            change.commit().await.unwrap();
        }
        let left = store.app(ground.workspace, apps[0]).await.unwrap().unwrap();
        assert_eq!(left.cvm_count, 1);
        assert!(store.app(ground.workspace, apps[1]).await.unwrap().is_none());
        assert!(store.app(ground.workspace + 1, apps[0]).await.unwrap().is_none());
        assert_eq!(found(&store, &AppFilter::all_of(ground.workspace)).await, [(1, 1), (2, 1)]);
    })
    .await;
}

#[tokio::test]
async fn a_user_has_a_key_once_until_it_is_deleted() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let key = |user_id| NewSshKey {
            user_id,
            name: "laptop",
            public_key: "ssh-ed25519 AAAA",
            fingerprint: "SHA256:x",
            key_type: "ed25519",
        };
        let add = async |user| {
            let mut change = store.change().await.unwrap();
            let count = change.lock_ssh_keys(user).await.unwrap();
            let id = change.insert_ssh_key(&key(user), NOW).await?;
            change.commit().await.map(|()| (count, id))
        };
        let (before, id) = add(ground.user).await.unwrap();
        assert_eq!(before, 0);
        assert!(add(ground.user).await.unwrap_err().is_duplicate());

        let mut change = store.change().await.unwrap();
        let other = change.insert_user("bob", "", "user", NOW).await.unwrap();
        change.commit().await.unwrap();
        add(other).await.unwrap();
        assert_eq!(store.ssh_keys_of_members(ground.workspace).await.unwrap().len(), 1, "bob is no member");

        for (user, expected) in [(other, false), (ground.user, true), (ground.user, false)] {
            let mut change = store.change().await.unwrap();
            assert_eq!(change.delete_ssh_key(user, id, NOW).await.unwrap(), expected);
            change.commit().await.unwrap();
        }
        assert!(store.ssh_keys_of(ground.user).await.unwrap().is_empty());
        let (before, again) = add(ground.user).await.unwrap();
        assert_eq!(before, 0);
        assert_ne!(again, id);
        assert_eq!(store.ssh_keys_of(ground.user).await.unwrap()[0].username, "ada");
    })
    .await;
}
