#!/bin/bash
# Builds target/release/cloister laid out for what it does most (profile-guided optimisation): a first build counts what
# runs while a gateway and a control plane are loaded, and the second is compiled by those counts, with the functions that
# ran before those that did not. Takes as long as two release builds, and one of the tests' load generator.
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
for tool in llvm-nm llvm-profdata llvm-readobj; do
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

# Prints the functions of the program $1 that ran by the counts in the other files: those of the first file before those of the
# next, and of each by the count of the part of them that ran most often.
order() {
    local symbols counts
    symbols=$("$tools/llvm-nm" --defined-only --format=just-symbols "$1")
    shift
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
    done | awk '
        # The compiler adds a suffix to names that it makes known to other parts of the program.
        NR == FNR { name = $1; sub(/\.llvm\..*/, "", name); called[name] = called[name] $1 "\n"; next }
        $1 in called { printf "%s", called[$1]; delete called[$1] }' <(echo "$symbols") -
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
say "building target/release/cloister by what was counted"
build "-Cprofile-use=$counts.profdata" target -Cstrip=none
# With the names of its functions it is not for use.
unordered=$counting/cloister
mv target/release/cloister "$unordered"
# So fewer pages of the program count as a server's memory for functions that it never runs. Linkers other than LLVM's, which is
# the compiler's own on x86-64, know no such order; it has one by who calls whom, which would take precedence.
layout=(-Cstrip=symbols)
linker=$("$tools/llvm-readobj" --string-dump=.comment "$unordered")
if [[ $linker == *"Linker: LLD"* ]]; then
    order "$unordered" "${servers[@]/#/$counts/}" >"$counts/order"
    [ -s "$counts/order" ] || die "no function of $unordered is in the counts"
    layout+=(-Clink-arg=-Xlinker "-Clink-arg=--symbol-ordering-file=$counts/order"
        -Clink-arg=-Wl,--no-warn-symbol-ordering,--call-graph-profile-sort=none)
    say "linking it again, with the $(wc -l <"$counts/order") functions that ran before the others"
else
    say "it was not linked by LLVM's linker: its functions stay as they are"
fi
build "-Cprofile-use=$counts.profdata" target "${layout[@]}"
