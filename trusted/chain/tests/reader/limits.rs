use cloister_chain::AllowanceQuestion;
use cloister_development_chain::Config;

use crate::proxy::honest;
use crate::support::{
    DEVICE, HASH, add_hash, boot, is_allowed, mine, new_app, node, question, reader, remove_hash,
};

#[tokio::test]
async fn a_check_is_one_round_trip_and_a_thousand_are_at_most_three() {
    let node = node(Config::default()).await;
    let app = new_app(&node, Some(HASH), Some(DEVICE)).await;
    let endpoint = honest(node.rpc_url()).await;
    let chain = reader(std::slice::from_ref(&endpoint.url), |config| config.confirmations = 2);
    mine(&node, 3).await;
    assert!(is_allowed(&chain, app).await);
    assert!(endpoint.asked() <= 3, "{}", endpoint.asked());

    let mut before = endpoint.asked();
    let mut trips = || {
        let now = endpoint.asked();
        now - std::mem::replace(&mut before, now)
    };
    for _ in 0..3 {
        assert!(is_allowed(&chain, app).await);
        assert_eq!(trips(), 1);
        chain.is_app_allowed(node.kms_contract(), &boot(app)).await.unwrap();
        assert_eq!(trips(), 1);
    }
    // Refused at both blocks: one, too. Just revoked: the confirmed block is looked at anew.
    mine(&node, 1).await;
    assert!(
        !chain
            .allowances(app, &[AllowanceQuestion { compose_hash: [9; 32], device_id: DEVICE }])
            .await
            .unwrap()
            .results[0]
            .is_allowed
    );
    assert_eq!(trips(), 1);
    remove_hash(&node, app, HASH).await;
    assert!(!is_allowed(&chain, app).await);
    assert!(trips() <= 3);

    // A thousand pairs in which every document and every device is another one.
    add_hash(&node, app, HASH).await;
    mine(&node, 3).await;
    let mut pairs: Vec<AllowanceQuestion> = (0..999_u32)
        .map(|number| {
            let (mut compose_hash, mut device_id) = ([0xcc; 32], [0xdd; 32]);
            compose_hash[..4].copy_from_slice(&number.to_be_bytes());
            device_id[..4].copy_from_slice(&number.to_be_bytes());
            AllowanceQuestion { compose_hash, device_id }
        })
        .collect();
    pairs.insert(500, question()[0]);
    for first in [false, true] {
        let chain = if first {
            reader(std::slice::from_ref(&endpoint.url), |config| config.confirmations = 2)
        } else {
            chain.clone()
        };
        trips();
        let answer = chain.allowances(app, &pairs).await.unwrap();
        assert!(trips() <= 3);
        let allowed: Vec<usize> = (0..1000).filter(|at| answer.results[*at].is_allowed).collect();
        assert_eq!(allowed, [500]);
    }
}
