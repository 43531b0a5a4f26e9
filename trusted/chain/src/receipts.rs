//! What became of transactions.

use std::sync::Arc;

use alloy_primitives::B256;
use serde_json::json;

use crate::answers::{BlockRef, Receipt};
use crate::error::{ChainError, Failure};
use crate::heads::{header, header_call};
use crate::reader::Chain;
use crate::rpc::Call;
use crate::rpc::endpoint::Endpoint;
use crate::rpc::wire::{self, hexadecimal};

impl Chain {
    /// What became of a transaction; `None` while it is in no block. Two round trips. Whoever acts on it must wait for
    /// [`Receipt::confirmations`]; a receipt whose block is not part of the chain any more is none.
    pub async fn receipt(&self, transaction: B256) -> Result<Option<Receipt>, ChainError> {
        let look = |endpoint: Arc<Endpoint>| async move { self.receipt_at(&endpoint, transaction).await };
        // Heads differ by a block or two; what happened does not.
        let same = |a: &Option<(Receipt, BlockRef)>, b: &Option<(Receipt, BlockRef)>| {
            a.as_ref().map(|(receipt, _)| receipt) == b.as_ref().map(|(receipt, _)| receipt)
        };
        let agreed = self.0.endpoints.agree(look, same).await?;
        let oldest_head = agreed.iter().flatten().map(|(_, head)| head.number).min();
        let found = agreed.into_iter().flatten().next();
        Ok(found.map(|(mut receipt, head)| {
            let head = oldest_head.unwrap_or(head.number);
            receipt.confirmations = head.saturating_sub(receipt.block.number);
            receipt
        }))
    }

    async fn receipt_at(
        &self,
        endpoint: &Endpoint,
        transaction: B256,
    ) -> Result<Option<(Receipt, BlockRef)>, Failure> {
        let call = Call::new("eth_getTransactionReceipt", json!([transaction.to_string()]));
        let item =
            endpoint.batch(vec![call]).await?.pop().ok_or(Failure::Garbage("an answer is missing"))??;
        let Some(mut receipt) = wire::receipt(&item, transaction)? else { return Ok(None) };
        let at_its_height = header_call(&hexadecimal(receipt.block.number));
        let mut items = endpoint.batch(vec![at_its_height, header_call("latest")]).await?;
        let head = header(items.pop())?;
        let block = header(items.pop())?;
        self.0.heads.check_age(head.timestamp)?;
        if block.hash != receipt.block.hash || block.number != receipt.block.number {
            return Ok(None);
        }
        receipt.block = block;
        Ok(Some((receipt, head)))
    }
}
