#!/bin/bash
# Makes a production guest image from Debian packages and the guest agent: the same inputs give the same bytes
# on any host. variant.sh makes the development image, and other versions, of it. See README.md.
set -euo pipefail
export LC_ALL=C TZ=UTC
umask 022

usage() {
    cat >&2 <<'EOF'
usage: images/build.sh --agent FILE --output DIR [--cache DIR] [--version X.Y.Z] [--refresh] [--check]

  --agent FILE     the static guest agent (made by images/build-agent.sh)
  --output DIR     where the image's files go; README.md lists them
  --cache DIR      keeps downloaded packages; with a full cache no network is used
                   (default: ${XDG_CACHE_HOME:-~/.cache}/cloister/images)
  --version X.Y.Z  version of the image (default: the workspace's)
  --refresh        ask the archive for newer packages although the cache is complete
  --check          build twice and compare

CLOISTER_DEBIAN_MIRROR replaces http://deb.debian.org.
EOF
    exit 2
}

here=$(cd "$(dirname "$0")" && pwd)
readonly here
# One moment for every time stamp, so that no clock enters the image.
export SOURCE_DATE_EPOCH=1767225600

agent='' output='' refresh='' check=''
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/cloister/images
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' "$here/../Cargo.toml")
while [ $# -gt 0 ]; do
    case $1 in
    --refresh) refresh=yes ;;
    --check) check=yes ;;
    --agent | --output | --cache | --version)
        [ $# -ge 2 ] || usage
        declare "${1#--}=$2"
        shift
        ;;
    *) usage ;;
    esac
    shift
done
[ -n "$agent" ] && [ -n "$output" ] && [ -n "$version" ] || usage

# shellcheck source=lib/common.sh
. "$here/lib/common.sh"
# shellcheck source=lib/packages.sh
. "$here/lib/packages.sh"
# shellcheck source=lib/rootfs.sh
. "$here/lib/rootfs.sh"
# shellcheck source=lib/initrd.sh
. "$here/lib/initrd.sh"
# shellcheck source=lib/manifest.sh
. "$here/lib/manifest.sh"

# Builds into the empty directory $1.
build() {
    local out=$1
    root=$work/root tools=$work/tools kernel=$work/kernel
    mkdir -p "$root" "$tools" "$kernel"
    unpack_packages
    assemble_rootfs
    write_rootfs_image "$out/rootfs.erofs"
    append_hash_tree "$out/rootfs.erofs"
    write_initrd "$out/initrd.img"
    install -m 644 "$kernel/boot/vmlinuz-$release" "$out/vmlinuz"
    install -m 644 "$tools/usr/share/seabios/bios-256k.bin" "$out/bios.bin"
    # A CPU that QEMU emulates has a steady time stamp counter and does not say so. Without it each look at the clock is
    # an access to a device; Go programs look all the time. Whether the timer interrupts, a kernel finds out by that counter,
    # within milliseconds: on a busy host an emulated one does not in time, and the kernel gives up. Under KVM it never asks.
    local cmdline="console=ttyS0 quiet panic=-1 reboot=t tsc=reliable no_timer_check net.ifnames=0"
    cmdline+=" cloister.rootfs_verity=$root_hash cloister.rootfs_blocks=$root_blocks"
    write_manifest "$out" production "$version" "$cmdline" "$(package_array)"
    chmod -R u+w "$work" && rm -rf "$root" "$tools" "$kernel" "$work/initrd"
}

[ -f "$agent" ] || die "$agent is not a file; make the guest agent with images/build-agent.sh"
for tool in apt-get apt-cache dpkg-deb sha256sum tar; do
    command -v "$tool" >/dev/null || die "$tool is missing; this needs a Debian host (packages apt, dpkg, coreutils, tar)"
done
mkdir -p "$cache" "$(dirname "$output")"
cache=$(cd "$cache" && pwd)
output=$(cd "$(dirname "$output")" && pwd)/$(basename "$output")
# Beside the result, so that moving it there is atomic.
work=$(mktemp -d "$(dirname "$output")/.image.XXXXXX")
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

fetch_image_packages
mkdir "$work/out"
build "$work/out"
if [ -n "$check" ]; then
    mkdir "$work/again"
    say "building a second time"
    build "$work/again"
    diff -r "$work/out" "$work/again" >&2 || die "two builds differ; the image is not reproducible"
    say "both builds are the same"
fi
rm -rf "$output"
mv "$work/out" "$output"
say "guest image cloister-$version in $output: os_image_hash $(cat "$output/digest.txt")"
