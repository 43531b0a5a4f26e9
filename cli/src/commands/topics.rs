//! Help topics that belong to no single subcommand.

use std::fmt::Write as _;

use crate::failure::Exit;

/// The environment variables that are read.
pub(crate) const ENVIRONMENT: &str = "\
CLOISTER_API_URL, PHALA_CLOUD_API_PREFIX  management API to talk to (--api-url wins)
CLOISTER_API_KEY, PHALA_CLOUD_API_KEY     API key for it; otherwise the key kept for that server is used
CLOISTER_DATA_DIR                         directory of the cloud on this machine (--data-dir wins)
CLOISTER_GUEST_IMAGES                     directory with guest images (`up --guest-images` wins)
CLOISTER_DEVELOPMENT_ROOT                 development root that `verify` and `serve kms` accept
CLOISTER_PRODUCTION                       true: `serve` trusts hardware only (as --production does)
CLOISTER_PCCS_URL                         collateral of Intel's platforms for `serve` (--pccs-url wins)
CLOISTER_LOG                              what `up` and `serve` log, such as info,cloister_node=debug
NO_COLOR                                  no colours when set to anything
XDG_CONFIG_HOME, XDG_DATA_HOME, HOME      where files are kept when nothing else says so
";

/// The exit codes, one per line.
pub(crate) fn exit_codes() -> String {
    let mut text = String::new();
    for (exit, meaning) in Exit::TABLE {
        let _ = writeln!(text, "{}  {meaning}", exit as u8);
    }
    text
}
