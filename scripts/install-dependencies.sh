#!/bin/bash
# Installs what building, running or testing Cloister needs and this machine lacks, from the packages of
# Debian 12 or 13. Says what and why first. Does nothing when nothing is missing.
set -euo pipefail

usage() {
    echo "usage: scripts/install-dependencies.sh [run] [test] [chain] [release]" >&2
    exit 2
}
[ $# -gt 0 ] || set -- run

say() { echo "==> $*" >&2; }
die() {
    echo "scripts/install-dependencies.sh: $*" >&2
    exit 1
}

# What for | a file or command that shows that it is there | package | why
wanted() {
    cat <<'EOF'
run|gcc|gcc|C parts of crates (TLS, SQLite)
run|/usr/include/stdio.h|libc6-dev|C parts of crates
run|qemu-system-x86_64|qemu-system-x86|runs the virtual machines
run|dpkg-deb|dpkg|unpacks the packages of the guest image
run|tar|tar|packs the guest image
run|/usr/share/keyrings/debian-archive-keyring.gpg|debian-archive-keyring|checks the packages of the guest image
run|/etc/ssl/certs/ca-certificates.crt|ca-certificates|checks web servers
chain|node|nodejs|fetches the node of the development chain
chain|npm|npm|fetches the node of the development chain
test|g++|g++|the fuzzing engine
test|/usr/sbin/cryptsetup|cryptsetup-bin|makes the headers that the check of encrypted disks is tested with
test|node|nodejs|runs the compiler of the contracts
test|npm|npm|fetches the compiler of the contracts
test|python3|python3|a stand-in for the hypervisor in tests of the node
test|hey|hey|constant load in the bench of a rollout
test|ssh-keygen|openssh-client|signs approvals as people do
test|wrk|wrk|constant load for benches
release|wrk|wrk|load that the build is laid out for
test|pip3|python3-pip|fetches the published SDKs
test|/usr/lib/postgresql/*/bin/initdb|postgresql|tests of the PostgreSQL store (throw-away servers, no service)
EOF
}

is_there() {
    case $1 in
    /*) compgen -G "$1" >/dev/null ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "root is needed for: $*; run it yourself or install sudo"
    fi
}

install_packages() {
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends)
    if as_root "${apt[@]}" --no-remove "$@"; then
        return
    fi
    local removed
    removed=$(apt-get install --simulate --no-install-recommends "$@" 2>/dev/null | sed -n 's/^Remv \(\S*\).*/\1/p') || true
    say "apt can install these only by removing: ${removed:-nothing it would name}"
    # A qemu-utils from backports shares files with the emulator of the release; it is only tools.
    if [ "$removed" = qemu-utils ] || [ -n "${CLOISTER_ALLOW_REMOVE:-}" ]; then
        as_root "${apt[@]}" "$@"
    else
        die "nothing was changed; agree with CLOISTER_ALLOW_REMOVE=1, or install yourself: apt-get install $*"
    fi
}

check_rust() {
    local wanted found
    wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$(dirname "$0")/../Cargo.toml")
    command -v cargo >/dev/null || die "Rust is missing; install it from https://rustup.rs"
    found=$(cargo --version | cut -d' ' -f2)
    printf '%s\n%s\n' "$wanted" "$found" | sort --check=quiet --version-sort ||
        die "Rust $found is too old, $wanted is needed; run rustup update"
}

check_rust
missing=()
while IFS='|' read -r use sign package why; do
    for use_wanted in "$@"; do
        case $use_wanted in run | test | chain | release) ;; *) usage ;; esac
        if [ "$use" = "$use_wanted" ] && ! is_there "$sign"; then
            [ ${#missing[@]} -gt 0 ] || say "Missing packages:"
            say "  $package: $why"
            missing+=("$package")
        fi
    done
done < <(wanted)
[ ${#missing[@]} -gt 0 ] || exit 0

command -v apt-get >/dev/null || die "this is not Debian: install the packages above, as your system names them"
if [[ " ${missing[*]} " == *" postgresql "* ]] && [ ! -e /etc/postgresql-common ]; then
    # The tests start servers of their own; the package shall not start one as a service.
    as_root install -d /etc/postgresql-common/createcluster.d
    echo "create_main_cluster = false" | as_root tee /etc/postgresql-common/createcluster.d/cloister.conf >/dev/null
fi
as_root apt-get update || say "the package lists could not be refreshed; trying with those of before"
install_packages "${missing[@]}"
