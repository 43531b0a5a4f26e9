#!/bin/bash
# Downloads one package of the Debian release that guest images are made of, whatever this host runs,
# and prints the path of its file. See build.sh for the cache.
set -euo pipefail
export LC_ALL=C

[ $# = 1 ] || [ $# = 2 ] || {
    echo "usage: images/fetch-package.sh PACKAGE [CACHE]" >&2
    exit 2
}
here=$(cd "$(dirname "$0")" && pwd)
cache=${2:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/cloister/images}

# shellcheck source=lib/common.sh
. "$here/lib/common.sh"
# shellcheck source=lib/packages.sh
. "$here/lib/packages.sh"

mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
list=$cache/package-$1
if ! (cd "$cache/archives" && sha256sum --check --quiet "$list") >/dev/null 2>&1; then
    configure_apt
    update_apt
    fetch_alone "$list" "$1"
fi
echo "$cache/archives/$(awk '{ print $2 }' "$list")"
