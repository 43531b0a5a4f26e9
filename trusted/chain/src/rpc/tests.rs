use alloy_primitives::B256;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{MAX_BATCH, decode, wire};
use crate::answers::Receipt;
use crate::reader::MAX_LOGS;

fn body(items: &[(Value, Value)]) -> Vec<u8> {
    let items: Vec<Value> =
        items.iter().map(|(id, result)| json!({"jsonrpc": "2.0", "id": id, "result": result})).collect();
    serde_json::to_vec(&items).unwrap()
}

fn receipt(change: impl FnOnce(&mut Value)) -> Result<Option<Receipt>, crate::Failure> {
    let transaction = B256::repeat_byte(9);
    let mut receipt = json!({
        "transactionHash": transaction.to_string(), "blockNumber": "0x10", "blockHash": B256::repeat_byte(1).to_string(),
        "status": "0x1", "from": "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266", "to": null,
        "logs": [{"address": "0x5fbdb2315678afecb367f032d93f642f64180aa3", "topics": [], "data": "0x"}],
    });
    change(&mut receipt);
    wire::receipt(&receipt.to_string(), transaction)
}

#[test]
fn a_receipt_is_whole_or_none() {
    assert!(receipt(|_| {}).unwrap().unwrap().succeeded);
    assert_eq!(receipt(|receipt| *receipt = Value::Null), Ok(None));
    assert_eq!(receipt(|receipt| receipt["blockHash"] = Value::Null), Ok(None));
    assert_eq!(receipt(|receipt| receipt["logs"][0]["removed"] = json!(true)), Ok(None));
    assert!(!receipt(|receipt| receipt["status"] = json!("0x0")).unwrap().unwrap().succeeded);
    let broken: [fn(&mut Value); 9] = [
        |receipt| receipt["status"] = json!("0x2"),
        |receipt| receipt["status"] = json!(1),
        |receipt| receipt["status"] = Value::Null,
        |receipt| receipt["from"] = json!("0xf39f"),
        |receipt| receipt["blockNumber"] = json!("16"),
        |receipt| receipt["blockNumber"] = json!("0x+1"),
        |receipt| receipt["blockNumber"] = json!(format!("0x{}", "f".repeat(17))),
        |receipt| receipt["logs"] = Value::Null,
        |receipt| receipt["logs"][0]["topics"] = json!(vec![B256::ZERO.to_string(); 5]),
    ];
    for change in broken {
        assert!(receipt(change).is_err());
    }
    let with_logs =
        |count| receipt(move |receipt| receipt["logs"] = json!(vec![receipt["logs"][0].clone(); count]));
    assert_eq!(with_logs(MAX_LOGS).unwrap().unwrap().logs.len(), MAX_LOGS);
    assert!(with_logs(MAX_LOGS + 1).is_err());
}

#[test]
fn a_batch_has_each_answer_once() {
    let one = |id: Value| (id, json!("0x1"));
    assert!(decode(&body(&[one(json!(0)), one(json!(1))]), 2).is_ok());
    for items in [vec![0], vec![0, 0], vec![0, 2], vec![0, 1, 2]] {
        let items: Vec<_> = items.into_iter().map(|id| one(json!(id))).collect();
        assert!(decode(&body(&items), 2).is_err(), "{items:?}");
    }
    for odd in [json!("0"), json!(0.5), json!(-1), json!(null), json!(u64::MAX)] {
        assert!(decode(&body(&[one(odd)]), 1).is_err());
    }
    assert!(decode(&body(&vec![one(json!(0)); MAX_BATCH + 1]), 1).is_err());
    // An error beside a result is an error.
    let both =
        br#"[{"id":0,"result":"0x1","error":{"code":3,"message":"execution reverted","data":"0x01"}}]"#;
    let error = decode(both, 1).unwrap().remove(0).unwrap_err();
    assert_eq!((error.code, error.data.as_deref()), (3, Some(&[1_u8][..])));
}

proptest! {
    #[test]
    fn answers_come_back_in_the_order_of_the_questions(order in Just((0..9_usize).collect::<Vec<_>>()).prop_shuffle()) {
        let items: Vec<_> = order.iter().map(|id| (json!(id), json!(id))).collect();
        let decoded = decode(&body(&items), 9).unwrap();
        for (position, item) in decoded.into_iter().enumerate() {
            prop_assert_eq!(item.unwrap(), position.to_string());
        }
    }

    #[test]
    fn nothing_makes_it_panic(body in proptest::collection::vec(any::<u8>(), 0..400)) {
        crate::fuzzing::answers(&body);
    }

    #[test]
    fn broken_answers_do_not_either(cut in 0..600_usize, flip in 0..600_usize, with in any::<u8>()) {
        let mut whole = include_bytes!("../../fuzz/seeds/answers/receipt.json").to_vec();
        if let Some(byte) = whole.get_mut(flip) {
            *byte = with;
        }
        whole.truncate(cut.max(1));
        crate::fuzzing::answers(&whole);
    }
}
