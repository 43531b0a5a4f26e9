#!/bin/bash
# Builds target/release/cloister laid out for what it does most (profile-guided optimisation): a first build counts what
# runs while a gateway and a control plane are loaded, and the second is compiled by those counts as one, with the functions that
# ran before those that did not. Takes as long as three release builds, and one of the tests' load generator.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "==> $*" >&2; }
die() {
    echo "scripts/build-release.sh: $*" >&2
    exit 1
}

# Programs that read what the compiler writes have to be of its version, so they are the compiler's own.
tools=$(rustc --print sysroot)/lib/rustlib/$(rustc --print host-tuple)/bin
if [ ! -x "$tools/llvm-profdata" ] && command -v rustup >/dev/null; then
    say "adding the component llvm-tools to the Rust toolchain"
    rustup component add llvm-tools
fi
for tool in llvm-profdata llvm-readobj; do
    [ -x "$tools/$tool" ] ||
        die "$tools/$tool is missing: install the llvm-tools of the Rust toolchain that $(command -v rustc) is of"
done

# Addresses that the loader fills in take a hundredth of the room when packed: 2 MB of the file, which every process would
# read. Needs glibc 2.36 (Debian 12) where it runs and, because programs of the build have it, too, where it is built.
packed=-Clink-arg=-Wl,-z,pack-relative-relocs

# build FLAG DIRECTORY [FLAGS]: by a flag of the compiler, and others for the program alone. Encoded, so that its path may have
# spaces. All builds have the same dependencies and settings of the profile: names of functions, by which counts are found
# again, tell them.
build() {
    CARGO_ENCODED_RUSTFLAGS=$1$'\x1f'$packed cargo rustc --locked --release --package cloister --bin cloister \
        --target-dir "$2" -- "${@:3}"
}

# Prints the functions that ran by the counts in these files: those of the first file before those of the next, and of each by
# the count of the part of them that ran most often.
order() {
    local counts
    for counts in "$@"; do
        # "  [FILE;]FUNCTION:", and some lines below "    Block counts: [3, 0, 17]".
        "$tools/llvm-profdata" show --all-functions --counts "$counts" | awk '
            /^  [^ ].*:$/ { name = substr($0, 3, length($0) - 3); sub(/^.*;/, "", name) }
            /^    Block counts: / {
                most = 0
                gsub(/[^0-9]+/, " ")
                for (i = 1; i <= NF; i++) if ($i > most) most = $i
                if (most) print most, name
            }' | LC_ALL=C sort --key 1,1nr --key 2 | cut --delimiter ' ' --fields 2
    done | awk '!seen[$0]++'
}

# Whether the compiler links with LLVM's linker, which is its own on x86-64.
links_with_lld() {
    local program
    program=$(mktemp)
    echo 'fn main() {}' | rustc --crate-name probe -o "$program" -
    [[ $("$tools/llvm-readobj" --string-dump=.comment "$program") == *"Linker: LLD"* ]]
    local found=$?
    rm "$program"
    return "$found"
}

counting=$PWD/target/counting
counts=$counting/counts
servers=(inference-gateway control-plane)
say "building what counts"
build "-Cprofile-generate=$counts" "$counting"
# Parts of the build counted, too.
rm -rf "$counts"
# Counts that were taken beside another build made a program that is a tenth slower.
say "loading it, for a minute or two: best on a machine that does nothing else"
for server in "${servers[@]}"; do
    CLOISTER_BENCH_PROGRAM=$counting/release/cloister LLVM_PROFILE_FILE=$counts/$server-%m.profraw \
        cargo bench --locked --profile dev --workspace --bench inference -- --train "$server"
    "$tools/llvm-profdata" merge --output "$counts/$server" "$counts/$server"-*.profraw
done
"$tools/llvm-profdata" merge --output "$counts.profdata" "${servers[@]/#/$counts/}"
# So fewer pages of the program count as a server's memory for functions that it never runs. Linkers other than LLVM's know no
# such order; it has one by who calls whom, which would take precedence.
layout=()
if links_with_lld; then
    order "${servers[@]/#/$counts/}" >"$counts/order"
    [ -s "$counts/order" ] || die "no function is in the counts"
    layout+=(-Clink-arg=-Xlinker "-Clink-arg=--symbol-ordering-file=$counts/order"
        -Clink-arg=-Wl,--no-warn-symbol-ordering,--call-graph-profile-sort=none)
    say "$(wc -l <"$counts/order") functions that ran will stand before the others"
else
    say "programs are not linked by LLVM's linker: functions stay as they are"
fi
# All of it is compiled as one: a request takes a twentieth less of a processor, and the program is a tenth shorter.
say "building target/release/cloister by what was counted; the last step takes as long as all before"
build "-Cprofile-use=$counts.profdata"$'\x1f'-Cembed-bitcode=yes target -Clto=fat "${layout[@]}"
