//! The public interface of the contracts, as Solidity declares it (platform reference, section 11).
//!
//! Each function has a type `…Call` with `SELECTOR`, `abi_encode` and `abi_decode_returns`, each event one with
//! `SIGNATURE_HASH`. Of an overloaded function the form with fewer arguments has the suffix `_0`, the other `_1`.

use alloy_sol_types::sol;

sol! {
    /// What a machine that asks for keys is, from its verified evidence (11.1; members: 4.7 and 10.5).
    #[derive(Debug, Default, PartialEq, Eq)]
    struct AppBootInfo {
        /// The application: the address of its contract.
        address appId;
        /// SHA-256 of its compose document.
        bytes32 composeHash;
        /// The CVM; zero where there is none.
        address instanceId;
        /// The physical machine (16).
        bytes32 deviceId;
        /// All registers.
        bytes32 mrAggregated;
        /// The system without the application.
        bytes32 mrSystem;
        /// The guest image.
        bytes32 osImageHash;
        /// As the vendor words it: `UpToDate`, `OutOfDate`, …
        string tcbStatus;
        /// Advisories that apply to the platform.
        string[] advisoryIds;
    }

    /// What the operator of a KMS publishes about it (11.2 `setKmsInfo`).
    #[derive(Debug, Default, PartialEq, Eq)]
    struct KmsInfo {
        /// Root key of applications' keys, secp256k1, compressed.
        bytes k256Pubkey;
        /// Root key of certificates.
        bytes caPubkey;
        /// Evidence of the KMS that made the roots.
        bytes quote;
        /// Event log that belongs to it.
        bytes eventlog;
    }

    /// What has a say about applications: the KMS contract asks it of each application's contract (11.2).
    #[derive(Debug, PartialEq, Eq)]
    interface IAppAuth {
        /// May this machine have the keys of this application?
        function isAppAllowed(AppBootInfo calldata bootInfo) external view returns (bool isAllowed, string memory reason);
    }

    /// What the owner of an application changes most; interface id `8fd37527` (11.2).
    #[derive(Debug, PartialEq, Eq)]
    interface IAppManagement {
        function addComposeHash(bytes32 composeHash) external;
        function removeComposeHash(bytes32 composeHash) external;
        function addDevice(bytes32 deviceId) external;
        function removeDevice(bytes32 deviceId) external;
    }

    /// The contract of one application; its address is the app id (11.2, 11.3).
    #[derive(Debug, PartialEq, Eq)]
    interface App {
        function isAppAllowed(AppBootInfo calldata bootInfo) external view returns (bool isAllowed, string memory reason);
        function addComposeHash(bytes32 composeHash) external;
        function removeComposeHash(bytes32 composeHash) external;
        function addDevice(bytes32 deviceId) external;
        function removeDevice(bytes32 deviceId) external;
        function setAllowAnyDevice(bool allowAnyDevice) external;
        function setRequireTcbUpToDate(bool requireTcbUpToDate) external;
        function disableUpgrades() external;
        function allowedComposeHashes(bytes32 composeHash) external view returns (bool);
        function allowedDeviceIds(bytes32 deviceId) external view returns (bool);
        function allowAnyDevice() external view returns (bool);
        function requireTcbUpToDate() external view returns (bool);
        function version() external pure returns (uint256);
        /// Not part of the public contracts: ours say what theirs keep to themselves.
        function upgradesDisabled() external view returns (bool);
        function initialize(address initialOwner, bool disableUpgrades, bool allowAnyDevice, bytes32 initialDeviceId, bytes32 initialComposeHash) external;
        function initialize(address initialOwner, bool disableUpgrades, bool requireTcbUpToDate, bool allowAnyDevice, bytes32 initialDeviceId, bytes32 initialComposeHash) external;

        event ComposeHashAdded(bytes32 composeHash);
        event ComposeHashRemoved(bytes32 composeHash);
        event DeviceAdded(bytes32 deviceId);
        event DeviceRemoved(bytes32 deviceId);
        event AllowAnyDeviceSet(bool allowAnyDevice);
        event RequireTcbUpToDateSet(bool requireTcbUpToDate);
        event UpgradesDisabled();
    }

    /// The contract of a KMS: which applications, images and KMSes there are (11.2, 11.3).
    #[derive(Debug, PartialEq, Eq)]
    interface Kms {
        function isAppAllowed(AppBootInfo calldata bootInfo) external view returns (bool isAllowed, string memory reason);
        function isKmsAllowed(AppBootInfo calldata bootInfo) external view returns (bool isAllowed, string memory reason);
        function deployAndRegisterApp(address initialOwner, bool disableUpgrades, bool allowAnyDevice, bytes32 initialDeviceId, bytes32 initialComposeHash) external returns (address appId);
        function deployAndRegisterApp(address initialOwner, bool disableUpgrades, bool requireTcbUpToDate, bool allowAnyDevice, bytes32 initialDeviceId, bytes32 initialComposeHash) external returns (address appId);
        function registerApp(address appId) external;
        function setAppImplementation(address implementation) external;
        function setKmsInfo(KmsInfo calldata info) external;
        function setKmsQuote(bytes calldata quote) external;
        function setKmsEventlog(bytes calldata eventlog) external;
        function setGatewayAppId(string calldata appId) external;
        function addKmsAggregatedMr(bytes32 mrAggregated) external;
        function removeKmsAggregatedMr(bytes32 mrAggregated) external;
        function addKmsDevice(bytes32 deviceId) external;
        function removeKmsDevice(bytes32 deviceId) external;
        function addOsImageHash(bytes32 osImageHash) external;
        function removeOsImageHash(bytes32 osImageHash) external;
        function kmsInfo() external view returns (bytes memory k256Pubkey, bytes memory caPubkey, bytes memory quote, bytes memory eventlog);
        function gatewayAppId() external view returns (string memory);
        function registeredApps(address appId) external view returns (bool);
        function kmsAllowedAggregatedMrs(bytes32 mrAggregated) external view returns (bool);
        function kmsAllowedDeviceIds(bytes32 deviceId) external view returns (bool);
        function allowedOsImages(bytes32 osImageHash) external view returns (bool);
        function appImplementation() external view returns (address);
        function initialize(address initialOwner, address appImplementation) external;

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
    }

    /// What both contracts have of the library that they are made of: one owner, handed over in two steps,
    /// behind a proxy that the owner may lead to new code (11.1, 11.2, 11.3).
    #[derive(Debug, PartialEq, Eq)]
    interface Owned {
        function owner() external view returns (address);
        function pendingOwner() external view returns (address);
        function transferOwnership(address newOwner) external;
        function acceptOwnership() external;
        function supportsInterface(bytes4 interfaceId) external view returns (bool);
        function upgradeToAndCall(address newImplementation, bytes calldata data) external payable;

        event OwnershipTransferStarted(address indexed previousOwner, address indexed newOwner);
        event OwnershipTransferred(address indexed previousOwner, address indexed newOwner);
        event Upgraded(address indexed implementation);
        /// Newest contracts only: who changed what. `policy` is Keccak-256 of its name
        /// (`compose-hash`, `device`, …).
        event PolicyChanged(address indexed actor, bytes32 indexed policy, bytes32 indexed value, bool enabled);

        error OwnableUnauthorizedAccount(address account);
        error OwnableInvalidOwner(address owner);
        error InvalidInitialization();
        error NotInitializing();
        error UUPSUnauthorizedCallContext();
        error UUPSUnsupportedProxiableUUID(bytes32 slot);
        error ERC1967InvalidImplementation(address implementation);
        error ERC1967NonPayable();
        error AddressEmptyCode(address target);
        error FailedCall();
    }

    /// A wallet of several people of the kind that is called Safe, as far as it tells that it is one.
    #[derive(Debug, PartialEq, Eq)]
    interface Safe {
        function VERSION() external view returns (string memory);
        function getThreshold() external view returns (uint256);
        function getOwners() external view returns (address[] memory);
    }

    /// A UUPS proxy: what an application's address leads to (11.1).
    interface Proxy {
        constructor(address implementation, bytes data);
    }
}
