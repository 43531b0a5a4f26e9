#!/bin/bash
# Builds the static guest agent and prints where it is. The same sources give the same bytes wherever
# they lie: paths of this host do not enter the program.
set -euo pipefail

readonly target=x86_64-unknown-linux-gnu
cd "$(dirname "$0")/.."
cargo_home=${CARGO_HOME:-$HOME/.cargo}
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")

# Whoever calls, the compiler is rustc itself.
unset RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER
RUSTFLAGS="-C target-feature=+crt-static --remap-path-prefix=$PWD=/src --remap-path-prefix=$cargo_home=/cargo" \
    cargo build --locked --profile guest --package cloister-guest-agent --target "$target" >&2
echo "$target_dir/$target/guest/cloister-guest-agent"
