use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use cloister_chain::{Address, B256, Chain, ChainConfig, ChainError, Clock, InvalidChainConfig};
use cloister_development_chain::{CHAIN_ID, DevelopmentChain};
use http::StatusCode;
use serde_json::{Value, json};
use url::Url;

use crate::proxy::{Proxy, Reply, honest, proxy};
use crate::support::{DEVICE, HASH, add_hash, is_allowed, new_app, question, reader, shared};

/// An application that is allowed, so that only the endpoint can be the reason for a refusal.
async fn allowed() -> (&'static DevelopmentChain, Address) {
    let node = shared().await;
    (node, new_app(node, Some(HASH), Some(DEVICE)).await)
}

fn chain_of(endpoints: &[&Proxy], change: impl FnOnce(&mut ChainConfig)) -> Chain {
    let urls: Vec<Url> = endpoints.iter().map(|endpoint| endpoint.url.clone()).collect();
    reader(&urls, |config| {
        config.request_timeout = Duration::from_secs(20);
        change(config);
    })
}

/// A reader to which a head from 1970 is too old; it waits long only for answers that come.
fn suspicious(endpoints: &[&Proxy], why: &str) -> Chain {
    chain_of(endpoints, |config| {
        config.max_head_age = Some(Duration::from_secs(1 << 30));
        if why == "no answer in time" {
            config.request_timeout = Duration::from_secs(1);
        }
    })
}

/// Each answer of a batch, changed; `change` gets the question that it belongs to.
fn each(asked: &Value, mut answer: Value, change: impl Fn(&Value, &mut Value)) -> Reply {
    for item in answer.as_array_mut().unwrap() {
        let id = &item["id"];
        let question = asked.as_array().unwrap().iter().find(|question| &question["id"] == id).unwrap();
        change(question, item);
    }
    Reply::json(&answer)
}

fn header_time(question: &Value, item: &mut Value, time: &str) {
    if question["method"] == "eth_getBlockByNumber" {
        item["result"]["timestamp"] = json!(time);
    }
}

type Change = fn(&mut Value);
type Lie = Box<dyn Fn(&Value, Value) -> Reply + Send + Sync>;

/// What endpoints may do instead of answering, and the words that say so.
fn lies() -> Vec<(&'static str, Lie)> {
    let text = |status: StatusCode, text: &'static str| -> Lie {
        Box::new(move |_, _| Reply::Text(status, text.to_owned()))
    };
    let items = |change: fn(&Value, &mut Value)| -> Lie {
        Box::new(move |asked, answer| each(asked, answer, change))
    };
    let list = |change: fn(&mut Vec<Value>)| -> Lie {
        Box::new(move |_, mut answer| {
            change(answer.as_array_mut().unwrap());
            Reply::json(&answer)
        })
    };
    vec![
        ("not JSON-RPC", text(StatusCode::OK, "<!doctype html><title>Sign in</title>")),
        ("not JSON-RPC", text(StatusCode::OK, "")),
        ("not JSON-RPC", text(StatusCode::OK, "[[[[[[[[[[")),
        ("not JSON-RPC", Box::new(|_, _| Reply::Text(StatusCode::OK, "[".repeat(1_000_000)))),
        (
            "not JSON-RPC",
            Box::new(|_, answer| {
                let text = answer.to_string();
                Reply::Text(StatusCode::OK, text[..text.len() / 2].to_owned())
            }),
        ),
        ("HTTP status 500", text(StatusCode::INTERNAL_SERVER_ERROR, "[]")),
        ("HTTP status 302", text(StatusCode::FOUND, "")),
        ("too long", Box::new(|_, _| Reply::Endless)),
        ("no answer in time", Box::new(|_, _| Reply::Stuck)),
        ("too many requests", Box::new(|_, _| Reply::Later(60))),
        ("an answer is missing", list(|items| items.truncate(1))),
        ("two answers", list(|items| items.push(items[0].clone()))),
        ("no question", list(|items| items[0]["id"] = json!(99))),
        ("no question", list(|items| items[0]["id"] = json!("zero"))),
        ("no batch", Box::new(|_, answer| Reply::json(&answer[0]))),
        (
            "error -32000: header not found",
            items(|_, item| {
                *item = json!({"jsonrpc": "2.0", "id": item["id"], "error": {"code": -32000, "message": "header not found"}});
            }),
        ),
        (
            "error 7: no",
            Box::new(|_, _| {
                Reply::json(&json!({"jsonrpc": "2.0", "id": null, "error": {"code": 7, "message": "no"}}))
            }),
        ),
        (
            "it serves chain 5",
            items(|question, item| {
                if question["method"] == "eth_chainId" {
                    item["result"] = json!("0x5");
                }
            }),
        ),
        (
            "cannot be understood",
            items(|question, item| {
                if question["method"] == "eth_call" {
                    item["result"] = json!(format!("0x{}", "01".repeat(800)));
                }
            }),
        ),
        (
            "cannot be understood",
            items(|question, item| {
                if question["method"] == "eth_call" {
                    item["result"] = json!("0x");
                }
            }),
        ),
        (
            "cannot be understood",
            items(|question, item| {
                if question["method"] == "eth_call" {
                    item["result"] = json!(format!("0x{}", "00".repeat(100_000)));
                }
            }),
        ),
        ("cannot be understood", items(|_, item| item["result"] = Value::Null)),
        ("s old", items(|question, item| header_time(question, item, "0x1"))),
        ("from the future", items(|question, item| header_time(question, item, "0xffffffffff"))),
        (
            "does not have the confirmed block",
            items(|question, item| {
                if question["method"] == "eth_getBlockByNumber" {
                    item["result"]["hash"] = json!(fresh_hash());
                }
            }),
        ),
    ]
}

/// Another hash for each question: a block is never the one that it was.
fn fresh_hash() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(1);
    format!("{:#066x}", COUNT.fetch_add(1, Ordering::SeqCst))
}

#[tokio::test]
async fn whatever_is_not_a_clear_answer_is_no_permission_and_says_why() {
    let (node, app) = allowed().await;
    for (why, lie) in lies() {
        let endpoint = proxy(node.rpc_url(), lie).await;
        let chain = suspicious(&[&endpoint], why);
        for _ in 0..2 {
            let error = chain.allowances(app, &question()).await.unwrap_err();
            let text = error.to_string();
            assert!(text.contains(why), "{why}: {text}");
            assert!(!text.contains("secret-api-key") && text.len() < 600, "{text}");
            assert!(matches!(error, ChainError::NoQuorum { agreed: 0, .. }));
        }
    }
}

#[tokio::test]
async fn an_endpoint_that_fails_is_replaced_by_another() {
    let (node, app) = allowed().await;
    let good = honest(node.rpc_url()).await;
    // Which blocks there are is believed of whoever is asked first, where nobody must agree.
    let replaceable = lies().into_iter().filter(|(why, _)| *why != "does not have the confirmed block");
    for (why, lie) in replaceable {
        let bad = proxy(node.rpc_url(), lie).await;
        let chain = suspicious(&[&bad, &good], why);
        assert!(is_allowed(&chain, app).await, "{why}");
        assert!(is_allowed(&chain, app).await, "{why}");
        // Who failed is not asked first again.
        let asked = bad.asked();
        assert!(is_allowed(&chain, app).await, "{why}");
        assert_eq!(bad.asked(), asked, "{why}");
    }
}

#[tokio::test]
async fn answers_count_in_any_order() {
    let (node, app) = allowed().await;
    let endpoint = proxy(node.rpc_url(), |_, mut answer| {
        answer.as_array_mut().unwrap().reverse();
        Reply::json(&answer)
    });
    let chain = chain_of(&[&endpoint.await], |_| {});
    assert!(is_allowed(&chain, app).await);
}

/// Longer than what is kept of an endpoint's words, with its key where they are cut off.
#[tokio::test]
async fn words_that_are_cut_off_end_with_no_part_of_a_key() {
    let (node, app) = allowed().await;
    for before in 230..=256 {
        let message = format!("{}secret-api-key", "x".repeat(before));
        let endpoint = proxy(node.rpc_url(), move |asked, answer| {
            each(asked, answer, |_, item| {
                *item = json!({"jsonrpc": "2.0", "id": item["id"], "error": {"code": 7, "message": message}});
            })
        });
        let error = chain_of(&[&endpoint.await], |_| {}).allowances(app, &question()).await.unwrap_err();
        assert!(!error.to_string().contains("xs"), "{error}");
    }
}

/// Turns "no" of the lens into "yes": sets all bits of the answer about lists.
fn yes_to_everything(question: &Value, item: &mut Value) {
    if question["method"] == "eth_call" {
        let result = item["result"].as_str().unwrap();
        // Two keys are two bits: one byte, alone in its word.
        item["result"] =
            json!(result.replace(&format!("{:0>64}00{:0<62}", 1, ""), &format!("{:0>64}c0{:0<62}", 1, "")));
    }
}

#[tokio::test]
async fn a_liar_decides_nothing_where_two_of_three_must_agree() {
    let node = shared().await;
    let app = new_app(node, None, None).await;
    let liar = proxy(node.rpc_url(), |asked, answer| each(asked, answer, yes_to_everything)).await;
    // The lie is a good one: alone it is believed.
    assert!(is_allowed(&chain_of(&[&liar], |_| {}), app).await);
    let (one, two) = (honest(node.rpc_url()).await, honest(node.rpc_url()).await);
    for order in [[&liar, &one, &two], [&one, &liar, &two], [&one, &two, &liar]] {
        let chain = chain_of(&order, |config| config.quorum = 2);
        for _ in 0..3 {
            assert!(!is_allowed(&chain, app).await);
        }
        add_hash(node, app, [7; 32]).await;
    }
    // Two of two that contradict each other decide nothing.
    let chain = chain_of(&[&liar, &one], |config| config.quorum = 2);
    let error = chain.allowances(app, &question()).await.unwrap_err().to_string();
    assert!(error.contains("contradicts"), "{error}");
    // The liar takes a permission from nobody, either.
    let (_, allowed) = allowed().await;
    let denier = proxy(node.rpc_url(), |asked, answer| {
        each(asked, answer, |question, item| {
            if question["method"] == "eth_call" {
                let result = item["result"].as_str().unwrap();
                item["result"] = json!(
                    result.replace(&format!("{:0>64}c0{:0<62}", 1, ""), &format!("{:0>64}00{:0<62}", 1, ""))
                );
            }
        })
    })
    .await;
    assert!(!is_allowed(&chain_of(&[&denier], |_| {}), allowed).await);
    let chain = chain_of(&[&denier, &one, &two], |config| config.quorum = 2);
    assert!(is_allowed(&chain, allowed).await);
}

/// A height that nobody else knows of, or an old one.
#[tokio::test]
async fn a_liar_does_not_move_the_head() {
    let (node, app) = allowed().await;
    let (one, two) = (honest(node.rpc_url()).await, honest(node.rpc_url()).await);
    for height in ["0x0", "0xffffff"] {
        let liar = proxy(node.rpc_url(), move |asked, answer| {
            each(asked, answer, |question, item| {
                if question["params"][0] == "latest" {
                    item["result"]["number"] = json!(height);
                }
            })
        })
        .await;
        let chain = chain_of(&[&liar, &one, &two], |config| config.quorum = 2);
        assert!(is_allowed(&chain, app).await, "{height}");
        assert!(is_allowed(&chain, app).await, "{height}");
    }
}

#[tokio::test]
async fn a_node_that_lags_serves_no_old_permissions() {
    let (node, app) = allowed().await;
    let head = crate::support::rpc(node.rpc_url(), "eth_getBlockByNumber", json!(["latest", false])).await;
    let time = i64::from_str_radix(head["timestamp"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    let at = |seconds: i64| {
        let config = ChainConfig {
            max_head_age: Some(Duration::from_mins(2)),
            ..ChainConfig::development(CHAIN_ID, node.rpc_url().clone())
        };
        let now = jiff::Timestamp::from_second(time + seconds).unwrap();
        Chain::new(config, Clock::fixed(now)).unwrap()
    };
    let error = at(5000).allowances(app, &question()).await.unwrap_err().to_string();
    assert!(error.contains("s old"), "{error}");
    let error = at(-5000).allowances(app, &question()).await.unwrap_err().to_string();
    assert!(error.contains("future"), "{error}");
}

#[tokio::test]
async fn who_wants_fewer_requests_gets_them_later() {
    let (node, app) = allowed().await;
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    let endpoint = proxy(node.rpc_url(), move |_, answer| {
        if count.fetch_add(1, Ordering::SeqCst) == 1 { Reply::Later(0) } else { Reply::json(&answer) }
    });
    let chain = chain_of(&[&endpoint.await], |_| {});
    assert!(is_allowed(&chain, app).await);
    assert!(refused.load(Ordering::SeqCst) >= 3);
}

#[tokio::test]
async fn a_reader_recovers_when_its_endpoint_does() {
    let (node, app) = allowed().await;
    let broken = Arc::new(AtomicBool::new(false));
    let is_broken = Arc::clone(&broken);
    let endpoint = proxy(node.rpc_url(), move |_, answer| {
        if is_broken.load(Ordering::SeqCst) {
            return Reply::Text(StatusCode::BAD_GATEWAY, String::new());
        }
        Reply::json(&answer)
    })
    .await;
    let chain = chain_of(&[&endpoint], |_| {});
    for _ in 0..2 {
        assert!(is_allowed(&chain, app).await);
        broken.store(true, Ordering::SeqCst);
        chain.allowances(app, &question()).await.unwrap_err();
        broken.store(false, Ordering::SeqCst);
    }
    assert!(is_allowed(&chain, app).await);
}

#[tokio::test]
async fn a_receipt_needs_the_same_agreement() {
    let (node, app) = allowed().await;
    let sent = add_hash(node, app, [8; 32]).await;
    let liar = proxy(node.rpc_url(), |asked, answer| {
        each(asked, answer, |question, item| {
            if question["method"] == "eth_getTransactionReceipt" {
                item["result"]["status"] = json!("0x0");
            }
        })
    })
    .await;
    let (one, two) = (honest(node.rpc_url()).await, honest(node.rpc_url()).await);
    let alone = chain_of(&[&liar], |_| {}).receipt(sent.transaction).await.unwrap().unwrap();
    assert!(!alone.succeeded);
    let chain = chain_of(&[&liar, &one, &two], |config| config.quorum = 2);
    assert!(chain.receipt(sent.transaction).await.unwrap().unwrap().succeeded);
    // Of a block that is none of the chain, or of another transaction.
    let changes: [(Change, bool); 4] = [
        (|item| item["result"]["blockHash"] = json!(B256::repeat_byte(9).to_string()), true),
        (|item| item["result"]["transactionHash"] = json!(B256::repeat_byte(9).to_string()), false),
        (|item| item["result"]["status"] = json!("0x2"), false),
        (|item| item["result"]["logs"] = json!(vec![item["result"]["logs"][0].clone(); 1025]), false),
    ];
    for (change, is_none) in changes {
        let endpoint = proxy(node.rpc_url(), move |asked, answer| {
            each(asked, answer, |question, item| {
                if question["method"] == "eth_getTransactionReceipt" {
                    change(item);
                }
            })
        });
        let answer = chain_of(&[&endpoint.await], |_| {}).receipt(sent.transaction).await;
        assert_eq!(answer.is_ok_and(|receipt| receipt.is_none()), is_none);
    }
}

#[test]
fn configurations_that_cannot_be_safe_are_refused() {
    let made = |change: &dyn Fn(&mut ChainConfig)| {
        let mut config = ChainConfig::development(1, "https://rpc.example/v2/secret-key".parse().unwrap());
        change(&mut config);
        assert!(!format!("{config:?}").contains("secret-key"));
        Chain::new(config, Clock::system()).map(drop).err()
    };
    let url = |url: &str| url.parse::<Url>().unwrap();
    assert_eq!(made(&|_| {}), None);
    assert_eq!(made(&|config| config.endpoints = vec![url("http://[::1]:8545")]), None);
    let plain = made(&|config| config.endpoints = vec![url("http://rpc.example/key")]);
    assert_eq!(plain, Some(InvalidChainConfig::Plain("rpc.example".to_owned())));
    let again = made(&|config| config.endpoints.push(config.endpoints[0].clone()));
    assert_eq!(again, Some(InvalidChainConfig::Duplicate("rpc.example".to_owned())));
    assert_eq!(made(&|config| config.endpoints = vec![url("ftp://a")]), Some(InvalidChainConfig::Address(1)));
    assert_eq!(made(&|config| config.endpoints.clear()), Some(InvalidChainConfig::EndpointCount(0)));
    assert_eq!(made(&|config| config.quorum = 0), Some(InvalidChainConfig::Quorum(1)));
    assert_eq!(made(&|config| config.quorum = 2), Some(InvalidChainConfig::Quorum(1)));
    assert_eq!(made(&|config| config.chain_id = 0), Some(InvalidChainConfig::ChainId));
    assert_eq!(made(&|config| config.confirmations = 65), Some(InvalidChainConfig::Confirmations));
    assert_eq!(made(&|config| config.request_timeout = Duration::ZERO), Some(InvalidChainConfig::Timeout));
    assert_eq!(made(&|config| config.name = "a\nb".to_owned()), Some(InvalidChainConfig::Name));
}
