#!/bin/bash
# Makes another image of the content of one: of the other kind, or of another version. Kernel, initial RAM disk,
# firmware and root file system are the same files, by hard links where the file system allows it; what names and
# covers them is new, so each variant has a hash of its own.
set -euo pipefail
export LC_ALL=C
umask 022

usage() {
    cat >&2 <<'EOF'
usage: images/variant.sh --of DIR --output DIR [--kind production|development] [--version X.Y.Z]

  --of DIR         the image to start from, as images/build.sh or this made it
  --output DIR     where the variant goes; must not exist
  --kind KIND      default: the same. A development image has a root shell on its serial console
  --version X.Y.Z  default: the same
EOF
    exit 2
}

here=$(cd "$(dirname "$0")" && pwd)
readonly here
of='' output='' kind='' version=''
while [ $# -gt 0 ]; do
    case $1 in
    --of | --output | --kind | --version)
        [ $# -ge 2 ] || usage
        declare "${1#--}=$2"
        shift
        ;;
    *) usage ;;
    esac
    shift
done
[ -n "$of" ] && [ -n "$output" ] || usage

# shellcheck source=lib/common.sh
. "$here/lib/common.sh"
# shellcheck source=lib/manifest.sh
. "$here/lib/manifest.sh"

is_intact() {
    cd "$1" && sha256sum --check --quiet sha256sum.txt &&
        [ "$(sha256sum <sha256sum.txt | cut -d' ' -f1)" = "$(cat digest.txt)" ]
}
# The member $1 of the metadata, which write_manifest wrote.
metadata() { sed -n "s/^  \"$1\": \"\{0,1\}\([^\"]*\)\"\{0,1\},\$/\1/p" "$of/metadata.json"; }

[ ! -e "$output" ] || die "$output exists already"
(is_intact "$of") >&2 || die "$of is no intact guest image; make one with images/build.sh"

was=production
[ "$(metadata is_dev)" = false ] || was=development
kind=${kind:-$was} version=${version:-$(metadata version)}
[[ $version =~ ^[0-9]+(\.[0-9]+){2,3}$ ]] || die "$version is no version: three or four numbers with dots between them"
cmdline=$(metadata cmdline)
packages=$(sed -n '/^  "packages": \[$/,/^  \]$/{//!p}' "$of/metadata.json")

# Beside the result, so that moving it there is atomic.
work=$(mktemp -d "$(dirname "$output")/.image.XXXXXX")
trap 'rm -rf "$work"' EXIT
for file in bios.bin initrd.img rootfs.erofs vmlinuz; do
    ln "$of/$file" "$work/$file" 2>/dev/null || cp --reflink=auto "$of/$file" "$work/$file"
done
write_manifest "$work" "$kind" "$version" "${cmdline% "$development_word"}" "$packages"
chmod 755 "$work"
mv --no-target-directory "$work" "$output"
say "guest image $(image_name "$kind" "$version") in $output: os_image_hash $(cat "$output/digest.txt")"
