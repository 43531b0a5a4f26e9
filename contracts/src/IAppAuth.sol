// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// What has a say about who gets the keys of an application. Interface id 1e079198.
interface IAppAuth {
    /// What a machine that asks for keys is, from its verified evidence.
    struct AppBootInfo {
        address appId;
        bytes32 composeHash;
        address instanceId;
        bytes32 deviceId;
        bytes32 mrAggregated;
        bytes32 mrSystem;
        bytes32 osImageHash;
        string tcbStatus;
        string[] advisoryIds;
    }

    /// May this machine have the keys of this application? A refusal says why.
    function isAppAllowed(AppBootInfo calldata bootInfo)
        external
        view
        returns (bool isAllowed, string memory reason);
}
