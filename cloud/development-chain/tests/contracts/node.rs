//! The node, and plain JSON-RPC to it: what is tested here are the contracts, not the reader.

use std::future::Future;
use std::sync::LazyLock;

use cloister_chain::Clock;
use cloister_contracts::events::{Event, Log, decode_event};
use cloister_contracts::lens::{self, Answered, Inquiry};
use cloister_contracts::{Address, B256, Bytes, NewApp, SolCall, artifacts, hex};
use cloister_development_chain::{ACCOUNTS, Config, Deployment, DevelopmentChain};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, OnceCell};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
static NODE: OnceCell<Node> = OnceCell::const_new();

/// Gas of each transaction: so much that none fails for want of it.
const GAS: &str = "0x989680";
/// How often a receipt is asked for until it must be there: each time is a round trip.
const PATIENCE: usize = 10_000;

pub(crate) struct Node {
    chain: DevelopmentChain,
    client: reqwest::Client,
    /// Transactions of an account are numbered: one after the other.
    sending: Mutex<()>,
}

/// What became of a transaction.
#[derive(Debug)]
pub(crate) struct Receipt {
    pub(crate) succeeded: bool,
    pub(crate) created: Option<Address>,
    pub(crate) logs: Vec<(Address, Vec<B256>, Bytes)>,
}

impl Receipt {
    pub(crate) fn logs(&self) -> impl Iterator<Item = Log<'_>> {
        self.logs.iter().map(|(address, topics, data)| Log { address: *address, topics, data })
    }

    /// What `contract` said; all of it must be of the interface, but for the library's word about initialisation.
    pub(crate) fn events_of(&self, contract: Address) -> Vec<Event> {
        let initialized = cloister_contracts::keccak256("Initialized(uint64)");
        let of_contract = self.logs().filter(|log| log.address == contract && log.topics[0] != initialized);
        of_contract.map(|log| decode_event(log).unwrap()).collect()
    }
}

/// Runs a test on the node.
pub(crate) fn on_chain<F: Future<Output = ()>>(test: impl FnOnce(&'static Node) -> F) {
    RUNTIME.block_on(async { test(NODE.get_or_init(Node::start).await).await });
}

/// The account number `index` of the node.
pub(crate) fn account(index: usize) -> Address {
    ACCOUNTS[index].address()
}

impl Node {
    async fn start() -> Self {
        let chain = DevelopmentChain::start(Config::default(), Clock::system()).await;
        let chain = chain.unwrap_or_else(|error| panic!("{error}"));
        Self { chain, client: reqwest::Client::new(), sending: Mutex::new(()) }
    }

    pub(crate) fn deployment(&self) -> &Deployment {
        self.chain.deployment()
    }

    pub(crate) async fn rpc(&self, method: &str, params: Value) -> Result<Value, String> {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer = self.client.post(self.chain.rpc_url().clone()).json(&request).send().await.unwrap();
        let mut answer: Value = answer.json().await.unwrap();
        match answer.get("error") {
            Some(error) => Err(error.to_string()),
            None => Ok(answer["result"].take()),
        }
    }

    /// Sends a transaction, which may fail, and waits until it is in a block.
    pub(crate) async fn send(&self, from: Address, to: Option<Address>, data: &[u8]) -> Receipt {
        let mut transaction =
            json!({ "from": from.to_string(), "data": hex::encode_prefixed(data), "gas": GAS });
        if let Some(to) = to {
            transaction["to"] = json!(to.to_string());
        }
        let _one_after_the_other = self.sending.lock().await;
        let hash = self.rpc("eth_sendTransaction", json!([transaction])).await.unwrap();
        for _ in 0..PATIENCE {
            let receipt = self.rpc("eth_getTransactionReceipt", json!([hash])).await.unwrap();
            if !receipt.is_null() {
                return read(&receipt);
            }
        }
        panic!("no receipt of {hash}");
    }

    pub(crate) async fn call<C: SolCall>(&self, from: Address, to: Address, call: &C) -> Receipt {
        self.send(from, Some(to), &call.abi_encode()).await
    }

    /// Makes a contract that runs `code`.
    pub(crate) async fn create(&self, creation: &[u8]) -> Address {
        let receipt = self.send(account(0), None, creation).await;
        assert!(receipt.succeeded);
        receipt.created.unwrap()
    }

    /// A KMS contract of account 0, with the given code for applications.
    pub(crate) async fn new_kms(&self, app_implementation: Option<Address>) -> Address {
        let implementation = self.deployment().kms_implementation;
        self.create(&artifacts::kms_proxy(implementation, account(0), app_implementation)).await
    }

    /// An application that the factory of `kms` makes.
    pub(crate) async fn new_app(&self, kms: Address, from: Address, app: &NewApp) -> (Address, Receipt) {
        let receipt = self.send(from, Some(kms), &app.call_data()).await;
        assert!(receipt.succeeded);
        let made: Vec<_> = cloister_contracts::events::deployed_apps(receipt.logs(), kms).collect();
        assert_eq!(made.len(), 1);
        assert_eq!(made[0].deployer, from);
        (made[0].app, receipt)
    }

    /// A view; `None` if it reverts or answers something else.
    pub(crate) async fn view<C: SolCall>(&self, to: Address, call: &C) -> Option<C::Return> {
        let question =
            json!([{ "to": to.to_string(), "data": hex::encode_prefixed(call.abi_encode()) }, "latest"]);
        let answer = self.rpc("eth_call", question).await.ok()?;
        C::abi_decode_returns_validate(&hex::decode(answer.as_str().unwrap()).unwrap()).ok()
    }

    /// Asks through the lens.
    pub(crate) async fn ask<Q: Inquiry>(&self, question: &Q) -> Answered<Q::Answer> {
        let data = hex::encode_prefixed(question.call_data().unwrap());
        let call = json!([{ "data": data, "gas": format!("{:#x}", lens::GAS) }, "latest"]);
        let output = self.rpc("eth_call", call).await.unwrap();
        question.answer(&hex::decode(output.as_str().unwrap()).unwrap()).unwrap()
    }

    pub(crate) async fn storage(&self, contract: Address, slot: B256) -> B256 {
        let word =
            self.rpc("eth_getStorageAt", json!([contract.to_string(), slot.to_string(), "latest"])).await;
        word.unwrap().as_str().unwrap().parse().unwrap()
    }
}

fn read(receipt: &Value) -> Receipt {
    let logs = receipt["logs"].as_array().unwrap().iter().map(|log| {
        let topics = log["topics"].as_array().unwrap().iter();
        let topics = topics.map(|topic| topic.as_str().unwrap().parse().unwrap()).collect();
        let data = hex::decode(log["data"].as_str().unwrap()).unwrap();
        (log["address"].as_str().unwrap().parse().unwrap(), topics, data.into())
    });
    Receipt {
        succeeded: receipt["status"] == "0x1",
        created: receipt["contractAddress"].as_str().map(|address| address.parse().unwrap()),
        logs: logs.collect(),
    }
}
