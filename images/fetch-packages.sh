#!/bin/bash
# Downloads packages of the Debian release that guest images are made of, whatever this host runs, each
# without what it depends on, and prints the paths of their files, in the same order. Asks the archive only when
# one is missing. See build.sh for the cache.
set -euo pipefail
export LC_ALL=C

usage() {
    echo "usage: images/fetch-packages.sh [--cache DIRECTORY] PACKAGE..." >&2
    exit 2
}
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/cloister/images
if [ "${1-}" = --cache ]; then
    [ $# -gt 1 ] || usage
    cache=$2
    shift 2
fi
[ $# -gt 0 ] || usage
for package in "$@"; do
    [[ $package != -* ]] || usage
done

# shellcheck source=lib/common.sh
. "$here/lib/common.sh"
# shellcheck source=lib/packages.sh
. "$here/lib/packages.sh"

mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
# The archive is asked before the first that is missing.
asked=''
for package in "$@"; do
    list=$cache/package-$package
    if ! (cd "$cache/archives" && sha256sum --check --quiet "$list") >/dev/null 2>&1; then
        if [ -z "$asked" ]; then
            configure_apt
            update_apt
            asked=yes
        fi
        fetch_alone "$list" "$package"
    fi
    echo "$cache/archives/$(awk '{ print $2 }' "$list")"
done
