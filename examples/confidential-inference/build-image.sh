#!/bin/bash
# Makes a container image, as a `docker save` archive, with the cloister program and what it needs of Debian: the C
# library and certificate authorities. CACHE keeps Debian's packages.
set -euo pipefail
export LC_ALL=C
umask 022

[ $# = 2 ] || [ $# = 3 ] || {
    echo "usage: examples/confidential-inference/build-image.sh PROGRAM OUTPUT.tar [CACHE]" >&2
    exit 2
}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

layer=$work/layer authorities=$work/authorities
mkdir -p "$layer"/{bin,etc/ssl/certs,lib/x86_64-linux-gnu,lib64,state,tmp} "$work/packages"
# Beforehand, and not where they are read: a failure has to end this.
debs=$("$here/../../images/fetch-packages.sh" ${3:+--cache "$3"} libc6 libgcc-s1 ca-certificates)
while read -r deb; do
    dpkg-deb --extract "$deb" "$work/packages"
done <<<"$debs"
libraries=$work/packages/usr/lib/x86_64-linux-gnu
cp "$libraries"/{ld-linux-x86-64.so.2,libc.so.6,libm.so.6,libgcc_s.so.1,libnss_dns.so.2,libnss_files.so.2,libresolv.so.2} \
    "$layer/lib/x86_64-linux-gnu/"
ln -s ../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 "$layer/lib64/ld-linux-x86-64.so.2"
# What the package's own script does where it is installed.
find "$work/packages/usr/share/ca-certificates" -name '*.crt' -print0 | sort --zero-terminated >"$authorities"
xargs --null cat <"$authorities" >"$layer/etc/ssl/certs/ca-certificates.crt"
strip --strip-all -o "$layer/bin/cloister" "$1"

"$here/../../scripts/pack-container-image.sh" "$layer" cloister.local/cloister:1 "$2" /bin/cloister
