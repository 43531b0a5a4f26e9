use std::sync::Arc;

use cloister_chain::{
    Address, Bytes, ChainConfig, Clock, LocalKey, Progress, SendError, Sender, Signer, Transaction, Wallet,
};
use cloister_contracts::SolCall as _;
use cloister_contracts::abi::App;
use cloister_development_chain::{ACCOUNTS, CHAIN_ID, DevelopmentChain};
use serde_json::json;
use zeroize::Zeroizing;

use crate::proxy::{Reply, proxy};
use crate::support::{HASH, new_app, reader, rpc, shared};

fn of(node: &DevelopmentChain, account: usize) -> Sender {
    let chain = reader(std::slice::from_ref(node.rpc_url()), |_| {});
    Sender::new(chain, Signer::Local(ACCOUNTS[account].key().unwrap()))
}

fn add(app: Address) -> Transaction {
    Transaction::call(app, App::addComposeHashCall { composeHash: HASH.into() }.abi_encode().into())
}

#[tokio::test]
async fn who_may_not_is_told_so_before_anything_is_paid() {
    let node = shared().await;
    let app = new_app(node, None, None).await;
    let stranger = of(node, 1);
    let error = stranger.send(&add(app), |_| panic!("sent")).await.unwrap_err();
    assert!(matches!(&error, SendError::WouldFail(why) if why.contains("is not the owner")), "{error}");
    let code = Transaction::create(Bytes::from_static(&[0xfe]));
    assert!(matches!(stranger.send(&code, |_| {}).await.unwrap_err(), SendError::WouldFail(_)));
}

#[tokio::test]
async fn an_account_without_money_is_told_how_much_it_needs() {
    let node = shared().await;
    let key = LocalKey::from_bytes(&Zeroizing::new([5; 32])).unwrap();
    let poor = key.address();
    let sender = Sender::new(reader(std::slice::from_ref(node.rpc_url()), |_| {}), Signer::Local(key));
    let pay = Transaction { to: Some(Address::repeat_byte(1)), data: Bytes::new(), value: 0 };
    let error = sender.send(&pay, |_| panic!("sent")).await.unwrap_err();
    assert!(
        matches!(error, SendError::Funds { account, has: 0, needs } if account == poor && needs > 0),
        "{error}"
    );
}

#[tokio::test]
async fn sending_tells_how_far_it_is_and_waits_for_confirmations() {
    let node = shared().await;
    // Blocks come by themselves while this waits.
    let miner = node.rpc_url().clone();
    let chain = reader(std::slice::from_ref(node.rpc_url()), |config| config.confirmations = 2);
    let sender = Sender::new(chain, Signer::Local(ACCOUNTS[2].key().unwrap()));
    let mut told = Vec::new();
    let pay = Transaction { to: Some(Address::repeat_byte(1)), data: Bytes::new(), value: 7 };
    let mining = tokio::spawn(async move {
        loop {
            rpc(&miner, "anvil_mine", json!(["0x1"])).await;
            tokio::task::yield_now().await;
        }
    });
    let receipt = sender.send(&pay, |progress| told.push(progress)).await.unwrap();
    mining.abort();
    assert!(receipt.succeeded && receipt.confirmations >= 2);
    assert_eq!(told[0], Progress::Sent { transaction: receipt.transaction });
    assert!(matches!(told.last(), Some(Progress::Included { confirmations: 2.., .. })), "{told:?}");
}

/// The node has the accounts of its mnemonic, as a wallet would; batches are what wallets do not know.
#[tokio::test]
async fn a_wallet_signs_what_its_owner_agrees_to() {
    let node = shared().await;
    let wallet = proxy(node.rpc_url(), |asked, answer| {
        assert!(asked.is_object());
        Reply::json(&answer)
    })
    .await;
    let chain = reader(std::slice::from_ref(node.rpc_url()), |_| {});
    let third = ACCOUNTS[3].address();
    let connected =
        Wallet::connect(&wallet.url, chain.config(), Some(third), &Clock::system()).await.unwrap();
    let sender = Sender::new(chain.clone(), Signer::Wallet(connected));
    let mut told = Vec::new();
    let pay = Transaction { to: Some(Address::repeat_byte(1)), data: Bytes::new(), value: 7 };
    let receipt = sender.send(&pay, |progress| told.push(progress)).await.unwrap();
    assert!(receipt.succeeded && receipt.from == third);
    assert_eq!(told[0], Progress::AwaitingSignature);

    let connect = async |url, config: &ChainConfig, address| {
        Wallet::connect(url, config, address, &Clock::system()).await.map(drop).unwrap_err()
    };
    let nobody = Some(Address::repeat_byte(9));
    assert_eq!(connect(&wallet.url, chain.config(), nobody).await, SendError::NoAccount);
    let elsewhere = ChainConfig { chain_id: CHAIN_ID + 1, ..chain.config().clone() };
    assert!(connect(&wallet.url, &elsewhere, None).await.to_string().contains("serves chain 31337"));
    let far = "http://wallet.example".parse().unwrap();
    assert_eq!(connect(&far, chain.config(), None).await, SendError::WalletAddress);
    let refusing = proxy(node.rpc_url(), |asked, answer| {
        if asked["method"] == "eth_sendTransaction" {
            let error = json!({"code": 4001, "message": "User declined"});
            return Reply::json(&json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
        }
        Reply::json(&answer)
    });
    let url = Arc::new(refusing.await.url);
    let connected = Wallet::connect(&url, chain.config(), Some(third), &Clock::system()).await.unwrap();
    let error = Sender::new(chain, Signer::Wallet(connected)).send(&pay, |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("User declined"), "{error}");
}

/// What goes to whoever makes the block does not come back: an endpoint, or who makes blocks, could ask for all of it.
#[tokio::test]
async fn an_endpoint_cannot_name_any_price_for_whoever_makes_the_block() {
    let node = shared().await;
    let greedy = proxy(node.rpc_url(), |asked, mut answer| {
        let batch = asked.as_array().map(Vec::as_slice).unwrap_or_default();
        let fee = batch.iter().find(|call| call["method"] == "eth_maxPriorityFeePerGas");
        if let (Some(fee), Some(answers)) = (fee, answer.as_array_mut()) {
            let answer = answers.iter_mut().find(|answer| answer["id"] == fee["id"]).unwrap();
            answer["result"] = json!(format!("{:#x}", 1_000_000_000_000_u64));
        }
        Reply::json(&answer)
    })
    .await;
    let chain = reader(std::slice::from_ref(&greedy.url), |_| {});
    let sender = Sender::new(chain, Signer::Local(ACCOUNTS[1].key().unwrap()));
    let pay = Transaction { to: Some(Address::repeat_byte(1)), data: Bytes::new(), value: 7 };
    let sent = sender.send(&pay, |_| {}).await.unwrap().transaction;
    let sent = rpc(node.rpc_url(), "eth_getTransactionByHash", json!([sent.to_string()])).await;
    assert_eq!(sent["maxPriorityFeePerGas"], json!(format!("{:#x}", 100_000_000_000_u64)));
}
