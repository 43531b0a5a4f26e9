// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC165} from "@openzeppelin/contracts/utils/introspection/IERC165.sol";
import {Governed} from "./Governed.sol";
import {IAppAuth} from "./IAppAuth.sol";
import {IAppManagement} from "./IAppManagement.sol";

/// The contract of one application: which documents it may run, and where. The address of its proxy is the app id.
contract CloisterApp is Governed, IAppManagement {
    /// Documents that may run, by their SHA-256.
    mapping(bytes32 composeHash => bool) public allowedComposeHashes;

    /// Whether the code is final. Never becomes false again.
    bool public upgradesDisabled;

    /// Whether every machine will do, listed or not.
    bool public allowAnyDevice;

    /// Machines that may run it.
    mapping(bytes32 deviceId => bool) public allowedDeviceIds;

    /// Whether the machine's platform must have all security updates.
    bool public requireTcbUpToDate;

    /// Room for the state of later code.
    uint256[49] private __gap;

    event UpgradesDisabled();
    event AllowAnyDeviceSet(bool allowAnyDevice);
    event RequireTcbUpToDateSet(bool requireTcbUpToDate);

    bytes32 private constant COMPOSE_HASH = keccak256("compose-hash");
    bytes32 private constant DEVICE = keccak256("device");
    bytes32 private constant ALLOW_ANY_DEVICE = keccak256("allow-any-device");
    bytes32 private constant REQUIRE_TCB_UP_TO_DATE = keccak256("require-tcb-up-to-date");
    bytes32 private constant UPGRADES_DISABLED = keccak256("upgrades-disabled");

    /// The form without `requireTcbUpToDate`, which then is false.
    function initialize(
        address initialOwner,
        bool disableUpgrades_,
        bool allowAnyDevice_,
        bytes32 initialDeviceId,
        bytes32 initialComposeHash
    ) external initializer {
        _initialize(initialOwner, disableUpgrades_, false, allowAnyDevice_, initialDeviceId, initialComposeHash);
    }

    /// Once, by the proxy when it is made. A device or hash of zero stands for none.
    function initialize(
        address initialOwner,
        bool disableUpgrades_,
        bool requireTcbUpToDate_,
        bool allowAnyDevice_,
        bytes32 initialDeviceId,
        bytes32 initialComposeHash
    ) external initializer {
        _initialize(
            initialOwner, disableUpgrades_, requireTcbUpToDate_, allowAnyDevice_, initialDeviceId, initialComposeHash
        );
    }

    /// @inheritdoc IAppManagement
    function addComposeHash(bytes32 composeHash) external onlyOwner {
        require(composeHash != 0, "the compose hash must not be zero");
        _addComposeHash(composeHash);
    }

    /// @inheritdoc IAppManagement
    function removeComposeHash(bytes32 composeHash) external onlyOwner {
        allowedComposeHashes[composeHash] = false;
        emit ComposeHashRemoved(composeHash);
        _record(COMPOSE_HASH, composeHash, false);
    }

    /// @inheritdoc IAppManagement
    function addDevice(bytes32 deviceId) external onlyOwner {
        require(deviceId != 0, "the device id must not be zero");
        _addDevice(deviceId);
    }

    /// @inheritdoc IAppManagement
    function removeDevice(bytes32 deviceId) external onlyOwner {
        allowedDeviceIds[deviceId] = false;
        emit DeviceRemoved(deviceId);
        _record(DEVICE, deviceId, false);
    }

    /// Whether every machine will do. The list of machines stays as it is.
    function setAllowAnyDevice(bool allowAnyDevice_) external onlyOwner {
        _setAllowAnyDevice(allowAnyDevice_);
    }

    /// Whether the machine's platform must have all security updates.
    function setRequireTcbUpToDate(bool requireTcbUpToDate_) external onlyOwner {
        _setRequireTcbUpToDate(requireTcbUpToDate_);
    }

    /// Makes the code final, for good.
    function disableUpgrades() external onlyOwner {
        _disableUpgrades();
    }

    /// @inheritdoc IAppAuth
    function isAppAllowed(AppBootInfo calldata bootInfo)
        external
        view
        returns (bool isAllowed, string memory reason)
    {
        if (requireTcbUpToDate && !_isUpToDate(bootInfo.tcbStatus)) {
            return (false, "TCB status is not up to date");
        }
        if (!allowedComposeHashes[bootInfo.composeHash]) {
            return (false, "Compose hash not allowed");
        }
        if (!allowAnyDevice && !allowedDeviceIds[bootInfo.deviceId]) {
            return (false, "Device not allowed");
        }
        return (true, "");
    }

    /// Of the interface: 2 has `requireTcbUpToDate`.
    function version() external pure returns (uint256) {
        return 2;
    }

    /// @inheritdoc IERC165
    function supportsInterface(bytes4 interfaceId) public view override returns (bool) {
        return interfaceId == type(IAppManagement).interfaceId || super.supportsInterface(interfaceId);
    }

    function _authorizeUpgrade(address newImplementation) internal override {
        super._authorizeUpgrade(newImplementation);
        require(!upgradesDisabled, "upgrades are disabled for good");
    }

    function _initialize(
        address initialOwner,
        bool disableUpgrades_,
        bool requireTcbUpToDate_,
        bool allowAnyDevice_,
        bytes32 initialDeviceId,
        bytes32 initialComposeHash
    ) private onlyInitializing {
        __Ownable_init(initialOwner);
        if (disableUpgrades_) _disableUpgrades();
        if (requireTcbUpToDate_) _setRequireTcbUpToDate(true);
        if (allowAnyDevice_) _setAllowAnyDevice(true);
        if (initialDeviceId != 0) _addDevice(initialDeviceId);
        if (initialComposeHash != 0) _addComposeHash(initialComposeHash);
    }

    function _addComposeHash(bytes32 composeHash) private {
        allowedComposeHashes[composeHash] = true;
        emit ComposeHashAdded(composeHash);
        _record(COMPOSE_HASH, composeHash, true);
    }

    function _addDevice(bytes32 deviceId) private {
        allowedDeviceIds[deviceId] = true;
        emit DeviceAdded(deviceId);
        _record(DEVICE, deviceId, true);
    }

    function _setAllowAnyDevice(bool allowAnyDevice_) private {
        allowAnyDevice = allowAnyDevice_;
        emit AllowAnyDeviceSet(allowAnyDevice_);
        _record(ALLOW_ANY_DEVICE, bytes32(0), allowAnyDevice_);
    }

    function _setRequireTcbUpToDate(bool requireTcbUpToDate_) private {
        requireTcbUpToDate = requireTcbUpToDate_;
        emit RequireTcbUpToDateSet(requireTcbUpToDate_);
        _record(REQUIRE_TCB_UP_TO_DATE, bytes32(0), requireTcbUpToDate_);
    }

    function _disableUpgrades() private {
        upgradesDisabled = true;
        emit UpgradesDisabled();
        _record(UPGRADES_DISABLED, bytes32(0), true);
    }
}
