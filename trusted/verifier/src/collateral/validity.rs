//! From when and until when collateral can be used.

use jiff::Timestamp;
use serde::Deserialize;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::{Collateral, CollateralError};

/// The dates that both signed lists carry.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dates {
    issue_date: Timestamp,
    next_update: Timestamp,
}

/// When collateral can be used: from `from` to before `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

impl Validity {
    /// The window of `collateral` by the dates that its parts claim.
    pub(super) fn of(collateral: &Collateral) -> Result<Self, CollateralError> {
        let dates = |json: &str, name: &str| {
            serde_json::from_str::<Dates>(json)
                .map_err(|_| CollateralError::Malformed(format!("the {name} has no dates")))
        };
        let tcb = dates(&collateral.tcb_info, "TCB info")?;
        let qe = dates(&collateral.qe_identity, "identity of the quoting enclave")?;
        let until = [
            tcb.next_update,
            qe.next_update,
            next_crl(&collateral.root_ca_crl, "root's revocation list")?,
            next_crl(&collateral.pck_crl, "platform authority's revocation list")?,
        ];
        Ok(Self {
            from: tcb.issue_date.max(qe.issue_date),
            until: until.into_iter().min().unwrap_or(Timestamp::UNIX_EPOCH),
        })
    }
}

fn next_crl(der: &[u8], name: &str) -> Result<Timestamp, CollateralError> {
    let malformed = |what: &str| CollateralError::Malformed(format!("the {name} {what}"));
    let (rest, list) =
        CertificateRevocationList::from_der(der).map_err(|_| malformed("is not a revocation list"))?;
    if !rest.is_empty() {
        return Err(malformed("is followed by something"));
    }
    let next = list.next_update().ok_or_else(|| malformed("never ends"))?;
    Timestamp::from_second(next.timestamp()).map_err(|_| malformed("has a date out of range"))
}
