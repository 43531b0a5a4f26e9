//! Changes of CVMs, carried out by the real workers on a node in memory.

mod documents;
mod machine;
mod official_script;
mod properties;
mod refusals;
mod settings;
mod unified;

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use cloister_app_compose::{ComposeHash, OsImageHash};
use cloister_node_api::NodeImage;
use serde_json::{Value, json};

use super::kms::support::{know, within};
use super::{Answer, Installation, report};
use crate::clock::Random;
use crate::operations::tests::fake_nodes::FakeNodes;
use crate::operations::{CvmStatus, Engine, EngineOptions};
use crate::store::CvmRow;

const YAML: &str = "services:\n  web:\n    image: nginx:2\n";
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// An installation with workers, a node in memory, and one CVM that is up.
struct Site {
    installation: Installation,
    nodes: Arc<FakeNodes>,
    _engine: Engine<FakeNodes>,
    vm: Value,
}

impl Site {
    async fn new() -> Self {
        Self::on(Installation::new().await).await
    }

    async fn on(mut installation: Installation) -> Self {
        let wake = know(&mut installation, Vec::new()).await;
        let nodes = Arc::<FakeNodes>::default();
        let app = &installation.app;
        let (store, clock) = (app.store.clone(), app.clock.clone());
        let (kmses, options) = (Arc::clone(&app.kmses), EngineOptions::default());
        let engine = Engine::start(store, Arc::clone(&nodes), kmses, clock, Random, wake, options).await;
        let vm = installation.create("my-app-01").await;
        let site = Self { installation, nodes, _engine: engine.unwrap(), vm };
        site.at_rest(CvmStatus::Running).await;
        site
    }

    /// Waits until no operation holds the CVM and it is in this status.
    async fn at_rest(&self, status: CvmStatus) -> CvmRow {
        within("the CVM comes to rest", async || self.row().await.operation_id.is_none()).await;
        let row = self.row().await;
        assert_eq!(row.status, status, "{:?}", row.boot_error);
        row
    }

    async fn row(&self) -> CvmRow {
        self.installation.row(&self.vm).await
    }

    async fn call(&self, method: &str, below: &str, body: Value) -> Answer {
        self.moment();
        self.installation.call(method, &format!("/cvms/{}{below}", self.vm["id"]), body).await
    }

    /// Time goes on, so that the history has an order.
    fn moment(&self) {
        self.installation.app.clock.advance_ms(1);
    }

    async fn patch(&self, below: &str, body: Value) -> Answer {
        self.call("PATCH", below, body).await
    }

    /// A request whose body is a text.
    async fn send(&self, method: &str, below: &str, headers: &[(&str, &str)], text: &str) -> Answer {
        self.moment();
        let uri = format!("/api/v1/cvms/{}{below}", self.vm["id"]);
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.header("x-api-key", &self.installation.tenant);
        self.installation.send(request.body(Body::from(text.to_owned())).unwrap()).await
    }

    async fn stop(&self) {
        self.call("POST", "/stop", Value::Null).await.expect(200);
        self.at_rest(CvmStatus::Stopped).await;
    }

    /// The document as it is told, byte for byte; its hash is the one that is told.
    async fn raw(&self) -> String {
        let raw = self.call("GET", "/compose_file?raw=1", Value::Null).await.expect(200).text;
        let row = self.row().await;
        assert_eq!(ComposeHash::of(raw.as_bytes()), row.compose_hash);
        let detail = self.call("GET", "", Value::Null).await.expect(200).json();
        assert_eq!(detail["compose_hash"], json!(row.compose_hash.to_string()));
        raw
    }

    async fn document(&self) -> Value {
        serde_json::from_str(&self.raw().await).unwrap()
    }

    /// The latest operations, newest first: kind and status.
    async fn history(&self) -> Vec<String> {
        let page = self.call("GET", "/operations", Value::Null).await.expect(200).json();
        let text = |item: &Value, member: &str| item[member].as_str().unwrap().to_owned();
        let items = page["items"].as_array().unwrap();
        items
            .iter()
            .map(|item| format!("{} {}", text(item, "operation_type"), text(item, "status")))
            .collect()
    }

    /// The node reports itself again, with one image more of each kind.
    async fn report_images(&self) {
        self.report_images_in(false).await;
    }

    /// The same, under maintenance or not.
    async fn report_images_in(&self, maintenance: bool) {
        let mut here = report(65536, maintenance);
        let image = |name: &str, seed: u8, is_dev: bool| NodeImage {
            name: name.into(),
            version: "0.2.0".into(),
            is_dev,
            os_image_hash: OsImageHash::from_bytes([seed; 32]),
            supports_gpu: false,
        };
        here.images.extend([image("cloister-dev-0.2.0", 6, true), image("cloister-0.2.0", 7, false)]);
        self.installation.report(&here).await;
    }
}

/// A form with one file.
fn form(text: &str) -> (String, String) {
    let body = format!(
        "--b\r\ncontent-disposition: form-data; name=\"note\"\r\n\r\nignored\r\n\
         --b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n{text}\r\n--b--\r\n"
    );
    ("multipart/form-data; boundary=b".to_owned(), body)
}
