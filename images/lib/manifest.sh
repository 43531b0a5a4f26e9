# What names and covers an image. Sourced by build.sh.

# JSON array of the packages in the guest, `name=version`.
package_array() {
    cat "$lists/kernel" "$lists/root" | while read -r _ deb; do
        dpkg-deb --show --showformat='${Package}=${Version}\n' "$cache/archives/$deb"
    done | sort | sed 's/.*/    "&",/; $s/,$//'
}

sha384_of() { sha384sum "$1" | cut -d' ' -f1; }

# Writes metadata.json, measurement.json, sha256sum.txt and digest.txt for the image in $1. The hash of
# sha256sum.txt names the image. measurement.json is what a launch measures: firmware, kernel, initial RAM
# disk, and the kernel command line, which binds the root file system by the root of its hash tree.
write_manifest() {
    local cmdline="console=ttyS0 quiet panic=-1 reboot=t net.ifnames=0"
    cmdline+=" cloister.rootfs_verity=$root_hash cloister.rootfs_blocks=$root_blocks"
    cat >"$1/metadata.json" <<EOF
{
  "name": "cloister-$version",
  "version": "$version",
  "is_dev": false,
  "bios": "bios.bin",
  "kernel": "vmlinuz",
  "initrd": "initrd.img",
  "rootfs": "rootfs.erofs",
  "cmdline": "$cmdline",
  "packages": [
$(package_array)
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
