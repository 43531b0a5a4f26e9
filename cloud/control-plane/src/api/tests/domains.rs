//! Diagnoses of domains, with a name server of the test's own.

use std::collections::HashMap;

use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{CAA, CNAME, TXT};
use hickory_resolver::proto::rr::{Name, RData, Record};
use serde_json::{Value, json};
use tokio::net::UdpSocket;

use super::Installation;

pub(super) type Zone = HashMap<String, Vec<RData>>;

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn cname(target: &str) -> RData {
    RData::CNAME(CNAME(name(target)))
}

fn txt(parts: &[&str]) -> RData {
    RData::TXT(TXT::new(parts.iter().map(ToString::to_string).collect()))
}

/// Answers from a zone; every name that is asked for is noted in the returned list.
pub(super) fn serve(
    installation: &Installation,
    zone: Zone,
) -> std::sync::Arc<parking_lot::Mutex<Vec<String>>> {
    let asked = std::sync::Arc::<parking_lot::Mutex<Vec<String>>>::default();
    let socket = installation.name_server.try_clone().unwrap();
    socket.set_nonblocking(true).unwrap();
    let (socket, seen) = (UdpSocket::from_std(socket).unwrap(), std::sync::Arc::clone(&asked));
    tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
            let question = Message::from_vec(&buffer[..length]).unwrap();
            let query = question.queries[0].clone();
            let key = query.name().to_ascii().trim_end_matches('.').to_ascii_lowercase();
            seen.lock().push(format!("{} {key}", query.query_type()));
            let mut answer = Message::response(question.metadata.id, OpCode::Query);
            let found = zone.get(&key).into_iter().flatten();
            for data in found.filter(|data| data.record_type() == query.query_type()) {
                answer.add_answer(Record::from_rdata(query.name().clone(), 60, data.clone()));
            }
            if !zone.contains_key(&key) {
                answer.metadata.response_code = ResponseCode::NXDomain;
            }
            answer.add_query(query);
            socket.send_to(&answer.to_vec().unwrap(), peer).await.unwrap();
        }
    });
    asked
}

async fn diagnose(installation: &Installation, vm: &Value, domains: Value) -> super::Answer {
    let path = format!("/cvms/{}/customize-domain-diagnose", vm["id"]);
    installation.call("POST", &path, json!({"domains": domains})).await
}

#[tokio::test]
async fn what_is_published_is_compared_with_what_should_be() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let app_id = vm["app_id"].as_str().unwrap();
    let address = format!("{app_id}:8080");
    let (half, rest) = address.split_at(20);
    let account = "ca.example; accounturi=https://ca.example/acct/7";
    let mut caa = CAA::new_issue(false, None, vec![]);
    caa.value = account.as_bytes().to_vec();
    let asked = serve(
        &installation,
        Zone::from([
            ("good.example.com".into(), vec![cname("_.apps.localhost."), RData::CAA(caa)]),
            ("_dstack-app-address.good.example.com".into(), vec![txt(&["x"]), txt(&[half, rest])]),
            ("old.example.com".into(), vec![cname("APPS.localhost.")]),
            ("_tapp-address.old.example.com".into(), vec![txt(&[&address])]),
            ("*.wild.example.com".into(), vec![cname("apps.localhost.")]),
            ("_dstack-app-address-wildcard.wild.example.com".into(), vec![txt(&[&address])]),
            ("bad.example.com".into(), vec![cname("elsewhere.example.net.")]),
            ("_dstack-app-address.bad.example.com".into(), vec![txt(&[&format!("{app_id}:9\u{1b}[2J")])]),
        ]),
    );
    let domains =
        ["good.example.com", "old.example.com", "*.wild.example.com", "bad.example.com", "none.example.com"];
    let domains: Vec<_> = domains.iter().map(|domain| json!({"domain": domain, "port": 8080})).collect();
    let found = diagnose(&installation, &vm, json!(domains)).await.expect(200);
    let shown = found.text.replace(app_id, "[app]");
    insta::assert_json_snapshot!(serde_json::from_str::<Value>(&shown).unwrap());
    let foreign: Vec<_> = asked.lock().iter().filter(|name| !name.contains("example.com")).cloned().collect();
    assert!(foreign.is_empty(), "nothing but the given names is asked for: {foreign:?}");
}

#[tokio::test]
async fn a_silent_server_is_told_from_a_name_without_records() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    // The socket listens to somebody else from now on.
    installation.name_server.connect("127.0.0.1:9").unwrap();
    let found =
        diagnose(&installation, &vm, json!([{"domain": "a.example.com", "port": 1}])).await.expect(200);
    let result = &found.json()["results"][0];
    assert_eq!((&result["is_valid"], &result["caa_check"]), (&json!(false), &Value::Null));
    let words = result["records"][0]["warning_message"].as_str().unwrap();
    assert!(words.starts_with("no name server answered"), "{words}");
}

#[tokio::test]
async fn requests_are_bounded_and_names_checked() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let asked = serve(&installation, Zone::new());
    let many: Vec<_> = (0..21).map(|n| json!({"domain": format!("a{n}.example.com"), "port": 1})).collect();
    for bad in [
        json!([]),
        json!(many),
        json!([{"domain": "localhost", "port": 1}]),
        json!([{"domain": "10.0.0.1", "port": 1}]),
        json!([{"domain": "a.example.com", "port": 0}]),
        json!([{"domain": "a.example.com", "port": 65536}]),
        json!([{"domain": "a.example.com"}]),
    ] {
        assert_eq!(diagnose(&installation, &vm, bad.clone()).await.summary(), "422 validation", "{bad}");
    }
    assert!(asked.lock().is_empty());
    let slots: Vec<_> =
        (0..2).map(|_| installation.api.diagnoses.take(installation.tenant_workspace)).collect();
    let one = json!([{"domain": "a.example.com", "port": 1}]);
    assert_eq!(diagnose(&installation, &vm, one.clone()).await.summary(), "429 plain");
    drop(slots);
    diagnose(&installation, &vm, one).await.expect(200);
}
