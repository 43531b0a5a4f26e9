#!/bin/bash
# Prints the hash of what decides a guest image beside its packages: this folder without its words, and the guest
# agent $1.
set -euo pipefail
cd "$(dirname "$0")/.."

find images "$1" -type f ! -name README.md -print0 | sort --zero-terminated | xargs --null sha256sum | sha256sum | cut -d' ' -f1
