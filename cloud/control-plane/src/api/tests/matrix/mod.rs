//! Every operation of the document with what is wrong with a request, one thing at a time. Requests are made from the
//! document and the table of rules, so that no operation is left out; what answers may be is a rule for each column, and
//! each cell that is another has its reason beside it.

mod bodies;
mod expected;
mod versions;
mod world;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use axum::body::{Body as HttpBody, Bytes};
use axum::http::Request;
use cloister_management_api::VERSION_HEADER;
use serde_json::Value;
use tower::ServiceExt;

use self::bodies::Body;
use self::expected::{COLUMNS, Column, Reason, wanted};
use self::world::{Id, World, is_owned};
use crate::api::access::{self, Access, Rule};
use crate::api::tests::Answer;
use crate::api::{document, routes};

/// More than any body may have that is read whole.
const HUGE: usize = 2 * 1024 * 1024;

/// What is neither a text nor JSON.
const WRONG: &[u8] = b"{\xFF";

/// Cells that are right although no rule says so, each with the reason: operations, column, cell, reason.
const REASONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/api/tests/matrix/reasons.txt");

/// One operation and what it takes.
struct Subject {
    rule: &'static Rule,
    body: Option<Body>,
    is_stream: bool,
}

/// Whose key a request has.
#[derive(Clone, Copy)]
enum Key {
    Nobody,
    Bad,
    Reader,
    Stranger,
    /// Whoever may: an administrator where one is needed, else the tenant.
    Right,
}

/// An answer in a few words, and its bytes.
struct Reply {
    summary: String,
    text: String,
    /// The version that it names.
    version: Option<String>,
}

impl Subject {
    async fn send(&self, world: &World, key: Key, id: Id, sent: Option<(&str, Bytes)>) -> Reply {
        self.send_with(world, key, id, sent, &[]).await
    }

    async fn send_with(
        &self,
        world: &World,
        key: Key,
        id: Id,
        sent: Option<(&str, Bytes)>,
        headers: &[(&str, &str)],
    ) -> Reply {
        let uri = format!("/api/v1{}", world.path(self.rule.path, id));
        let mut request = Request::builder().method(self.rule.method).uri(uri).header("x-request-id", "one");
        let installation = &world.installation;
        let right = if self.is_for_admins() { &installation.admin } else { &installation.tenant };
        let key = match key {
            Key::Nobody => None,
            Key::Bad => Some("phak_unknown"),
            Key::Reader => Some(world.reader.as_str()),
            Key::Stranger => Some(world.stranger.as_str()),
            Key::Right => Some(right.as_str()),
        };
        if let Some(key) = key {
            request = request.header("x-api-key", key);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (content_type, body) = match sent {
            Some((content_type, body)) => (content_type, HttpBody::from(body)),
            None => ("application/json", HttpBody::empty()),
        };
        let request = request.header("content-type", content_type).body(body).unwrap();
        let response = installation.router.clone().oneshot(request).await.unwrap();
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let version = header(VERSION_HEADER).map(str::to_owned);
        // Streams may have no end, and other things are no text: of those only the head is shown.
        let content_type = header("content-type").and_then(|value| value.split(';').next());
        if let Some(other) = content_type.filter(|name| *name != "application/json") {
            let summary = format!("{} {other}", response.status().as_u16());
            return Reply { summary, text: String::new(), version };
        }
        let answer = Answer::read(response).await;
        Reply { summary: answer.summary(), text: answer.text, version }
    }

    fn is_for_admins(&self) -> bool {
        self.rule.path.starts_with("/admin/")
    }

    /// The right body.
    fn right(&self) -> Option<(&str, Bytes)> {
        self.body.as_ref().map(|body| (body.content_type, Bytes::from(body.text.clone())))
    }

    /// One summary of several answers: the usual one, and after it each member that is answered otherwise.
    async fn each(&self, world: &World, bodies: Vec<(String, String)>) -> String {
        let mut cells = Vec::new();
        for (member, text) in bodies {
            let sent = Some(("application/json", Bytes::from(text)));
            cells.push((member, self.send(world, Key::Right, Id::There, sent).await.summary));
        }
        let kinds: BTreeSet<_> = cells.iter().map(|(_, summary)| summary.as_str()).collect();
        let count = |kind: &str| cells.iter().filter(|(_, summary)| summary == kind).count();
        let Some(usual) = kinds.iter().max_by_key(|kind| count(kind)) else { return "-".to_owned() };
        let others = cells.iter().filter(|(_, summary)| summary != usual);
        others.fold((*usual).to_owned(), |mut text, (member, summary)| {
            write!(text, ", {member}: {summary}").unwrap();
            text
        })
    }

    /// A cell; `-` where a column cannot apply.
    async fn cell(&self, column: Column, shared: &World, template: &World, huge: &Bytes) -> String {
        let has_id = self.rule.path.contains('{');
        let body = self.body.as_ref();
        let json = body.filter(|body| body.value.is_some());
        let of = async |key, id| self.send(shared, key, id, self.right()).await.summary;
        // What is let through has its effect in a world of its own.
        let elsewhere = async |key, sent| match self.rule.changes {
            Some(_) => self.send(&template.copy().await, key, Id::There, sent).await.summary,
            None => self.send(shared, key, Id::There, sent).await.summary,
        };
        match column {
            Column::Right => elsewhere(Key::Right, self.right()).await,
            Column::NoKey => of(Key::Nobody, Id::There).await,
            Column::BadKey => of(Key::Bad, Id::There).await,
            Column::ReadKey if self.rule.access == Access::AnyKey => {
                elsewhere(Key::Reader, self.right()).await
            }
            Column::ReadKey => of(Key::Reader, Id::There).await,
            Column::Foreign if is_owned(self.rule.path) => of(Key::Stranger, Id::There).await,
            Column::ForeignWrong if is_owned(self.rule.path) => match body {
                Some(body) => {
                    let sent = Some((body.content_type, Bytes::from_static(WRONG)));
                    self.send(shared, Key::Stranger, Id::There, sent).await.summary
                }
                None => "-".to_owned(),
            },
            Column::Unknown if is_owned(self.rule.path) => of(Key::Stranger, Id::Unknown).await,
            Column::Malformed if has_id => of(Key::Right, Id::Malformed).await,
            Column::NotText if has_id => of(Key::Right, Id::NotText).await,
            Column::UnknownMember => match json.and_then(Body::with_unknown) {
                Some(text) => elsewhere(Key::Right, Some(("application/json", text.into()))).await,
                None => "-".to_owned(),
            },
            Column::WrongType => {
                self.each(shared, json.map(Body::with_wrong_types).unwrap_or_default()).await
            }
            Column::Missing => self.each(shared, json.map(Body::without_each).unwrap_or_default()).await,
            Column::Huge => match body.filter(|_| !self.is_stream) {
                Some(body) => {
                    let sent = Some((body.content_type, huge.clone()));
                    self.send(shared, Key::Right, Id::There, sent).await.summary
                }
                None => "-".to_owned(),
            },
            Column::ContentType => match self.right() {
                Some((_, text)) => elsewhere(Key::Right, Some(("application/xml", text))).await,
                None => "-".to_owned(),
            },
            Column::Foreign
            | Column::ForeignWrong
            | Column::Unknown
            | Column::Malformed
            | Column::NotText => "-".to_owned(),
        }
    }
}

/// Every operation of the document.
fn subjects(world: &World) -> Vec<Subject> {
    let document = serde_json::to_value(document()).unwrap();
    let streams = serde_json::to_value(routes::protected_streams().into_openapi()).unwrap().to_string();
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            let rule = access::rules().iter().find(|rule| rule.operation == name);
            let rule = rule.unwrap_or_else(|| panic!("{method} {path} needs a row in api/access/table.rs"));
            let is_stream = streams.contains(&format!("\"{name}\""));
            all.push(Subject { rule, body: Body::of(&document, operation, world), is_stream });
        }
    }
    all
}

/// How many changes were recorded, of the tenant, of the installation and of the stranger.
async fn recorded(world: &World) -> Vec<Value> {
    let installation = &world.installation;
    let mut heads = Vec::new();
    for (key, path) in [
        (&installation.tenant, "/workspace/audit/head"),
        (&installation.admin, "/admin/audit/head"),
        (&world.stranger, "/workspace/audit/head"),
    ] {
        let head = installation.call_with(&[("x-api-key", key.as_str())], "GET", path, Value::Null).await;
        heads.push(head.expect(200).json()["sequence"].clone());
    }
    heads
}

#[tokio::test]
async fn the_matrix_of_bad_input_is_the_reviewed_one() {
    let template = World::new().await.at_rest().await;
    let shared = template.copy().await;
    let huge = Bytes::from(vec![b' '; HUGE]);
    let before = recorded(&shared).await;
    let why = std::fs::read_to_string(REASONS).unwrap();
    let reasons: Vec<_> = why.lines().map(Reason::read).collect();
    let mut table = format!("operation | {}\n", COLUMNS.map(Column::title).join(" | "));
    let (mut used, mut unexplained) = (BTreeSet::new(), String::new());
    for subject in subjects(&template) {
        let name = subject.rule.operation;
        let mut cells = Vec::new();
        for column in COLUMNS {
            let cell = subject.cell(column, &shared, &template, &huge).await;
            let right = cells.first().map_or(cell.as_str(), String::as_str);
            if cell != "-" && wanted(subject.rule, column, right).is_none_or(|wanted| wanted != cell) {
                let reason = reasons.iter().position(|reason| reason.is_for(name, column, &cell));
                match reason {
                    Some(position) => {
                        used.insert(position);
                    }
                    None => writeln!(unexplained, "{name} | {} | {cell}", column.title()).unwrap(),
                }
            }
            cells.push(cell);
        }
        writeln!(table, "{} {name} | {}", subject.rule.method, cells.join(" | ")).unwrap();
    }
    table.push_str("\nCells that are right although no rule says so:\n");
    table.push_str(&why);
    insta::assert_snapshot!(table);
    assert!(unexplained.is_empty(), "without a reason:\n{unexplained}");
    let unused: Vec<_> = (0..reasons.len()).filter(|at| !used.contains(at)).map(|at| reasons[at]).collect();
    assert!(unused.is_empty(), "reasons for nothing: {unused:?}");
    assert_eq!(recorded(&shared).await, before, "what is refused changes nothing");
}

/// A stranger learns nothing: what belongs to others and what is not there are answered with the same bytes. Only that a
/// CVM is there is said, by the status that the interface demands, in the words of one that is not.
#[tokio::test]
async fn what_belongs_to_others_is_answered_as_what_is_not_there() {
    let world = World::new().await;
    let mut count = 0;
    for subject in subjects(&world) {
        if !is_owned(subject.rule.path) || !matches!(subject.rule.access, Access::AnyKey | Access::Key(_)) {
            continue;
        }
        // Of an application everybody may know that it is there, and nothing else.
        if subject.rule.operation == "get_app" {
            continue;
        }
        count += 1;
        let of = async |id| subject.send(&world, Key::Stranger, id, subject.right()).await;
        let (foreign, unknown) = (of(Id::There).await, of(Id::Unknown).await);
        let words = |reply: &Reply| {
            if !subject.rule.path.contains("{cvm_id}") {
                return reply.text.clone();
            }
            serde_json::from_str::<Value>(&reply.text).unwrap()["message"].to_string()
        };
        assert_eq!(words(&foreign), words(&unknown), "{}", subject.rule.operation);
    }
    assert!(count > 80, "{count}");
}
