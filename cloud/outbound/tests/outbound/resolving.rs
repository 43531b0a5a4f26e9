//! The resolver that asks name servers, with a name server of the test's own.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use cloister_outbound::{LookupError, Resolve, SystemResolver};
use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use tokio::net::UdpSocket;

/// Names with their addresses; `None` fails.
type Zone = HashMap<&'static str, Option<Vec<IpAddr>>>;

/// A resolver that asks a server with a zone, and what that was asked.
async fn serving(zone: Zone) -> (SystemResolver, Arc<Mutex<Vec<String>>>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let resolver = SystemResolver::at(socket.local_addr().unwrap());
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
            let question = Message::from_vec(&buffer[..length]).unwrap();
            let query = question.queries[0].clone();
            let name = query.name().to_ascii();
            seen.lock().unwrap().push(name.clone());
            let mut answer = Message::response(question.metadata.id, OpCode::Query);
            match zone.get(name.trim_end_matches('.')) {
                None => answer.metadata.response_code = ResponseCode::NXDomain,
                Some(None) => answer.metadata.response_code = ResponseCode::ServFail,
                Some(Some(addresses)) => {
                    for address in addresses.iter().filter(|address| family(**address) == query.query_type())
                    {
                        answer.add_answer(Record::from_rdata(
                            query.name().clone(),
                            60,
                            RData::from(*address),
                        ));
                    }
                }
            }
            answer.add_query(query);
            socket.send_to(&answer.to_vec().unwrap(), peer).await.unwrap();
        }
    });
    (resolver, asked)
}

fn family(address: IpAddr) -> RecordType {
    if address.is_ipv4() { RecordType::A } else { RecordType::AAAA }
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[tokio::test]
async fn all_addresses_of_both_families_are_found_and_nothing_else_is_asked() {
    let all = ["93.184.216.34", "10.0.0.1", "2606:2800:220:1:248:1893:25c8:1946"];
    let (resolver, asked) = serving(HashMap::from([("a.example.com", Some(addresses(&all)))])).await;
    let mut found = resolver.lookup("a.example.com").await.unwrap();
    found.sort();
    let mut expected = addresses(&all);
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(resolver.lookup("a.example.com").await.unwrap().len(), 3);
    assert_eq!(*asked.lock().unwrap(), ["a.example.com.", "a.example.com."], "one query of each kind");
}

#[tokio::test]
async fn names_without_addresses_are_told_from_servers_without_answers() {
    let zone = HashMap::from([("empty.example.com", Some(vec![])), ("broken.example.com", None)]);
    let (resolver, asked) = serving(zone).await;
    for (name, expected) in [
        ("nowhere.example.com", LookupError::Unknown),
        ("empty.example.com", LookupError::Unknown),
        ("broken.example.com", LookupError::NoAnswer),
    ] {
        assert_eq!(resolver.lookup(name).await, Err(expected), "{name}");
    }
    assert!(
        asked.lock().unwrap().iter().all(|name| name.ends_with(".example.com.")),
        "no search domain is tried"
    );
}

#[tokio::test]
async fn localhost_is_this_machine_whatever_servers_say() {
    let elsewhere = Some(addresses(&["93.184.216.34"]));
    let (resolver, asked) =
        serving(HashMap::from([("localhost", elsewhere.clone()), ("a.localhost", elsewhere)])).await;
    for name in ["localhost", "a.localhost"] {
        let found = resolver.lookup(name).await.unwrap();
        assert_eq!(found, [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()]);
    }
    assert!(asked.lock().unwrap().is_empty());
}
