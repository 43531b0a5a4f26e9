#!/bin/bash
# Makes the example's container image as a `docker save` archive, without docker: Debian's static
# busybox and the files in image/. The same busybox gives the same bytes. CACHE keeps the download.
set -euo pipefail
export LC_ALL=C
umask 022

[ $# = 1 ] || [ $# = 2 ] || {
    echo "usage: examples/hello/build-image.sh OUTPUT.tar [CACHE]" >&2
    exit 2
}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

package=$("$here/../../images/fetch-packages.sh" ${2:+--cache "$2"} busybox-static)
dpkg-deb --extract "$package" "$work/package"

mkdir -p "$work"/layer/{bin,tmp}
find "$work/package" -path '*/bin/busybox' -exec cp {} "$work/layer/bin/" \;
for applet in cat echo httpd sed sh wget; do
    ln -s busybox "$work/layer/bin/$applet"
done
cp -r "$here/image/." "$work/layer/"
chmod 755 "$work"/layer/{hello,www/cgi-bin/index.cgi,bin/busybox}

"$here/../../scripts/pack-container-image.sh" "$work/layer" cloister.local/hello:1 "$1" /hello
