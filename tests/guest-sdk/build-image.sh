#!/bin/bash
# Makes a container image, as a `docker save` archive, with the published Python SDK for guests and a
# program that calls every method that it has and serves the answers. Python comes from Debian, the SDK
# from PyPI. CACHE keeps Debian's packages.
set -euo pipefail
export LC_ALL=C
umask 022

[ $# = 1 ] || [ $# = 2 ] || {
    echo "usage: tests/guest-sdk/build-image.sh OUTPUT.tar [CACHE]" >&2
    exit 2
}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

layer=$work/layer
mkdir -p "$layer"/{app,tmp}
# Beforehand, and not where they are read: a failure has to end this.
debs=$("$here/../../images/fetch-packages.sh" ${2:+--cache "$2"} \
    python3.13-minimal libpython3.13-minimal libpython3.13-stdlib libc6 libexpat1 zlib1g \
    libssl3t64 libffi8 libgcc-s1 libzstd1 libbz2-1.0 liblzma5)
while read -r deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -C "$layer" --extract --exclude=./usr/share/doc --exclude=./usr/share/man
done <<<"$debs"
for merged in bin lib lib64; do
    ln -s "usr/$merged" "$layer/$merged"
done

python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-compile \
    --requirement "$here/requirements.txt" --target "$layer/app/packages" --only-binary :all: \
    --implementation cp --python-version 3.13 --platform manylinux2014_x86_64 --platform manylinux_2_34_x86_64
cp "$here/probe.py" "$layer/app/"
# What the program does not import: the guest hashes and unpacks every byte under emulation.
libraries=$layer/usr/lib/x86_64-linux-gnu
rm -rf "$libraries"/{gconv,engines-3,ossl-modules} "$layer"/usr/lib/python3.13/{ensurepip,pydoc_data,test,unittest}
rm -f "$libraries"/lib{mvec,nsl,memusage,c_malloc_debug}*
rm -rf "$layer/app/packages/Crypto/SelfTest"

# What it imports at its start is compiled here, by the Python that runs there. Bytecode belongs to a source of a certain
# age: the one that everything in the image has.
find "$layer" -name '*.py' -type f -exec touch --date=@0 {} +
env --ignore-environment PYTHONHOME="$layer/usr" \
    "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" "$layer/usr/bin/python3.13" \
    -s -c 'import sys; sys.path.insert(0, sys.argv[1]); import probe' "$layer/app"
compgen -G "$layer/app/packages/dstack_sdk/__pycache__/*.pyc" >/dev/null || {
    echo "tests/guest-sdk/build-image.sh: Python compiled nothing" >&2
    exit 1
}
rm -rf "$layer/app/__pycache__"

"$here/../../scripts/pack-container-image.sh" "$layer" cloister.local/guest-sdk:1 "$1" \
    /usr/bin/python3.13 -B /app/probe.py
