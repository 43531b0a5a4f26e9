//! Receivers that others would write: the programs of docs/webhooks.md verify what is signed here.

use std::io::Write as _;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_webhooks::{EventId, EventKind, Headered, Secret, sample, sign};
use serde_json::{Map, Value, json};

use crate::page;

const NOW_S: i64 = 1_700_000_000;
const PYTHON: &str = "
import base64, json, sys
for line in sys.stdin:
    case = json.loads(line)
    print(json.dumps(verify(case['secret'], case['headers'], base64.b64decode(case['body']), case['now'])))
";
const JAVASCRIPT: &str = "
for (const line of require('fs').readFileSync(0, 'utf8').split('\\n').filter(Boolean)) {
  const { secret, headers, body, now } = JSON.parse(line);
  const lower = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
  console.log(JSON.stringify(verify(secret, lower, Buffer.from(body, 'base64'), now)));
}
";

/// A request, and whether a receiver with the secret should take it.
struct Case {
    secret: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    now_s: i64,
    expected: bool,
}

fn signed(secrets: &[Secret], kind: EventKind, body: &[u8]) -> Vec<(&'static str, String)> {
    let id = EventId::new([7; 8]);
    sign(secrets, &Headered { webhook_id: "wh_1", event_id: &id, kind }, NOW_S, body)
}

/// Requests of every kind, as they are and spoilt, read with every secret.
fn cases(secrets: &[Secret]) -> Vec<Case> {
    let mut cases = Vec::new();
    let stranger = Secret::generate([99; 32]);
    for (index, secret) in secrets.iter().enumerate() {
        let previous = &secrets[(index + 1) % secrets.len()];
        for kind in EventKind::ALL {
            let body = sample(*kind).to_bytes();
            let headers = signed(&[secret.clone(), previous.clone()], *kind, &body);
            let mut add = |secret: &Secret, body: &[u8], now_s, expected| {
                let (headers, body) = (headers.clone(), body.to_vec());
                cases.push(Case { secret: secret.expose().to_owned(), headers, body, now_s, expected });
            };
            add(secret, &body, NOW_S, true);
            add(previous, &body, NOW_S - 300, true);
            add(secret, &body, NOW_S + 300, true);
            add(&stranger, &body, NOW_S, false);
            add(secret, &body, NOW_S + 301, false);
            add(secret, &body, NOW_S - 301, false);
            let mut changed = body.clone();
            changed[index * 7 % body.len()] ^= 1;
            add(secret, &changed, NOW_S, false);
            add(secret, &body[1..], NOW_S, false);
        }
    }
    let unsigned = Vec::new();
    let secret = secrets[0].expose().to_owned();
    cases.push(Case { secret, headers: unsigned, body: b"{}".to_vec(), now_s: NOW_S, expected: false });
    cases
}

/// The program of the page between two marks.
fn program(name: &str, fence: &str) -> String {
    let page = std::fs::read_to_string(page::path()).unwrap();
    let begin = format!("<!-- {name}: run by a test -->\n```{fence}\n");
    let (_, rest) = page.split_once(&begin).unwrap();
    let (program, _) = rest.split_once(&format!("```\n<!-- end of {name} -->")).unwrap();
    program.to_owned()
}

/// What a program says about each request.
fn verdicts(command: &mut Command, cases: &[Case]) -> Vec<bool> {
    let mut input = String::new();
    for case in cases {
        let headers: Map<_, _> = case
            .headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Value::from(value.as_str())))
            .collect();
        let body = BASE64_STANDARD.encode(&case.body);
        let line = json!({"secret": case.secret, "headers": headers, "body": body, "now": case.now_s});
        input += &format!("{line}\n");
    }
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the interpreter starts");
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line == "true").collect()
}

fn assert_agrees(command: &mut Command, cases: &[Case]) {
    let found = verdicts(command, cases);
    assert_eq!(found.len(), cases.len());
    for (number, (case, found)) in cases.iter().zip(found).enumerate() {
        assert_eq!(found, case.expected, "{number}: {} at {}", case.secret, case.now_s);
    }
    assert!(cases.iter().any(|case| case.expected) && cases.iter().any(|case| !case.expected));
}

fn generated() -> Vec<Secret> {
    (0..16).map(|number| Secret::generate([number; 32])).collect()
}

#[test]
fn the_python_of_the_page_verifies_requests() {
    let own = ["whsec_dGVzdC1zZWNyZXQ", "an*own*secret*of*mine", &"x".repeat(200)];
    let secrets: Vec<_> =
        generated().into_iter().chain(own.map(|text| Secret::parse(text).unwrap())).collect();
    let program = program("python", "python") + PYTHON;
    assert_agrees(Command::new("python3").args(["-c", &program]), &cases(&secrets));
}

#[test]
fn the_javascript_of_the_page_verifies_requests() {
    let own = ["whsec_dGVzdC1zZWNyZXQ", &format!("whsec_{}", "-_ab".repeat(40))];
    let secrets: Vec<_> =
        generated().into_iter().chain(own.map(|text| Secret::parse(text).unwrap())).collect();
    let program = program("javascript", "js") + JAVASCRIPT;
    assert_agrees(Command::new("node").args(["-e", &program]), &cases(&secrets));
}
