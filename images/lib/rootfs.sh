# The guest's root file system. Sourced by build.sh.

# Identifies the file system to people only; fixed, so that it is reproducible.
readonly rootfs_uuid=c1015fe2-0000-4000-8000-000000000001
# Bytes of a block of the file system and of its hash tree; the guest agent's power_on/root_disk.rs says
# the same.
readonly block_bytes=4096

# Turns the unpacked packages into the guest's root: configuration that maintainer scripts would have
# made, ours on top, what is not needed away.
assemble_rootfs() {
    say "assembling the root file system"
    mkdir -p "$root/usr/lib/modules"
    cp -a "$kernel/usr/lib/modules/$release" "$root/usr/lib/modules/"
    make_system_files
    entries "$here/exclude.txt" | while read -r pattern; do
        # shellcheck disable=SC2086 # the pattern is meant to expand
        (cd "$root" && rm -rf -- $pattern)
    done
    (cd "$here/rootfs" && find . -type f) | while read -r file; do
        mode=644
        [ ! -x "$here/rootfs/$file" ] || mode=755
        install -D -m "$mode" "$here/rootfs/$file" "$root/$file"
    done
    tool usr/sbin/depmod --basedir "$root" "$release"
    check_libraries
}

# Files and links that packages make when they are installed.
make_system_files() {
    install -D -m 644 "$root/usr/share/base-passwd/passwd.master" "$root/etc/passwd"
    install -D -m 644 "$root/usr/share/base-passwd/group.master" "$root/etc/group"
    mkdir -p "$root/etc/ssl/certs" "$root/data" "$root/run" "$root/tmp" "$root/dev" "$root/proc" "$root/sys"
    find "$root/usr/share/ca-certificates" -name '*.crt' | sort | xargs cat >"$root/etc/ssl/certs/ca-certificates.crt"
    ln -sf ../libexec/docker/cli-plugins/docker-compose "$root/usr/bin/docker-compose"
    ln -sf mawk "$root/usr/bin/awk"
    ln -sf /proc/mounts "$root/etc/mtab"
    rm -f "$root/etc/containers/registries.conf"
    # Written by the guest agent on every boot.
    local file
    for file in resolv.conf hosts hostname containers/registries.conf; do
        ln -sf "/run/cloister/$(basename "$file")" "$root/etc/$file"
    done
    # Where programs made for the public platform look for what the application was given.
    ln -sfn data/app "$root/dstack"
    ln -sfn /run "$root/var/run"
    ln -sfn usr/share/zoneinfo/Etc/UTC "$root/etc/localtime"
}

# Every program must find its libraries here: what was omitted was not needed. What the host happens to
# have does not count.
check_libraries() {
    local libraries=$root/usr/lib/x86_64-linux-gnu missing
    missing=$(find "$root"/usr/{bin,sbin,libexec,lib/podman} -type f -perm -100 | while read -r program; do
        [ "$(head -c 4 "$program" | tail -c 3)" = ELF ] || continue
        "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" --list "$program" |
            awk -v ours="$libraries/" -v program="$(basename "$program")" \
                '$2 == "=>" && index($3, ours) != 1 { print program " needs " $1 }'
    done 2>/dev/null) # static programs have no list
    [ -z "$missing" ] || die "libraries are missing in the root file system:
$missing"
}

# Writes the root file system to $1. It goes through a sorted archive, so that neither the order in
# which this host lists directories nor its owners enter the image. It is not compressed: unpacking the
# engine's large programs would cost an emulated guest more than reading them does.
write_rootfs_image() {
    say "writing the root file system image"
    tar -C "$root" --create --format=posix --sort=name --owner=0 --group=0 --numeric-owner \
        --mtime="@$SOURCE_DATE_EPOCH" --pax-option=delete=atime,delete=ctime,delete=mtime . >"$work/root.tar"
    tool usr/bin/mkfs.erofs --quiet -x-1 -T "$SOURCE_DATE_EPOCH" --all-root -U "$rootfs_uuid" \
        --tar=f "$1" "$work/root.tar" >&2
    rm "$work/root.tar"
}

# Appends the hash tree to the root file system image $1. Sets $root_blocks, the blocks of the file system,
# after which the tree begins, and $root_hash, the root of the tree. No salt: it would only make equal
# blocks of different images look different. No header: the guest knows the parameters.
append_hash_tree() {
    local bytes
    say "hashing the root file system"
    bytes=$(stat -c %s "$1")
    [ $((bytes % block_bytes)) = 0 ] || die "the root file system has $bytes bytes, not whole blocks"
    root_blocks=$((bytes / block_bytes))
    root_hash=$(OPENSSL_CONF=/dev/null tool usr/sbin/veritysetup format "$1" "$1" --no-superblock --format=1 \
        --hash=blake2b-512 --salt=- --data-block-size=$block_bytes --hash-block-size=$block_bytes \
        --data-blocks="$root_blocks" --hash-offset="$bytes" | sed -n 's/^Root hash:[[:space:]]*\([0-9a-f]*\)$/\1/p')
    [ ${#root_hash} = 128 ] || die "the hash tree of the root file system could not be made"
}
