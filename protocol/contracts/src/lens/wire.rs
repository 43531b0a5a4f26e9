//! The question of the lens and its answer, in the encoding of what `contracts/src/AllowanceLens.sol` declares them.

use alloy_sol_types::sol;

sol! {
    /// Views of `target` that say yes or no about a word.
    #[derive(Debug, PartialEq, Eq)]
    struct Flags { address target; bytes4 selector; bytes32[] keys; }

    /// Any view of `target`.
    #[derive(Debug, PartialEq, Eq)]
    struct Read { address target; uint32 maxBytes; bytes data; }

    /// All that is asked.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Question { Flags[] flags; Read[] reads; }

    /// The answer to one `Read`. Accounts are numbered as in [`Account`](super::Account).
    #[derive(Debug, PartialEq, Eq)]
    struct Reading { uint8 target; bool succeeded; uint32 length; uint8 named; bytes data; }

    /// All that is answered.
    #[derive(Debug, PartialEq, Eq)]
    struct Answer { uint256 chainId; uint256 number; uint256 timestamp; bytes32 parent; bytes flags; Reading[] reads; }
}
