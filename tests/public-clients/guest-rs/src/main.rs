//! What the published Rust SDK for guests gets of an agent's socket, as JSON: one member for each call, its answer or its
//! error.
//!
//! Usage: guest SOCKET.

use std::error::Error;

use dstack_sdk::dstack_client::{DstackClient, GetQuoteResponse, TlsKeyConfig};
use dstack_sdk::ethereum::to_account;
use dstack_sdk::tappd_client::TappdClient;
use serde_json::{Map, Value, json};

type Asked = Result<Value, Box<dyn Error>>;

fn note(seen: &mut Map<String, Value>, name: &str, asked: Asked) {
    let entry = match asked {
        Ok(answer) => json!({ "answer": answer }),
        Err(error) => json!({ "error": error.to_string() }),
    };
    seen.insert(name.to_owned(), entry);
}

fn shown(quote: GetQuoteResponse) -> Asked {
    let replayed: Vec<_> = quote.replay_rtmrs()?.into_values().collect();
    Ok(json!({ "quote": hex::encode(quote.decode_quote()?), "replayed": replayed }))
}

async fn quoted(client: &DstackClient) -> Asked {
    shown(client.get_quote(b"data".to_vec()).await?)
}

async fn event(client: &DstackClient) -> Asked {
    client.emit_event("probe".to_owned(), b"payload".to_vec()).await?;
    quoted(client).await
}

async fn key(client: &DstackClient) -> Asked {
    let made = client.get_key(Some("storage/main".to_owned()), Some("signing".to_owned())).await?;
    let chain: Vec<_> = made.decode_signature_chain()?.iter().map(hex::encode).collect();
    Ok(json!({ "key": hex::encode(made.decode_key()?), "chain": chain }))
}

async fn account(client: &DstackClient) -> Asked {
    let made = client.get_key(Some("storage/main".to_owned()), Some("signing".to_owned())).await?;
    Ok(json!(to_account(&made)?.address().to_string()))
}

async fn tls_key(client: &DstackClient) -> Asked {
    let wish = TlsKeyConfig::builder().subject("probe.example").usage_ra_tls(true);
    let made = client.get_tls_key(wish.alt_names(vec!["probe.example".to_owned()]).build()).await?;
    Ok(json!({ "chain": made.certificate_chain.len(), "is_pem": made.key.starts_with("-----BEGIN") }))
}

async fn signed(client: &DstackClient, algorithm: &str) -> Asked {
    let made = client.sign(algorithm, vec![b'd'; 32]).await?;
    let (signature, public) = (made.decode_signature()?, made.decode_public_key()?);
    let valid = client.verify(algorithm, vec![b'd'; 32], signature.clone(), public.clone()).await?.valid;
    let forged = client.verify(algorithm, vec![b'e'; 32], signature, public).await?.valid;
    Ok(json!({ "valid": valid, "forged": forged, "chain": made.signature_chain.len() }))
}

async fn legacy_quote(legacy: &TappdClient) -> Asked {
    let made = legacy.get_quote(vec![b'd'; 64]).await?;
    let replayed: Vec<_> = made.replay_rtmrs()?.into_values().collect();
    Ok(json!({ "quote": hex::encode(made.decode_quote()?), "replayed": replayed }))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args().nth(1).ok_or("usage: guest SOCKET")?;
    let (client, legacy) = (DstackClient::new(Some(&socket)), TappdClient::new(Some(&socket)));
    let mut seen = Map::new();
    let asked = client.version().await.map_err(Into::into).and_then(|it| Ok(serde_json::to_value(it)?));
    note(&mut seen, "version", asked);
    let asked = client.info().await.map_err(Into::into).and_then(|it| Ok(serde_json::to_value(it)?));
    note(&mut seen, "info", asked);
    note(&mut seen, "quote", quoted(&client).await);
    let asked = client.attest(vec![1, 2]).await.map_err(Into::into).map(|it| json!(it.attestation));
    note(&mut seen, "attest", asked);
    note(&mut seen, "event", event(&client).await);
    note(&mut seen, "key", key(&client).await);
    note(&mut seen, "ethereum_account", account(&client).await);
    note(&mut seen, "tls_key", tls_key(&client).await);
    for algorithm in ["secp256k1", "ed25519", "secp256k1_prehashed"] {
        note(&mut seen, algorithm, signed(&client, algorithm).await);
    }
    let asked = legacy.info().await.map_err(Into::into).and_then(|it| Ok(serde_json::to_value(it)?));
    note(&mut seen, "legacy_info", asked);
    let asked = legacy.derive_key("/").await.map_err(Into::into).map(|it| json!(it.certificate_chain.len()));
    note(&mut seen, "legacy_key", asked);
    note(&mut seen, "legacy_quote", legacy_quote(&legacy).await);
    println!("{}", Value::Object(seen));
    Ok(())
}
