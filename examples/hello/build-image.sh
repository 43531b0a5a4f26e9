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
readonly tag=cloister.local/hello:1
here=$(cd "$(dirname "$0")" && pwd)
output=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A sorted archive of the directory $1 without owners and times.
archive() {
    tar -C "$1" --create --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 .
}

cd "$work"
package=$("$here/../../images/fetch-package.sh" busybox-static ${2:+"$2"})
dpkg-deb --extract "$package" package

mkdir -p layer/bin layer/tmp image
find package -path '*/bin/busybox' -exec cp {} layer/bin/ \;
for applet in cat echo httpd sed sh wget; do
    ln -s busybox "layer/bin/$applet"
done
cp -r "$here/image/." layer/
chmod 755 layer/hello layer/www/cgi-bin/index.cgi layer/bin/busybox

archive layer >image/layer.tar
diff_id=$(sha256sum image/layer.tar | cut -d' ' -f1)
cat >config.json <<EOF
{"architecture":"amd64","os":"linux","created":"1970-01-01T00:00:00Z","config":{"Entrypoint":["/hello"],"Env":["PATH=/bin"]},"rootfs":{"type":"layers","diff_ids":["sha256:$diff_id"]},"history":[{"created":"1970-01-01T00:00:00Z"}]}
EOF
config=$(sha256sum config.json | cut -d' ' -f1).json
mv config.json "image/$config"
echo "[{\"Config\":\"$config\",\"RepoTags\":[\"$tag\"],\"Layers\":[\"layer.tar\"]}]" >image/manifest.json

(cd image && tar --create --format=ustar --owner=0 --group=0 --numeric-owner --mtime=@0 manifest.json "$config" layer.tar) >"$output"
echo "$output: $tag, $(stat -c %s "$output") bytes" >&2
