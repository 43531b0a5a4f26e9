# The initial RAM disk: the guest agent and the modules that it loads first. Sourced by build.sh.

# Kernel objects that modules.txt asks for, each after those that it needs, every one once.
boot_modules() {
    local module
    entries "$here/modules.txt" | while read -r module; do
        tool usr/sbin/modprobe --dirname "$root" --set-version "$release" --show-depends "$module" ||
            die "no kernel module $module in $release"
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }'
}

# Writes the module $1 to $2: decompressed and without its appended signature. Checking the signatures
# takes the guest seconds under emulation and proves nothing: the initial RAM disk is measured as a whole.
write_module() {
    local signed length size trailer='~Module signature appended~'
    tool usr/bin/xz --decompress --stdout "$1" >"$2"
    if [ "$(tail -c 28 "$2" | tr -d '\0')" = "$trailer" ]; then
        # Before the trailer stand 12 bytes of which the last 4 are the signature's length.
        size=$(stat -c %s "$2")
        signed=$((size - 28))
        length=$((0x$(tail -c 32 "$2" | head -c 4 | od -An -tx1 | tr -d ' \n')))
        truncate -s $((signed - 12 - length)) "$2"
    fi
}

# Writes the initial RAM disk to $1, uncompressed: it is small, and unpacking costs more than reading.
write_initrd() {
    local dir=$work/initrd object name
    say "writing the initial RAM disk"
    mkdir -p "$dir"/{dev,modules,proc,root,sys}
    install -m 755 "$agent" "$dir/init"
    boot_modules >"$work/modules"
    while read -r object; do
        name=$(basename "$object" .ko.xz)
        write_module "$object" "$dir/modules/$name.ko"
        echo "$name.ko"
    done <"$work/modules" >"$dir/modules/order"
    find "$dir" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    (cd "$dir" && find . | sort | tool usr/bin/cpio --quiet --create --format=newc --reproducible --owner=+0:+0) >"$1"
    rm "$work/modules"
}
