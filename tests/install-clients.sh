#!/bin/bash
# Installs published clients below target/NAME: the versions of requirements.txt and package-lock.json in tests/NAME, and the
# Rust project guest-rs there, which takes about 3 minutes of one processor. Does nothing when they are there. Runs no
# script of the packages of Python and JavaScript.
#
# Usage: tests/install-clients.sh NAME...
set -euo pipefail
cd "$(dirname "$0")/.."

install() {
    local from=tests/$1 into=target/$1 listed
    listed=$(cat "$from/requirements.txt" "$from/package-lock.json" && python3 --version)
    if [ -d "$from/guest-rs" ]; then
        listed+=$(cat "$from"/guest-rs/{Cargo.toml,Cargo.lock,src/main.rs} && rustc --version)
    fi
    if [ -e "$into/installed" ] && [ "$(cat "$into/installed")" = "$listed" ]; then
        return
    fi
    echo "==> installing the published clients of tests/$1 below $into" >&2
    rm -rf "$into"
    mkdir -p "$into"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-compile \
        --only-binary :all: --requirement "$from/requirements.txt" --target "$into/python"
    cp "$from/package.json" "$from/package-lock.json" "$into/"
    (cd "$into" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null)
    if [ -d "$from/guest-rs" ]; then
        env -u RUSTC_WORKSPACE_WRAPPER cargo build --quiet --locked --manifest-path "$from/guest-rs/Cargo.toml" \
            --target-dir "$into/guest-rs"
        # Only the program is needed from here on.
        rm -rf "$into"/guest-rs/debug/{build,deps,.fingerprint}
    fi
    # Last: an installation that breaks off is begun anew.
    printf '%s\n' "$listed" >"$into/installed"
}

for name in "$@"; do
    install "$name"
done
