# What names and covers an image. Sourced by build.sh.

# JSON array of the packages in the guest, `name=version`.
package_array() {
    cat "$lists/kernel" "$lists/root" | while read -r _ deb; do
        dpkg-deb --show --showformat='${Package}=${Version}\n' "$cache/archives/$deb"
    done | sort | sed 's/.*/    "&",/; $s/,$//'
}

# Writes metadata.json, sha256sum.txt and digest.txt for the image in $1. The hash of sha256sum.txt names
# the image. The kernel command line in metadata.json names the root file system once more, for the guest.
write_manifest() {
    local rootfs_hash rootfs_bytes
    rootfs_hash=$(sha256sum "$1/rootfs.erofs" | cut -d' ' -f1)
    rootfs_bytes=$(stat -c %s "$1/rootfs.erofs")
    cat >"$1/metadata.json" <<EOF
{
  "name": "cloister-$version",
  "version": "$version",
  "is_dev": false,
  "kernel": "vmlinuz",
  "initrd": "initrd.img",
  "rootfs": "rootfs.erofs",
  "cmdline": "console=ttyS0 quiet panic=-1 reboot=t net.ifnames=0 cloister.rootfs_sha256=$rootfs_hash cloister.rootfs_bytes=$rootfs_bytes",
  "packages": [
$(package_array)
  ]
}
EOF
    (cd "$1" && sha256sum initrd.img metadata.json rootfs.erofs vmlinuz >sha256sum.txt)
    sha256sum "$1/sha256sum.txt" | cut -d' ' -f1 >"$1/digest.txt"
    chmod 644 "$1"/*
}
