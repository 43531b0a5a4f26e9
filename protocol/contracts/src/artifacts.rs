//! The compiled contracts, as `contracts/artifacts` has them, and the data of the transactions that deploy them.

use alloy_primitives::{Address, Bytes, hex};
use alloy_sol_types::{SolCall as _, SolConstructor as _};

use crate::abi::{Kms, Proxy};

macro_rules! creation_code {
    ($(#[$doc:meta])* $name:ident, $file:literal) => {
        $(#[$doc])*
        pub static $name: [u8; include_bytes!(concat!("../../../contracts/artifacts/", $file)).len() / 2] =
            match hex::const_decode_to_array(include_bytes!(concat!("../../../contracts/artifacts/", $file))) {
                Ok(code) => code,
                Err(_) => panic!("an artifact is not hex"),
            };
    };
}

creation_code!(
    /// Creation code of the KMS contract's implementation.
    KMS_IMPLEMENTATION, "CloisterKms.bin"
);
creation_code!(
    /// Creation code of the implementation that applications get.
    APP_IMPLEMENTATION, "CloisterApp.bin"
);
creation_code!(
    /// Creation code of the proxy, without its arguments.
    PROXY, "ERC1967Proxy.bin"
);
creation_code!(
    /// Creation code of the lens, without its question.
    ALLOWANCE_LENS, "AllowanceLens.bin"
);

/// The creation of a KMS contract: a proxy that leads to `implementation`, initialised in the same transaction, so
/// that nobody else can. Without an `app_implementation` it makes no applications until its owner sets one.
#[must_use]
pub fn kms_proxy(implementation: Address, owner: Address, app_implementation: Option<Address>) -> Bytes {
    let initialize = Kms::initializeCall {
        initialOwner: owner,
        appImplementation: app_implementation.unwrap_or_default(),
    };
    proxy(implementation, initialize.abi_encode().into())
}

/// The creation of a proxy that leads to `implementation` and calls it with `initialization`.
#[must_use]
pub fn proxy(implementation: Address, initialization: Bytes) -> Bytes {
    let arguments = Proxy::constructorCall { implementation, data: initialization }.abi_encode();
    [PROXY.as_slice(), &arguments].concat().into()
}
