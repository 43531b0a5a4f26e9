//! Questions about contracts that an `eth_call` *without recipient* answers: its data is [`Inquiry::call_data`], its
//! result goes to [`Inquiry::answer`].
//!
//! The data is the creation code of `contracts/src/AllowanceLens.sol` followed by the question, ABI-encoded as the
//! argument of the constructor: views that say yes or no about words, and other reads. The "code" that the
//! constructor returns is the answer: chain id, number, time and parent of the block, a bit for each yes or no, and
//! bounded results of the reads. So everything in an answer is of one block. Contracts that are asked may be
//! hostile; what they answer is a permission only if it is byte for byte what Solidity would give.

mod app;
mod kms;
mod reading;
mod verdict;
mod wallet;
mod wire;

use alloy_primitives::{Address, B256, Bytes, FixedBytes};
use alloy_sol_types::{SolCall, SolValue as _};

pub use app::{Allowances, AllowancesAnswer, AppState, AppStateAnswer};
pub use kms::{KmsState, KmsStateAnswer};
pub use reading::Account;
pub use verdict::{MAX_VERDICT_BYTES, Verdict, VerdictQuestion};
pub use wallet::{MAX_SAFE_OWNERS, SafeState, SafeWallet};

use crate::artifacts::ALLOWANCE_LENS;
use reading::Reading;

/// Gas to call the lens with: below what a transaction may have (EIP-7825), so that every backend grants it.
pub const GAS: u64 = 16_000_000;
/// Most words that one question may ask a yes or no about: each has gas for several reads of storage.
pub const MAX_KEYS: usize = 1024;
/// Longest creation code with question, in bytes (EIP-3860).
pub const MAX_QUESTION_BYTES: usize = 49_152;
/// Longest answer, in bytes (EIP-170).
pub const MAX_ANSWER_BYTES: usize = 24_576;

/// A question about contracts, and how its answer is read.
pub trait Inquiry {
    /// What is learnt.
    type Answer;

    #[doc(hidden)]
    fn question(&self) -> wire::Question;

    #[doc(hidden)]
    fn conclude(&self, findings: Findings) -> Option<Self::Answer>;

    /// The data of the `eth_call`. Fails if more is asked than one call can answer.
    fn call_data(&self) -> Result<Bytes, QuestionTooLarge> {
        let question = self.question();
        if keys(&question) > MAX_KEYS || longest_answer(&question) > MAX_ANSWER_BYTES {
            return Err(QuestionTooLarge);
        }
        let data = [ALLOWANCE_LENS.as_slice(), &question.abi_encode()].concat();
        if data.len() > MAX_QUESTION_BYTES { Err(QuestionTooLarge) } else { Ok(data.into()) }
    }

    /// Reads what the `eth_call` gave. Fails on everything that the lens would not have returned to this question:
    /// then the backend did not do what it was asked.
    fn answer(&self, output: &[u8]) -> Result<Answered<Self::Answer>, MalformedAnswer> {
        if output.len() > MAX_ANSWER_BYTES {
            return Err(MalformedAnswer);
        }
        let answer = wire::Answer::abi_decode_validate(output).map_err(|_| MalformedAnswer)?;
        let question = self.question();
        let at = ViewedBlock::of(&answer).ok_or(MalformedAnswer)?;
        let findings = Findings::new(&question, answer).ok_or(MalformedAnswer)?;
        let answer = self.conclude(findings).ok_or(MalformedAnswer)?;
        Ok(Answered { at, answer })
    }
}

/// An answer, and where it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered<T> {
    /// The block that it is of.
    pub at: ViewedBlock,
    /// What was learnt.
    pub answer: T,
}

/// The block that an answer is of, as the contracts' own machine saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewedBlock {
    /// The chain.
    pub chain_id: u64,
    /// Number of the block.
    pub number: u64,
    /// Its time, in seconds since 1970.
    pub timestamp: u64,
    /// Hash of the block before; zero where the backend has none to give.
    pub parent: B256,
}

impl ViewedBlock {
    fn of(answer: &wire::Answer) -> Option<Self> {
        Some(Self {
            chain_id: answer.chainId.try_into().ok()?,
            number: answer.number.try_into().ok()?,
            timestamp: answer.timestamp.try_into().ok()?,
            parent: answer.parent,
        })
    }
}

/// More is asked than one call can answer: ask in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the question is too long for one call; ask about at most {MAX_KEYS} things at once")]
pub struct QuestionTooLarge;

/// What came back is no answer of the lens to the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the chain's node gave no proper answer to the question about contracts")]
pub struct MalformedAnswer;

/// What the lens found, in the order of the question.
#[doc(hidden)]
#[derive(Debug)]
pub struct Findings {
    flags: std::vec::IntoIter<Vec<bool>>,
    reads: std::vec::IntoIter<Reading>,
}

impl Findings {
    /// Fails if the lens would not answer so: other counts, bits beyond the last, other lengths than announced.
    fn new(question: &wire::Question, answer: wire::Answer) -> Option<Self> {
        let count = keys(question);
        if answer.flags.len() != count.div_ceil(8) || answer.reads.len() != question.reads.len() {
            return None;
        }
        let mut bits = answer.flags.iter().flat_map(|byte| (0..8).map(move |bit| byte & (0x80 >> bit) != 0));
        let flags: Vec<Vec<bool>> =
            question.flags.iter().map(|each| bits.by_ref().take(each.keys.len()).collect()).collect();
        if bits.any(|beyond| beyond) {
            return None;
        }
        let reads = question.reads.iter().zip(answer.reads).map(|(asked, found)| Reading::of(asked, found));
        let reads: Vec<Reading> = reads.collect::<Option<_>>()?;
        Some(Self { flags: flags.into_iter(), reads: reads.into_iter() })
    }

    /// The next list of yes and no.
    fn flags(&mut self) -> Option<Vec<bool>> {
        self.flags.next()
    }

    /// The next result of a read.
    fn read(&mut self) -> Option<Reading> {
        self.reads.next()
    }
}

/// A question about words: `C` is a view of `target` that takes one and says yes or no.
fn flags<C: SolCall>(target: Address, keys: &[B256]) -> wire::Flags {
    wire::Flags { target, selector: FixedBytes(C::SELECTOR), keys: keys.to_vec() }
}

/// Any other question.
fn read(target: Address, call: &impl SolCall, max_bytes: u32) -> wire::Read {
    wire::Read { target, maxBytes: max_bytes, data: call.abi_encode().into() }
}

fn keys(question: &wire::Question) -> usize {
    question.flags.iter().map(|each| each.keys.len()).sum()
}

/// Length of the longest answer to a question, in bytes; the lens reckons in the same way.
fn longest_answer(question: &wire::Question) -> usize {
    let reads = question.reads.iter().map(|each| 288usize.saturating_add(each.maxBytes as usize));
    reads.fold(320 + keys(question) / 8, usize::saturating_add)
}
