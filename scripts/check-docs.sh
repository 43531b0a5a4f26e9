#!/bin/bash
# Checks the API documentation of all libraries, private items too: every warning of rustdoc is an error. `make docs` makes
# what people read; for that, cargo compiles all crates and what they depend on once more. Here it is asked to test examples
# in docstrings, for which it gives rustdoc what the other tests were built of, and rustdoc documents instead.
set -euo pipefail

if [ "${1-}" != --as-rustdoc ]; then
    cd "$(dirname "$0")/.."
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    printf '#!/bin/bash\nexec %q --as-rustdoc "$@"\n' "$PWD/scripts/check-docs.sh" >"$work/rustdoc"
    chmod +x "$work/rustdoc"
    CLOISTER_DOCS=$work/docs RUSTDOC=$work/rustdoc cargo test --workspace --locked --doc
    exit
fi

shift
arguments=()
while [ $# -gt 0 ]; do
    case $1 in
    --test) arguments+=(--deny warnings --document-private-items --out-dir "$CLOISTER_DOCS") ;;
    --test-*) shift ;;
    *) arguments+=("$1") ;;
    esac
    shift
done
exec rustdoc "${arguments[@]}"
