use alloy_primitives::{Address, Bytes};
use alloy_sol_types::abi::TokenSeq;
use alloy_sol_types::{SolType, SolValue};

use super::wire;

/// What is at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// No code: an account with a key, or nothing yet.
    Plain,
    /// A contract.
    Contract,
    /// An account with a key that borrows the code of a contract (EIP-7702).
    Delegated,
}

impl Account {
    /// By its number in the lens.
    fn numbered(number: u8) -> Option<Self> {
        [Self::Plain, Self::Contract, Self::Delegated].get(usize::from(number)).copied()
    }
}

/// The answer to one read.
#[derive(Debug)]
pub(super) struct Reading {
    /// What is at the target. A target without code was not asked.
    pub(super) target: Account,
    /// Whether the call returned, instead of reverting or running out of its gas.
    pub(super) succeeded: bool,
    /// Length of the whole answer; stops at the largest number.
    length: u32,
    /// What is at the address that the answer is, if it is one.
    pub(super) named: Account,
    /// The answer, or why it reverted, as far as it was of interest.
    pub(super) data: Bytes,
}

impl Reading {
    /// `None` if the lens would not answer so.
    pub(super) fn of(asked: &wire::Read, found: wire::Reading) -> Option<Self> {
        let length = usize::try_from(found.length.min(asked.maxBytes)).ok()?;
        (length == found.data.len()).then_some(())?;
        Some(Self {
            target: Account::numbered(found.target)?,
            succeeded: found.succeeded,
            length: found.length,
            named: Account::numbered(found.named)?,
            data: found.data,
        })
    }

    /// The whole answer, if the call returned and nothing of it was cut off.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        let is_whole = usize::try_from(self.length).is_ok_and(|length| length == self.data.len());
        (self.target != Account::Plain && self.succeeded && is_whole).then_some(self.data.as_ref())
    }

    /// The answer as a list of values, if it is exactly that.
    pub(super) fn values<T>(&self) -> Option<T>
    where
        T: SolValue + From<<T::SolType as SolType>::RustType>,
        for<'a> <T::SolType as SolType>::Token<'a>: TokenSeq<'a>,
    {
        let data = self.whole()?;
        let values = T::abi_decode_params_validate(data).ok()?;
        (values.abi_encode_params() == data).then_some(values)
    }

    /// The one value that the answer is.
    pub(super) fn value<T>(&self) -> Option<T>
    where
        (T,): SolValue + From<<<(T,) as SolValue>::SolType as SolType>::RustType>,
        for<'a> <<(T,) as SolValue>::SolType as SolType>::Token<'a>: TokenSeq<'a>,
    {
        self.values::<(T,)>().map(|(value,)| value)
    }

    /// The address that the answer is; `None` for the zero address, too.
    pub(super) fn address(&self) -> Option<Address> {
        self.value::<Address>().filter(|address| !address.is_zero())
    }
}
