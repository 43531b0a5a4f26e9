#!/bin/bash
# Builds target/release/cloister laid out for what it does most (profile-guided optimisation): a first build counts what
# runs while an inference gateway is loaded, and the second is compiled by those counts. Needs as much time as two release
# builds and a minute.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "==> $*" >&2; }
die() {
    echo "scripts/build-release.sh: $*" >&2
    exit 1
}

# The program that adds counts up has to be of the compiler's version, so it is the compiler's own.
profdata=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/llvm-profdata
if [ ! -x "$profdata" ]; then
    command -v rustup >/dev/null || die "$profdata is missing: install the llvm-tools of this Rust toolchain"
    say "adding the component llvm-tools to the Rust toolchain"
    rustup component add llvm-tools
fi

counting=$PWD/target/counting
counts=$counting/counts
say "building what counts"
RUSTFLAGS="${RUSTFLAGS-} -Cprofile-generate=$counts" \
    cargo build --locked --release --package cloister --target-dir "$counting"
# Parts of the build counted, too.
rm -rf "$counts"
say "loading it"
CLOISTER_BENCH_PROGRAM=$counting/release/cloister \
    cargo bench --locked --profile dev --package cloister-tests --bench inference -- --train
"$profdata" merge --output "$counts.profdata" "$counts"
say "building target/release/cloister by what was counted"
RUSTFLAGS="${RUSTFLAGS-} -Cprofile-use=$counts.profdata" cargo build --locked --release --package cloister
