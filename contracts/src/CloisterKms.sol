// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ERC1967Proxy} from "@openzeppelin/contracts/proxy/ERC1967/ERC1967Proxy.sol";
import {Governed} from "./Governed.sol";
import {IAppAuth} from "./IAppAuth.sol";

/// What `CloisterKms` needs of the code of applications. The other form of `initialize` would make the name
/// ambiguous.
interface IInitializeApp {
    function initialize(
        address initialOwner,
        bool disableUpgrades,
        bool requireTcbUpToDate,
        bool allowAnyDevice,
        bytes32 initialDeviceId,
        bytes32 initialComposeHash
    ) external;
}

/// The contract of a KMS: who may hold its roots, which guest images may get keys, and which applications there
/// are. The application's own contract has the last word about the application.
contract CloisterKms is Governed {
    /// What the operator publishes about the KMS.
    struct KmsInfo {
        bytes k256Pubkey;
        bytes caPubkey;
        bytes quote;
        bytes eventlog;
    }

    KmsInfo public kmsInfo;

    /// The application that ends TLS for others.
    string public gatewayAppId;

    /// Addresses that somebody called an application. Gives no right by itself.
    mapping(address appId => bool) public registeredApps;

    /// Systems that may hold the roots.
    mapping(bytes32 mrAggregated => bool) public kmsAllowedAggregatedMrs;

    /// Machines that may hold the roots.
    mapping(bytes32 deviceId => bool) public kmsAllowedDeviceIds;

    /// Guest images that may get keys.
    mapping(bytes32 osImageHash => bool) public allowedOsImages;

    /// The code that new applications get; zero: no factory.
    address public appImplementation;

    /// Room for the state of later code.
    uint256[50] private __gap;

    event AppDeployedViaFactory(address indexed appId, address indexed deployer);
    event AppRegistered(address appId);
    event KmsInfoSet(bytes k256Pubkey);
    event KmsAggregatedMrAdded(bytes32 mrAggregated);
    event KmsAggregatedMrRemoved(bytes32 mrAggregated);
    event KmsDeviceAdded(bytes32 deviceId);
    event KmsDeviceRemoved(bytes32 deviceId);
    event OsImageHashAdded(bytes32 osImageHash);
    event OsImageHashRemoved(bytes32 osImageHash);
    event GatewayAppIdSet(string gatewayAppId);
    event AppImplementationSet(address implementation);

    bytes32 private constant KMS_INFO = keccak256("kms-info");
    bytes32 private constant GATEWAY_APP_ID = keccak256("gateway-app-id");
    bytes32 private constant REGISTERED_APP = keccak256("registered-app");
    bytes32 private constant APP_IMPLEMENTATION = keccak256("app-implementation");
    bytes32 private constant KMS_AGGREGATED_MR = keccak256("kms-aggregated-mr");
    bytes32 private constant KMS_DEVICE = keccak256("kms-device");
    bytes32 private constant OS_IMAGE = keccak256("os-image");

    /// Once, by the proxy when it is made. Without an implementation there is no factory yet.
    function initialize(address initialOwner, address appImplementation_) external initializer {
        __Ownable_init(initialOwner);
        if (appImplementation_ != address(0)) _setAppImplementation(appImplementation_);
    }

    function setKmsInfo(KmsInfo calldata info) external onlyOwner {
        kmsInfo = info;
        emit KmsInfoSet(info.k256Pubkey);
        _record(KMS_INFO, keccak256(info.k256Pubkey), true);
    }

    function setKmsQuote(bytes calldata quote) external onlyOwner {
        kmsInfo.quote = quote;
    }

    function setKmsEventlog(bytes calldata eventlog) external onlyOwner {
        kmsInfo.eventlog = eventlog;
    }

    function setGatewayAppId(string calldata appId) external onlyOwner {
        gatewayAppId = appId;
        emit GatewayAppIdSet(appId);
        _record(GATEWAY_APP_ID, keccak256(bytes(appId)), true);
    }

    /// The code that new applications get; those that there are keep theirs.
    function setAppImplementation(address implementation) external onlyOwner {
        _setAppImplementation(implementation);
    }

    function addKmsAggregatedMr(bytes32 mrAggregated) external onlyOwner {
        kmsAllowedAggregatedMrs[mrAggregated] = true;
        emit KmsAggregatedMrAdded(mrAggregated);
        _record(KMS_AGGREGATED_MR, mrAggregated, true);
    }

    function removeKmsAggregatedMr(bytes32 mrAggregated) external onlyOwner {
        kmsAllowedAggregatedMrs[mrAggregated] = false;
        emit KmsAggregatedMrRemoved(mrAggregated);
        _record(KMS_AGGREGATED_MR, mrAggregated, false);
    }

    function addKmsDevice(bytes32 deviceId) external onlyOwner {
        kmsAllowedDeviceIds[deviceId] = true;
        emit KmsDeviceAdded(deviceId);
        _record(KMS_DEVICE, deviceId, true);
    }

    function removeKmsDevice(bytes32 deviceId) external onlyOwner {
        kmsAllowedDeviceIds[deviceId] = false;
        emit KmsDeviceRemoved(deviceId);
        _record(KMS_DEVICE, deviceId, false);
    }

    function addOsImageHash(bytes32 osImageHash) external onlyOwner {
        allowedOsImages[osImageHash] = true;
        emit OsImageHashAdded(osImageHash);
        _record(OS_IMAGE, osImageHash, true);
    }

    function removeOsImageHash(bytes32 osImageHash) external onlyOwner {
        allowedOsImages[osImageHash] = false;
        emit OsImageHashRemoved(osImageHash);
        _record(OS_IMAGE, osImageHash, false);
    }

    /// Makes the contract of an application and registers it. Whoever calls this gets no right by it: the
    /// application is `initialOwner`'s.
    function deployAndRegisterApp(
        address initialOwner,
        bool disableUpgrades,
        bool requireTcbUpToDate,
        bool allowAnyDevice,
        bytes32 initialDeviceId,
        bytes32 initialComposeHash
    ) external returns (address appId) {
        return _deployAndRegisterApp(
            initialOwner, disableUpgrades, requireTcbUpToDate, allowAnyDevice, initialDeviceId, initialComposeHash
        );
    }

    /// The form without `requireTcbUpToDate`, which then is false.
    function deployAndRegisterApp(
        address initialOwner,
        bool disableUpgrades,
        bool allowAnyDevice,
        bytes32 initialDeviceId,
        bytes32 initialComposeHash
    ) external returns (address appId) {
        return _deployAndRegisterApp(
            initialOwner, disableUpgrades, false, allowAnyDevice, initialDeviceId, initialComposeHash
        );
    }

    /// For contracts of applications that were made in another way. Anybody may: only what the application's
    /// contract and the list of images allow gets keys, and only those of that application.
    function registerApp(address appId) external {
        _registerApp(appId);
    }

    /// May this machine hold the roots?
    function isKmsAllowed(AppBootInfo calldata bootInfo) external view returns (bool isAllowed, string memory reason) {
        if (!_isUpToDate(bootInfo.tcbStatus)) {
            return (false, "TCB status is not up to date");
        }
        if (!allowedOsImages[bootInfo.osImageHash]) {
            return (false, "OS image is not allowed");
        }
        if (!kmsAllowedAggregatedMrs[bootInfo.mrAggregated]) {
            return (false, "Aggregated MR not allowed");
        }
        if (!kmsAllowedDeviceIds[bootInfo.deviceId]) {
            return (false, "KMS is not allowed to boot on this device");
        }
        return (true, "");
    }

    /// @inheritdoc IAppAuth
    function isAppAllowed(AppBootInfo calldata bootInfo)
        external
        view
        returns (bool isAllowed, string memory reason)
    {
        if (!registeredApps[bootInfo.appId]) {
            return (false, "App not registered");
        }
        if (!allowedOsImages[bootInfo.osImageHash]) {
            return (false, "OS image is not allowed");
        }
        if (bootInfo.appId.code.length == 0) {
            return (false, "App not deployed or invalid address");
        }
        return IAppAuth(bootInfo.appId).isAppAllowed(bootInfo);
    }

    function _setAppImplementation(address implementation) private {
        require(implementation.code.length > 0, "there is no code at the address of the implementation");
        appImplementation = implementation;
        emit AppImplementationSet(implementation);
        _record(APP_IMPLEMENTATION, implementation, true);
    }

    function _registerApp(address appId) private {
        require(appId != address(0), "the app id must not be zero");
        registeredApps[appId] = true;
        emit AppRegistered(appId);
        _record(REGISTERED_APP, appId, true);
    }

    function _deployAndRegisterApp(
        address initialOwner,
        bool disableUpgrades,
        bool requireTcbUpToDate,
        bool allowAnyDevice,
        bytes32 initialDeviceId,
        bytes32 initialComposeHash
    ) private returns (address appId) {
        require(appImplementation != address(0), "the owner of the KMS has set no implementation of applications");
        bytes memory initialization = abi.encodeCall(
            IInitializeApp.initialize,
            (initialOwner, disableUpgrades, requireTcbUpToDate, allowAnyDevice, initialDeviceId, initialComposeHash)
        );
        appId = address(new ERC1967Proxy(appImplementation, initialization));
        _registerApp(appId);
        emit AppDeployedViaFactory(appId, _msgSender());
    }
}
