#!/bin/bash
# Checks the dependency tree against deny.toml and the trust boundaries: with cargo-deny where it is
# installed, and always with cargo itself.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
complain() {
    echo "check-dependencies: $*" >&2
    failed=1
}
# The strings of the list $1 in deny.toml.
listed() { sed -n "/^$1 = \[/,/^\]/s/^ *\(.*name = \)\{0,1\}\"\([^\"]*\)\".*/\2/p" deny.toml; }
tree() { cargo tree --workspace --locked --edges normal,build --target x86_64-unknown-linux-gnu "$@"; }

# Licences: every AND part of an expression has an allowed alternative.
bad_licences=$(tree --prefix none --format '{p}|{l}' | sed 's/ (\*)$//' | sort -u | awk -F'|' '
    NR == FNR { allowed[$0]; next }
    {
        expression = $2
        gsub(" */ *", " OR ", expression)
        gsub(/[()]/, "", expression)
        parts = split(expression, part, " AND ")
        for (i = 1; i <= parts; i++) {
            ok = 0
            alternatives = split(part[i], alternative, " OR ")
            for (j = 1; j <= alternatives; j++) if (alternative[j] in allowed) ok = 1
            if (!ok) { print $1 ": " $2; break }
        }
    }' <(listed allow) -)
[ -z "$bad_licences" ] || complain "licences that deny.toml does not allow:"$'\n'"$bad_licences"

# What only one crate may use, and which.
wrapped=$(sed -n 's/^ *{ name = "\([^"]*\)", wrappers = \["\([^"]*\)"\] },$/\1 \2/p' deny.toml)
banned=$(tree --prefix none --format '{p}' | cut -d' ' -f1 | sort -u | grep -Fx -f <(listed deny) |
    grep -vFx -f <(cut -d' ' -f1 <<<"$wrapped") || true)
[ -z "$banned" ] || complain "banned crates, see deny.toml: $(echo "$banned" | xargs)"
while read -r crate wrapper; do
    users=$(tree --invert "$crate" --depth 1 --prefix none --format '{p}' | cut -d' ' -f1 | sort -u |
        grep -vFx -e "$crate" -e "$wrapper" || true)
    [ -z "$users" ] || complain "only $wrapper may use $crate, see deny.toml: $(echo "$users" | xargs)"
done <<<"$wrapped"

double=$(tree --duplicates --depth 0 --prefix none --format '{p}' | cut -d' ' -f1,2 | sort -u |
    cut -d' ' -f1 | uniq --repeated | grep -vFx -f <(listed skip) || true)
[ -z "$double" ] || complain "crates in two versions, not explained in deny.toml: $(echo "$double" | xargs)"

foreign=$(grep '^source = ' Cargo.lock | sort -u | grep -v '"registry+https://github.com/rust-lang/crates.io-index"' || true)
[ -z "$foreign" ] || complain "crates from elsewhere than crates.io: $foreign"

# Trust boundaries: which of our crates a crate may name.
may_depend() {
    local folder=$1 pattern=$2 manifest
    for manifest in "$folder"/*/Cargo.toml; do
        sed -n '/^\[dependencies\]/,/^\[/s/^\(cloister-[a-z-]*\).*/\1/p' "$manifest" | while read -r crate; do
            grep -q "^$crate = { path = \"$pattern" Cargo.toml || echo "$manifest names $crate"
        done
    done
}
crossings=$(
    may_depend protocol 'protocol/'
    may_depend trusted '\(protocol\|trusted\)/'
)
[ -z "$crossings" ] || complain "dependencies across a trust boundary:"$'\n'"$crossings"

# One crate names the database.
databases=$(grep -l '^sqlx' ./*/Cargo.toml ./*/*/Cargo.toml | grep -v '^./cloud/control-plane/' || true)
[ -z "$databases" ] || complain "only cloud/control-plane may name the database: $databases"

if command -v cargo-deny >/dev/null; then
    cargo deny --locked check || failed=1
fi
exit "$failed"
