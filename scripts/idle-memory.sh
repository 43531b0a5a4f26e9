#!/bin/bash
# Prints the resident memory of an idle control plane with an embedded database, ten seconds after its
# start (release build: what is there, or a new one).
set -euo pipefail
cd "$(dirname "$0")/.."

[ -x target/release/cloister ] || scripts/build-release.sh
echo "target/release/cloister of $(date -r target/release/cloister '+%F %R')" >&2
data=$(mktemp -d)
target/release/cloister --data-dir "$data" serve control-plane \
    --api-listen 127.0.0.1:0 --fleet-listen 127.0.0.1:0 2>/dev/null &
pid=$!
trap 'kill $pid; wait $pid || true; rm -rf "$data"' EXIT
sleep 10
awk '/^VmRSS/ { printf "idle control plane: %.1f MB resident\n", $2 / 1024 }' "/proc/$pid/status"
