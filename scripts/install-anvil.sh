#!/bin/bash
# Installs anvil, the EVM node of development and tests, below target/anvil: the version and the checksum of
# cloud/development-chain/package-lock.json. Does nothing when it is there. Runs no script of the package.
set -euo pipefail
cd "$(dirname "$0")/.."

from=cloud/development-chain
into=target/anvil
program=$into/node_modules/@foundry-rs/anvil-linux-amd64/bin/anvil
if [ -x "$program" ] && cmp --silent "$from/package-lock.json" "$into/package-lock.json"; then
    exit 0
fi
command -v npm >/dev/null || {
    echo "scripts/install-anvil.sh: npm is missing; scripts/install-dependencies.sh run test installs it" >&2
    exit 1
}
echo "==> installing anvil (a local EVM node, for development and tests) below $into" >&2
rm -rf "$into"
mkdir -p "$into/new"
cp "$from/package.json" "$from/package-lock.json" "$into/new/"
(cd "$into/new" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null)
mv "$into/new/node_modules" "$into/node_modules"
# Last: an installation that breaks off is begun anew.
mv "$into/new/package-lock.json" "$into/package-lock.json"
rm -rf "$into/new"
