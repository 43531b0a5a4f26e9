// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Ownable2StepUpgradeable} from "@openzeppelin/contracts-upgradeable/access/Ownable2StepUpgradeable.sol";
import {UUPSUpgradeable} from "@openzeppelin/contracts/proxy/utils/UUPSUpgradeable.sol";
import {ERC165} from "@openzeppelin/contracts/utils/introspection/ERC165.sol";
import {IAppAuth} from "./IAppAuth.sol";

/// What both contracts are: behind a proxy, with one owner who alone changes them, and with a record of each
/// change of what decides about somebody. Has no storage of its own (that of the library is in namespaced slots), so that the state of a contract
/// begins at slot 0, as it does in the public contracts: a proxy can be led from those to these and back.
abstract contract Governed is Ownable2StepUpgradeable, UUPSUpgradeable, ERC165, IAppAuth {
    /// `policy` changed for `value`: what there is to say about it, whoever changed it. `policy` is the hash of a
    /// name below; `value` a word, an address, the hash of something longer, or zero where there is but one.
    event PolicyChanged(address indexed actor, bytes32 indexed policy, bytes32 indexed value, bool enabled);

    bytes32 internal constant IMPLEMENTATION_UPGRADE = keccak256("implementation-upgrade");

    bytes32 private constant UP_TO_DATE = keccak256("UpToDate");

    /// The code itself is nobody's: only proxies are initialised.
    constructor() {
        _disableInitializers();
    }

    /// @inheritdoc ERC165
    function supportsInterface(bytes4 interfaceId) public view virtual override returns (bool) {
        return interfaceId == type(IAppAuth).interfaceId || super.supportsInterface(interfaceId);
    }

    /// Only the owner leads the proxy to other code.
    function _authorizeUpgrade(address newImplementation) internal virtual override onlyOwner {
        _record(IMPLEMENTATION_UPGRADE, newImplementation, true);
    }

    function _record(bytes32 policy, bytes32 value, bool enabled) internal {
        emit PolicyChanged(_msgSender(), policy, value, enabled);
    }

    function _record(bytes32 policy, address value, bool enabled) internal {
        _record(policy, bytes32(uint256(uint160(value))), enabled);
    }

    function _isUpToDate(string calldata tcbStatus) internal pure returns (bool) {
        return keccak256(bytes(tcbStatus)) == UP_TO_DATE;
    }
}
