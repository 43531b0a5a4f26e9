#!/bin/bash
# Fuzzes every parser that has a target, in crates of protocol/ and trusted/, for a few seconds each, with the stable
# compiler: usage: scripts/fuzz.sh [seconds per target]. Starts from the seeds beside the targets, from what
# earlier runs found (target/fuzz/corpus), and from the public test data where it is. Fails on the first
# input that crashes, hangs or takes too much memory, and keeps it in target/fuzz/crashes.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-5}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || {
    echo "usage: scripts/fuzz.sh [seconds per target]" >&2
    exit 2
}
testdata=${CLOISTER_TESTDATA:-../shared/testdata}/tdx
host=$(rustc --print host-tuple)

# The coverage that libFuzzer steers by, without the sanitizers that only a nightly compiler has. Naming the
# target keeps the flags away from build scripts.
flags="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
flags+=" -Cllvm-args=-sanitizer-coverage-trace-compares"

# Files that a target of the evidence crate starts from, beside its seeds.
public_samples() {
    case $1 in
    quote) compgen -G "$testdata/dcap/*.bin" && compgen -G "$testdata/minted/quote_*.bin" ;;
    event_log) compgen -G "$testdata/minted/event_log.json" ;;
    nitro) compgen -G "$testdata/*/*.cose" ;;
    versioned_attestation) compgen -G "$testdata/*/*.scale.bin" ;;
    esac || true
}

failed=0
for crate in protocol/evidence protocol/app-compose protocol/contracts protocol/sealed-env protocol/kms-api trusted/chain trusted/luks-header; do
    RUSTFLAGS=$flags CARGO_INCREMENTAL=0 cargo build --locked --target "$host" --target-dir target/fuzz \
        --manifest-path "$crate/fuzz/Cargo.toml"
    for source in "$crate"/fuzz/fuzz_targets/*.rs; do
        target=$(basename "$source" .rs)
        corpus=target/fuzz/corpus/$(basename "$crate")-$target
        crashes=target/fuzz/crashes/$(basename "$crate")-$target-
        mkdir -p "$corpus" target/fuzz/crashes
        seeds=("$corpus")
        [ ! -d "$crate/fuzz/seeds/$target" ] || seeds+=("$crate/fuzz/seeds/$target")
        while read -r sample; do
            cp --no-preserve=mode "$sample" "$corpus/public-$(basename "$sample")"
        done < <(public_samples "$target")
        log=target/fuzz/$(basename "$crate")-$target.log
        if "target/fuzz/$host/debug/$target" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 \
            -max_len=16384 -artifact_prefix="$crashes" "${seeds[@]}" >"$log" 2>&1; then
            printf '%-22s %s\n' "$target" "$(grep -a '^Done' "$log" | tail -1)"
        else
            tail -25 "$log" >&2
            echo "scripts/fuzz.sh: $target failed; the input is in target/fuzz/crashes, run it again with" >&2
            echo "  target/fuzz/$host/debug/$target FILE" >&2
            failed=1
        fi
    done
done
exit "$failed"
