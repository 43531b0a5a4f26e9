#!/bin/bash
# Builds target/release/cloister laid out for what it does most (profile-guided optimisation): a first build counts what
# runs while a gateway and a control plane are loaded, and the second is compiled by those counts. Takes as long as two
# release builds, and one of the tests' load generator.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "==> $*" >&2; }
die() {
    echo "scripts/build-release.sh: $*" >&2
    exit 1
}

# The program that adds counts up has to be of the compiler's version, so it is the compiler's own.
profdata=$(rustc --print sysroot)/lib/rustlib/$(rustc --print host-tuple)/bin/llvm-profdata
if [ ! -x "$profdata" ] && command -v rustup >/dev/null; then
    say "adding the component llvm-tools to the Rust toolchain"
    rustup component add llvm-tools
fi
[ -x "$profdata" ] || die "$profdata is missing: install the llvm-tools of the Rust toolchain that $(command -v rustc) is of"

# Addresses that the loader fills in take a hundredth of the room when packed: 2 MB of the file, which every process would
# read. Needs glibc 2.36 (Debian 12) where it runs and, because programs of the build have it, too, where it is built.
packed=-Clink-arg=-Wl,-z,pack-relative-relocs

# build FLAG DIRECTORY: by a flag of the compiler. Encoded, so that its path may have spaces. Both builds have the same
# dependencies and settings of the profile: names of functions, by which counts are found again, tell them.
build() {
    CARGO_ENCODED_RUSTFLAGS=$1$'\x1f'$packed cargo build --locked --release --package cloister --target-dir "$2"
}

counting=$PWD/target/counting
counts=$counting/counts
say "building what counts"
build "-Cprofile-generate=$counts" "$counting"
# Parts of the build counted, too.
rm -rf "$counts"
# Counts that were taken beside another build made a program that is a tenth slower.
say "loading it, for a minute or two: best on a machine that does nothing else"
CLOISTER_BENCH_PROGRAM=$counting/release/cloister \
    cargo bench --locked --profile dev --workspace --bench inference -- --train
"$profdata" merge --output "$counts.profdata" "$counts"
say "building target/release/cloister by what was counted"
build "-Cprofile-use=$counts.profdata" target
