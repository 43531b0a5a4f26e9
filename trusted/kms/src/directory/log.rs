//! The release log, for anybody.

use std::sync::Arc;

use cloister_kms_api::log::{MAX_RECORDS, Proof, Records};
use cloister_kms_api::{Hex, KmsError, KmsErrorCode};
use cloister_transparency_log::{Log, LogError};
use tracing::error;

use crate::door::{Answer, Shared, bad, chain, json, text};

pub(super) async fn answer(shared: &Arc<Shared>, name: &str, query: &str) -> Result<Answer, KmsError> {
    match name {
        "checkpoint" => Ok(text(read(shared, Log::checkpoint).await?)),
        "records" => {
            let (start, limit) = (number(query, "start")?.unwrap_or(0), number(query, "limit")?);
            let limit = limit.map_or(MAX_RECORDS, |limit| usize::try_from(limit).unwrap_or(MAX_RECORDS));
            let records = read(shared, move |log| log.records(start, limit.min(MAX_RECORDS))).await?;
            // Records are JSON texts, and so UTF-8.
            let records =
                records.into_iter().map(|record| String::from_utf8_lossy(&record).into_owned()).collect();
            json(&Records { start, records })
        }
        "inclusion" => {
            let (index, size) = (wanted(query, "index")?, wanted(query, "size")?);
            proof(read(shared, move |log| log.inclusion(index, size)).await?)
        }
        "consistency" => {
            let (from, to) = (wanted(query, "from")?, wanted(query, "to")?);
            proof(read(shared, move |log| log.consistency(from, to)).await?)
        }
        _ => Err(bad("no such part of the log: there are checkpoint, records, inclusion and consistency")),
    }
}

fn proof(hashes: Vec<[u8; 32]>) -> Result<Answer, KmsError> {
    json(&Proof { hashes: hashes.into_iter().map(Hex::from).collect() })
}

/// Reads the log's files where that holds up nobody else.
async fn read<T: Send + 'static>(
    shared: &Shared,
    work: impl FnOnce(&Log) -> Result<T, LogError> + Send + 'static,
) -> Result<T, KmsError> {
    let internal = |reason: &str| KmsError::new(KmsErrorCode::InternalError, reason);
    let _turn = shared.reading.acquire().await.map_err(|_| internal("the KMS is stopping"))?;
    let log = shared.keys.log().clone();
    let read = tokio::task::spawn_blocking(move || work(&log)).await;
    read.map_err(|_| internal("the KMS is stopping"))?.map_err(|failure| match failure {
        LogError::OutOfRange { .. } => bad(failure.to_string()),
        failure => {
            error!(error = %chain(&failure), "the release log cannot be read");
            internal("the release log cannot be read")
        }
    })
}

fn wanted(query: &str, name: &str) -> Result<u64, KmsError> {
    number(query, name)?.ok_or_else(|| bad(format!("the query lacks {name}")))
}

/// A number of the query, which must not say it twice.
fn number(query: &str, name: &str) -> Result<Option<u64>, KmsError> {
    let mut values = url::form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == name);
    let (first, second) = (values.next(), values.next());
    match (first, second) {
        (None, _) => Ok(None),
        (Some((_, value)), None) => {
            value.parse().map(Some).map_err(|_| bad(format!("{name} of the query is not a number")))
        }
        (Some(_), Some(_)) => Err(bad(format!("the query says {name} twice"))),
    }
}
