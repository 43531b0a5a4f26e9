# What names and covers an image. Sourced by build.sh and variant.sh.

# The word on the kernel command line that makes a development image: a root shell on the serial console. The
# guest agent's console.rs says the same.
readonly development_word=cloister.console=shell

# JSON array of the packages in the guest, `name=version`.
package_array() {
    cat "$lists/kernel" "$lists/root" | while read -r _ deb; do
        dpkg-deb --show --showformat='${Package}=${Version}\n' "$cache/archives/$deb"
    done | sort | sed 's/.*/    "&",/; $s/,$//'
}

# The name of the image of kind $1 (production or development) and version $2.
image_name() {
    case $1 in
    production) echo "cloister-$2" ;;
    development) echo "cloister-dev-$2" ;;
    *) die "there is no kind of image called $1: production or development" ;;
    esac
}

sha384_of() { sha384sum "$1" | cut -d' ' -f1; }

# Writes metadata.json, measurement.json, sha256sum.txt and digest.txt for the image in $1, of kind $2 and version
# $3. $4 is the kernel command line of the production image, $5 the lines of the array of packages. The hash of
# sha256sum.txt names the image. measurement.json is what a launch measures: firmware, kernel, initial RAM disk,
# and the kernel command line, which binds the root file system by the root of its hash tree.
write_manifest() {
    local name cmdline=$4 is_dev=false
    name=$(image_name "$2" "$3")
    if [ "$2" = development ]; then
        cmdline+=" $development_word" is_dev=true
    fi
    cat >"$1/metadata.json" <<EOF
{
  "name": "$name",
  "version": "$3",
  "is_dev": $is_dev,
  "bios": "bios.bin",
  "kernel": "vmlinuz",
  "initrd": "initrd.img",
  "rootfs": "rootfs.erofs",
  "cmdline": "$cmdline",
  "packages": [
$5
  ]
}
EOF
    cat >"$1/measurement.json" <<EOF
{
  "firmware": "$(sha384_of "$1/bios.bin")",
  "kernel": "$(sha384_of "$1/vmlinuz")",
  "initrd": "$(sha384_of "$1/initrd.img")",
  "cmdline": "$cmdline"
}
EOF
    (cd "$1" && sha256sum bios.bin initrd.img measurement.json metadata.json rootfs.erofs vmlinuz >sha256sum.txt)
    sha256sum "$1/sha256sum.txt" | cut -d' ' -f1 >"$1/digest.txt"
    chmod 644 "$1"/*
}
