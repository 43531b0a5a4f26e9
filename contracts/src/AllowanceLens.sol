// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// Never deployed. Its creation code and a `Question` are the data of an `eth_call` without recipient; the "code"
/// that the constructor returns is the `Answer`. So all of an answer is of one block, whatever backend answers.
///
/// What it asks may be hostile. Each call has a share of the gas and a bound on what is copied of its answer, so
/// that none can keep the others from being asked, and none makes the whole fail. Everything that is not exactly
/// the answer of the interface is no permission. The asker bounds the question: the answer must fit into 24,576
/// bytes, question and code into 49,152.
contract AllowanceLens {
    /// What is at an address. `Delegated`: an account with a key that borrows the code of a contract (EIP-7702).
    enum Account {
        Plain,
        Contract,
        Delegated
    }

    /// Views of `target` that say yes or no about a word: `selector(keys[i])`.
    struct Flags {
        address target;
        bytes4 selector;
        bytes32[] keys;
    }

    /// Any view of `target`; at most `maxBytes` of the answer are of interest.
    struct Read {
        address target;
        uint32 maxBytes;
        bytes data;
    }

    struct Question {
        Flags[] flags;
        Read[] reads;
    }

    struct Reading {
        /// What is at the target. A target without code is not asked.
        Account target;
        /// Whether the call returned, instead of reverting or running out of its gas.
        bool succeeded;
        /// Length of the whole answer.
        uint32 length;
        /// What is at the address that the answer is, if it is one.
        Account named;
        /// The answer, as far as it was of interest.
        bytes data;
    }

    struct Answer {
        uint256 chainId;
        uint256 number;
        uint256 timestamp;
        /// Hash of the block before, where the backend gives it.
        bytes32 parent;
        /// One bit for each key of each `Flags`, in order, highest first: the answer was exactly `true`.
        bytes flags;
        Reading[] reads;
    }

    /// No honest yes or no takes more.
    uint256 private constant GAS_OF_A_FLAG = 200_000;

    /// What bytes of code cost whoever creates them.
    uint256 private constant GAS_OF_A_BYTE = 200;

    /// For what is done after the last call: encoding 24 KiB and returning them.
    uint256 private constant GAS_OF_RETURNING = 300_000;

    constructor(Question memory question) {
        bytes memory answer = abi.encode(_answer(question));
        assembly ("memory-safe") {
            return(add(answer, 32), mload(answer))
        }
    }

    function _answer(Question memory question) private view returns (Answer memory answer) {
        unchecked {
            answer.chainId = block.chainid;
            answer.number = block.number;
            answer.timestamp = block.timestamp;
            answer.parent = blockhash(block.number - 1);
        }
        uint256 keys;
        for (uint256 i = 0; i < question.flags.length; ++i) {
            keys += question.flags[i].keys.length;
        }
        uint256 reads = question.reads.length;
        uint256 kept = GAS_OF_RETURNING + GAS_OF_A_BYTE * _longestAnswer(keys, question.reads);

        answer.flags = new bytes((keys + 7) / 8);
        uint256 position;
        for (uint256 i = 0; i < question.flags.length; ++i) {
            position = _askFlags(question.flags[i], answer.flags, position, keys + reads, kept);
        }
        answer.reads = new Reading[](reads);
        for (uint256 i = 0; i < reads; ++i) {
            answer.reads[i] = _read(question.reads[i], _share(kept, reads - i));
        }
    }

    /// Bytes of the longest encoded answer: seven words and the bits, for each read eight words and its bytes.
    function _longestAnswer(uint256 keys, Read[] memory reads) private pure returns (uint256 length) {
        length = 320 + keys / 8;
        for (uint256 i = 0; i < reads.length; ++i) {
            length += 288 + reads[i].maxBytes;
        }
    }

    /// The gas for the next of `calls` calls, if `kept` must be left after all of them.
    function _share(uint256 kept, uint256 calls) private view returns (uint256) {
        uint256 left = gasleft();
        return left > kept ? (left - kept) / (calls + 1) : 0;
    }

    function _askFlags(Flags memory flags, bytes memory bits, uint256 position, uint256 calls, uint256 kept)
        private
        view
        returns (uint256)
    {
        bytes32[] memory keys = flags.keys;
        bool isContract = flags.target.code.length > 0;
        for (uint256 i = 0; i < keys.length; ++i) {
            if (isContract) {
                uint256 share = _share(kept, calls - position);
                if (_isTrue(flags.target, flags.selector, keys[i], share < GAS_OF_A_FLAG ? share : GAS_OF_A_FLAG)) {
                    bits[position / 8] |= bytes1(uint8(0x80 >> (position % 8)));
                }
            }
            ++position;
        }
        return position;
    }

    function _isTrue(address target, bytes4 selector, bytes32 key, uint256 share) private view returns (bool yes) {
        assembly ("memory-safe") {
            mstore(0, selector)
            mstore(4, key)
            let succeeded := staticcall(share, target, 0, 36, 0, 32)
            yes := and(and(succeeded, eq(returndatasize(), 32)), eq(mload(0), 1))
        }
    }

    function _read(Read memory read, uint256 share) private view returns (Reading memory reading) {
        reading.target = _account(read.target);
        if (reading.target == Account.Plain) return reading;

        address target = read.target;
        bytes memory question = read.data;
        uint256 most = read.maxBytes;
        bytes memory data;
        bool succeeded;
        uint256 length;
        assembly ("memory-safe") {
            succeeded := staticcall(share, target, add(question, 32), mload(question), 0, 0)
            length := returndatasize()
            let copied := most
            if lt(length, most) { copied := length }
            data := mload(0x40)
            mstore(0x40, and(add(add(data, copied), 63), not(31)))
            mstore(data, copied)
            returndatacopy(add(data, 32), 0, copied)
        }
        reading.succeeded = succeeded;
        reading.length = uint32(length < type(uint32).max ? length : type(uint32).max);
        reading.data = data;
        if (succeeded && length == 32 && data.length == 32) {
            uint256 word = uint256(bytes32(data));
            if (word != 0 && word <= type(uint160).max) reading.named = _account(address(uint160(word)));
        }
    }

    function _account(address account) private view returns (Account) {
        uint256 length = account.code.length;
        if (length == 0) return Account.Plain;
        if (length != 23) return Account.Contract;
        bytes32 code;
        assembly ("memory-safe") {
            extcodecopy(account, 0, 0, 32)
            code := mload(0)
        }
        return bytes3(code) == 0xef0100 ? Account.Delegated : Account.Contract;
    }
}
