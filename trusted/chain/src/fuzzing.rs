//! For the fuzz target beside this crate: everything that reads what an endpoint sends.

use alloy_primitives::{Address, B256};
use cloister_contracts::lens::{AppState, Inquiry as _};

use crate::rpc::{decode, wire};

/// Reads `body` as the answer to every question that the reader asks.
///
/// # Panics
/// If the number of answers is not that of the questions: then the reader is wrong.
pub fn answers(body: &[u8]) {
    let inquiry = AppState { kms_contract: Address::ZERO, app: Address::ZERO };
    for count in [1, 2, 5] {
        let Ok(items) = decode(body, count) else { continue };
        assert_eq!(items.len(), count);
        for item in items.iter().flatten() {
            let _ = wire::header(item);
            let _ = wire::base_fee(item);
            let _ = wire::receipt(item, B256::repeat_byte(9));
            let _ = wire::number(item);
            let _ = wire::amount(item);
            let _ = wire::word(item);
            let _ = wire::accounts(item);
            let _ = wire::data(item).map(|data| inquiry.answer(&data));
        }
    }
}
