// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// What the owner of an application changes most. Interface id 8fd37527.
interface IAppManagement {
    event ComposeHashAdded(bytes32 composeHash);
    event ComposeHashRemoved(bytes32 composeHash);
    event DeviceAdded(bytes32 deviceId);
    event DeviceRemoved(bytes32 deviceId);

    /// Allows a compose document. Allowing it again changes nothing.
    function addComposeHash(bytes32 composeHash) external;

    /// No longer allows it; what runs already is asked again when it wants keys.
    function removeComposeHash(bytes32 composeHash) external;

    /// Allows a machine.
    function addDevice(bytes32 deviceId) external;

    /// No longer allows it by name; `allowAnyDevice` may still do.
    function removeDevice(bytes32 deviceId) external;
}
