//! A plain client of the management API: no retries, no conveniences, the documents as they are.

use std::time::Duration;

use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

use crate::eventually;
use crate::http::get_text;

/// A client with an API key.
#[derive(Clone)]
pub struct Api {
    http: Client,
    base: String,
    key: String,
}

/// What the API answered.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: StatusCode,
    /// The body as JSON; a string when it is not JSON.
    pub body: Value,
}

impl Api {
    /// A client for the API at `base` (without `/api/v1`).
    #[must_use]
    pub fn new(base: &str, key: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http =
            Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().expect("HTTP client");
        Self { http, base: format!("{base}/api/v1"), key: key.to_owned() }
    }

    /// One request; the body, if any, is JSON.
    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.attempt(method, path, body).await.expect("an answer")
    }

    /// Like [`Api::call`]; `None` when the server dies before it has answered.
    pub async fn attempt(&self, method: Method, path: &str, body: Option<Value>) -> Option<Answer> {
        let mut request =
            self.http.request(method, format!("{}{path}", self.base)).header("x-api-key", &self.key);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.ok()?;
        let status = response.status();
        let text = response.text().await.ok()?;
        Some(Answer { status, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) })
    }

    /// `GET` that must succeed.
    pub async fn get(&self, path: &str) -> Value {
        let answer = self.call(Method::GET, path, None).await;
        assert!(answer.status.is_success(), "GET {path}: {answer:?}");
        answer.body
    }

    /// `POST` that must succeed.
    pub async fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.call(Method::POST, path, Some(body)).await;
        assert!(answer.status.is_success(), "POST {path}: {answer:?}");
        answer.body
    }

    /// Provisions and creates a CVM from an app-compose document; the created record.
    pub async fn create(&self, name: &str, app_compose: Value) -> Value {
        let provision = self.provision(name, app_compose).await;
        self.post("/cvms", creation(&provision)).await
    }

    /// Provisions a CVM of the smallest useful size; the answer.
    pub async fn provision(&self, name: &str, app_compose: Value) -> Value {
        self.provision_sized(name, app_compose, 1, 512).await
    }

    /// Provisions a CVM with a number of virtual CPUs and memory in MiB; the answer.
    pub async fn provision_sized(&self, name: &str, app_compose: Value, vcpu: u32, memory_mb: u32) -> Value {
        let request = json!({
            "name": name, "compose_file": app_compose, "vcpu": vcpu, "memory": memory_mb, "disk_size": 20,
        });
        self.post("/cvms/provision", request).await
    }

    /// Pushes an image archive under a reference.
    pub async fn push_image(&self, reference: &str, archive: Vec<u8>) {
        let request = self.http.put(format!("{}/images/{reference}", self.base));
        let answer = request.header("x-api-key", &self.key).body(archive).send().await.expect("an answer");
        assert!(answer.status().is_success(), "{:?}", answer.text().await);
    }

    /// Waits until a CVM is at rest; its state then.
    pub async fn at_rest(&self, cvm: &str, patience: Duration) -> Value {
        let path = format!("/cvms/{cvm}/state");
        eventually(&format!("{cvm} comes to rest"), patience, async || {
            let state = self.get(&path).await;
            (state["in_progress"] == false).then_some(state)
        })
        .await
    }

    /// Waits until nothing is under way for a CVM; it runs then. Panics with its serial log where it does not.
    pub async fn runs(&self, cvm: &str, patience: Duration) {
        let state = self.at_rest(cvm, patience).await;
        if state["status"] != "running" {
            let document = self.get(&format!("/cvms/{cvm}")).await;
            let serial = match document["logs"]["serial"].as_str() {
                Some(url) => get_text(url).await,
                None => None,
            };
            panic!("{cvm} does not run: {state:#}\n{}", serial.as_deref().unwrap_or("it has no serial log"));
        }
    }

    /// Waits until the API says 404 for a CVM.
    pub async fn gone(&self, cvm: &str, patience: Duration) {
        eventually(&format!("{cvm} is gone"), patience, async || {
            let answer = self.call(Method::GET, &format!("/cvms/{cvm}/state"), None).await;
            (answer.status == StatusCode::NOT_FOUND).then_some(())
        })
        .await;
    }

    /// Operations of a CVM, oldest first.
    pub async fn operations(&self, cvm: &str) -> Vec<Value> {
        let mut page = self.get(&format!("/cvms/{cvm}/operations?limit=500")).await;
        let mut items = page["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        items.reverse();
        items
    }
}

/// An app-compose document whose main script keeps running; it needs no image and boots fast.
#[must_use]
pub fn script_app(name: &str) -> Value {
    json!({
        "name": name, "runner": "bash", "manifest_version": 2, "kms_enabled": false,
        "bash_script": "echo the script runs\nwhile true; do sleep 3600; done\n",
    })
}

/// The body that creates what was provisioned.
#[must_use]
pub fn creation(provision: &Value) -> Value {
    json!({ "app_id": provision["app_id"], "compose_hash": provision["compose_hash"] })
}
