#!/bin/bash
# Fuzzes every parser that has a target for a few seconds each, with the stable compiler, as many at a time as the
# machine has processors: usage: scripts/fuzz.sh [seconds per target; 0 only tries what is known]. The targets are those of
# fuzz/Cargo.toml.
# Starts from the seeds beside the targets, from what earlier runs found (target/fuzz/corpus), and from the public
# test data where it is: all that is tried with 0, by targets that are built as tests are. Fails if an input crashes, hangs or
# takes too much memory, and keeps it in target/fuzz/crashes.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-5}
[[ $seconds =~ ^(0|[1-9][0-9]*)$ ]] || {
    echo "usage: scripts/fuzz.sh [seconds per target; 0 only tries what is known]" >&2
    exit 2
}
testdata=${CLOISTER_TESTDATA:-../shared/testdata}/tdx

# Cargo knows a wrapper by its path alone: what it adds has to be in its name.
mkdir -p target/fuzz
instrument=$PWD/target/fuzz/instrument-$(sha256sum <fuzz/instrument.sh | cut -c1-16).sh
cp fuzz/instrument.sh "$instrument"
build=(cargo test --workspace --locked --no-run --test 'fuzz-*' --message-format json-render-diagnostics)
[ "$seconds" = 0 ] ||
    build=(env RUSTC_WORKSPACE_WRAPPER="$instrument" CARGO_INCREMENTAL=0 "${build[@]}" --config fuzz/profile.toml)

# Name of each target, its source, and the program that was built of it. The whole workspace is chosen, and tests, so that
# the crates of others are used as they were made for the tests. They are not instrumented: their branches steer the search
# only where they are generic, and so compiled with ours.
targets() {
    "${build[@]}" |
        sed -n 's|.*"name":"fuzz-\([^"]*\)","src_path":"[^"]*/fuzz/\.\./\([^"]*\)".*"executable":"\([^"]*\)".*|\1\t\2\t\3|p'
}

# Files that a target starts from, beside its seeds.
public_samples() {
    case $1 in
    evidence-quote) compgen -G "$testdata/dcap/*.bin" && compgen -G "$testdata/minted/quote_*.bin" ;;
    evidence-event-log) compgen -G "$testdata/minted/event_log.json" ;;
    evidence-nitro) compgen -G "$testdata/*/*.cose" ;;
    evidence-versioned-attestation) compgen -G "$testdata/*/*.scale.bin" ;;
    esac || true
}

# Runs the target $1, whose source is $2, by its program $3, and says what came of it.
fuzz() {
    local name=$1 source=$2 program=$3 seeds sample
    local corpus=target/fuzz/corpus/$name log=target/fuzz/$name.log
    local beside=${source%/fuzz_targets/*}/seeds/$(basename "$source" .rs)
    [ -d "$beside" ] || {
        echo "scripts/fuzz.sh: $name has no seeds; inputs that get far into the parser belong in $beside" >&2
        return 1
    }
    mkdir -p "$corpus" target/fuzz/crashes
    seeds=("$corpus" "$beside")
    while read -r sample; do
        cp --no-preserve=mode "$sample" "$corpus/public-$(basename "$sample")"
    done < <(public_samples "$name")
    local how=(-max_total_time="$seconds" -max_len=16384)
    # What is known is tried whole, however long.
    [ "$seconds" != 0 ] || how=(-runs=0)
    if "$program" -timeout=5 -rss_limit_mb=1024 -artifact_prefix="target/fuzz/crashes/$name-" "${how[@]}" "${seeds[@]}" \
        >"$log" 2>&1; then
        printf '%-32s %s\n' "$name" "$(grep -a '^Done' "$log" | tail -1)"
    else
        {
            tail -25 "$log"
            echo "scripts/fuzz.sh: $name failed; the input is in target/fuzz/crashes, run it again with"
            echo "  $program FILE"
        } >&2
        return 1
    fi
}

targets >target/fuzz/targets
# A target that nobody names, or not by such a name, is never run.
forgotten=$(comm -23 <(compgen -G '*/*/fuzz/fuzz_targets/*.rs' | sort) <(cut -f2 target/fuzz/targets | sort))
[ -z "$forgotten" ] || {
    echo "scripts/fuzz.sh: not built; each needs its [[test]] in fuzz/Cargo.toml, as the others have:" "$forgotten" >&2
    exit 1
}

failed=0 running=0 at_a_time=$(nproc)
while IFS=$'\t' read -r name source program; do
    if [ "$running" = "$at_a_time" ]; then
        wait -n || failed=1
        running=$((running - 1))
    fi
    fuzz "$name" "$source" "$program" &
    running=$((running + 1))
done <target/fuzz/targets
while [ "$running" -gt 0 ]; do
    wait -n || failed=1
    running=$((running - 1))
done
exit "$failed"
