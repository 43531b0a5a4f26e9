#!/bin/bash
# Makes the newest guest image of target/guest-images, or of CLOISTER_GUEST_IMAGES, once more and compares: the
# same agent, recipe and packages must give the same hash. Then boots it with one changed bit in its root file system, which the
# guest must refuse, and its development variant, whose serial console must answer.
#
# With --agent also builds the agent from nothing, in another directory, which must give the same bytes:
# some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

# A guest needs about 3 s to its root file system on an idle machine without hardware virtualisation.
readonly patience_s=120
readonly images=${CLOISTER_GUEST_IMAGES:-target/guest-images}

die() {
    echo "check-guest-image: $*" >&2
    exit 1
}

newest=$(find "$images" -mindepth 2 -maxdepth 2 -path '*/cloister-[0-9]*/digest.txt' -printf '%h\n' | sort --version-sort | tail -n 1)
[ -n "$newest" ] || die "there is no guest image to compare with; run make image"
scratch=$(mktemp -d target/guest-image-again.XXXXXX)
hypervisor=''
# shellcheck disable=SC2317 # called by the trap
clean_up() {
    [ -z "$hypervisor" ] || kill "$hypervisor" 2>/dev/null || true
    rm -rf "$scratch"
}
trap clean_up EXIT

agent=$(images/build-agent.sh)
[ "$(cat "$images/.inputs")" = "$(images/inputs.sh "$agent")" ] ||
    die "the newest guest image was made from other sources than are here now; run make image"
if [ "${1-}" = --agent ]; then
    again=$(CARGO_TARGET_DIR=$scratch/target images/build-agent.sh)
    cmp "$agent" "$again" || die "the guest agent is not reproducible"
    echo "==> the guest agent is the same on a second build: $(sha256sum <"$agent" | cut -d' ' -f1)"
fi
images/build.sh --agent "$agent" --output "$scratch/image" --version "${newest##*cloister-}"
if ! diff "$newest/sha256sum.txt" "$scratch/image/sha256sum.txt"; then
    die "the guest image is not reproducible: these files differ"
fi
echo "==> the guest image $(basename "$newest") is the same on a second build: $(cat "$newest/digest.txt")"

# The development image says that it is one, in what is measured, and nothing else differs.
development=$scratch/development
images/variant.sh --of "$scratch/image" --kind development --output "$development"
content() { grep -v -e measurement -e metadata "$1/sha256sum.txt"; }
diff <(content "$newest") <(content "$development") ||
    die "the development image has other files than the production image"
! cmp --silent "$newest/measurement.json" "$development/measurement.json" ||
    die "the development image is measured as the production image is"
images/variant.sh --of "$development" --kind production --output "$scratch/back"
cmp "$newest/digest.txt" "$scratch/back/digest.txt" ||
    die "the development image does not lead back to the production image"
published=$images/cloister-dev-${newest##*/cloister-}
[ ! -d "$published" ] || cmp "$published/digest.txt" "$development/digest.txt" ||
    die "$published is not the development variant of $newest"
echo "==> its development variant is reproducible, too: $(cat "$development/digest.txt")"

# Boots the image $1 with the root file system $2 and waits until the console holds the text $3. Directly:
# the node would refuse the files before a guest sees them. Meanwhile it types $4, again and again.
boots_until() {
    local image=$1 console=$scratch/console keyboard=$scratch/keyboard deadline=$((SECONDS + patience_s))
    mkfifo "$keyboard"
    # For reading and writing, so that neither end waits for the other.
    exec 3<>"$keyboard"
    # CPU and last word as for the node's emulated machines, which says why.
    qemu-system-x86_64 -M q35,hpet=off -accel tcg,thread=single -cpu max,-erms -smp 1 -m 512 \
        -nodefaults -no-user-config -no-reboot -display none \
        -chardev stdio,id=console,signal=off -serial chardev:console \
        -bios "$image/bios.bin" -kernel "$image/vmlinuz" -initrd "$image/initrd.img" \
        -append "$(sed -n 's/^  "cmdline": "\(.*\)",$/\1/p' "$image/metadata.json") clearcpuid=cx16" \
        -blockdev "driver=raw,node-name=root,read-only=on,file.driver=file,file.filename=$2" \
        -device virtio-blk-pci,drive=root,serial=cloister-root -device virtio-rng-pci <&3 >"$console" 3>&- &
    hypervisor=$!
    until grep --quiet --fixed-strings "$3" "$console" 2>/dev/null; do
        if [ $SECONDS -ge $deadline ] || ! kill -0 "$hypervisor" 2>/dev/null; then
            # It may have said it last of all.
            grep --quiet --fixed-strings "$3" "$console" && break
            cat "$console" >&2
            die "the guest did not say: $3"
        fi
        [ -z "${4-}" ] || echo "$4" >&3
        sleep 0.5
    done
    kill "$hypervisor" 2>/dev/null || true
    wait "$hypervisor" 2>/dev/null || true
    hypervisor=''
    exec 3>&-
    rm "$console" "$keyboard"
}

if ! command -v qemu-system-x86_64 >/dev/null; then
    echo "SKIPPED: whether a changed root file system is refused, and a development image has a shell: qemu-system-x86_64 is not installed" >&2
    exit
fi
# There is no configuration disk here; whoever misses it has entered its root file system.
boots_until "$newest" "$newest/rootfs.erofs" "no block device has the serial cloister-config"
# The first byte of an EROFS image means nothing to the file system: only the hash tree covers it.
cp "$newest/rootfs.erofs" "$scratch/rootfs.erofs"
[ "$(head -c 1 "$scratch/rootfs.erofs" | od -An -tu1 | tr -d ' ')" = 0 ] || die "the first byte of the root file system is not 0"
printf '\1' | dd of="$scratch/rootfs.erofs" bs=1 conv=notrunc status=none
boots_until "$newest" "$scratch/rootfs.erofs" "the root file system is not the one that the kernel command line names"
echo "==> a guest refuses its root file system when one bit of it is changed"
# What is typed does not hold what is answered. How far the root disk is read on: power_on/root_disk.rs of the guest agent;
# the clock, and that no timer is checked: the kernel command line; what an emulated kernel does without: command_line.rs of the node.
boots_until "$development" "$development/rootfs.erofs" "a shell of root: 42, 2048 KiB at a time, clock: tsc, no_timer_check, 0 times cx16." \
    'echo "a shell of $(whoami): $((6 * 7)), $(cat /sys/block/dm-0/queue/read_ahead_kb) KiB at a time, clock: $(cat /sys/devices/system/clocksource/clocksource0/current_clocksource), $(grep -o no_timer_check /proc/cmdline), $(grep -cw cx16 /proc/cpuinfo) times cx16."'
echo "==> a development image has a root shell on its serial console, reads its root disk in large pieces, has a quick clock, and checks no timer"
