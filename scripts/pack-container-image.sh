#!/bin/bash
# Packs a directory as a container image in a `docker save` archive, without docker. The same files give
# the same bytes.
set -euo pipefail
export LC_ALL=C

[ $# -ge 4 ] || {
    echo "usage: scripts/pack-container-image.sh DIRECTORY REFERENCE OUTPUT.tar PROGRAM [ARGUMENT…]" >&2
    exit 2
}
directory=$(realpath "$1") reference=$2 output=$(realpath "$3")
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The arguments as the inside of a JSON array of plain words.
words() {
    local word separator=
    for word in "$@"; do
        printf '%s"%s"' "$separator" "$word"
        separator=,
    done
}

cd "$work"
mkdir image
tar -C "$directory" --create --format=gnu --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 . >image/layer.tar
diff_id=$(sha256sum image/layer.tar | cut -d' ' -f1)
cat >config.json <<EOF
{"architecture":"amd64","os":"linux","created":"1970-01-01T00:00:00Z","config":{"Entrypoint":[$(words "$@")],"Env":["PATH=/bin:/usr/bin"]},"rootfs":{"type":"layers","diff_ids":["sha256:$diff_id"]},"history":[{"created":"1970-01-01T00:00:00Z"}]}
EOF
config=$(sha256sum config.json | cut -d' ' -f1).json
mv config.json "image/$config"
echo "[{\"Config\":\"$config\",\"RepoTags\":[\"$reference\"],\"Layers\":[\"layer.tar\"]}]" >image/manifest.json
(cd image && tar --create --format=ustar --owner=0 --group=0 --numeric-owner --mtime=@0 manifest.json "$config" layer.tar) >"$output.partial"
mv "$output.partial" "$output"
echo "$output: $reference, $(stat -c %s "$output") bytes" >&2
