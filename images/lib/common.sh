# Shared by the scripts that make images. Sourced.

say() { echo "==> $*" >&2; }
die() {
    echo "$0: $*" >&2
    exit 1
}
# The entries of a list file, without comments.
entries() { sed 's/#.*//; s/[[:space:]]*$//; /^$/d' "$1"; }
