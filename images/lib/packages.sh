# Getting Debian packages without touching the host's own package system. Sourced by build.sh and fetch-packages.sh.

readonly keyring=/usr/share/keyrings/debian-archive-keyring.gpg
readonly suite=trixie

# Names of the packages with use $1 in packages.txt.
packages() { entries "$here/packages.txt" | awk -v use="$1" '$1 == use { print $2 }'; }

# A private apt: own sources, own state, an empty list of installed packages. Needs no privileges.
configure_apt() {
    local apt=$cache/apt mirror=${CLOISTER_DEBIAN_MIRROR:-http://deb.debian.org}
    [ -f "$keyring" ] || die "$keyring is missing; install the package debian-archive-keyring"
    mkdir -p "$apt"/etc/{apt.conf.d,preferences.d} "$apt/state/lists/partial" "$apt/cache" "$cache/archives/partial"
    : >"$apt/state/status"
    {
        echo "deb [signed-by=$keyring] $mirror/debian $suite main"
        echo "deb [signed-by=$keyring] $mirror/debian $suite-updates main"
        echo "deb [signed-by=$keyring] $mirror/debian-security $suite-security main"
    } >"$apt/etc/sources.list"
    {
        # The host's proxy is the one setting of its apt that counts here too.
        apt-config dump --format '%F "%v";%n' Acquire::http::Proxy 2>/dev/null || true
        cat <<EOF
Dir "$apt";
Dir::State "state";
Dir::State::status "$apt/state/status";
Dir::Cache "cache";
Dir::Cache::archives "$cache/archives";
Dir::Etc "etc";
Dir::Etc::sourcelist "sources.list";
Dir::Etc::sourceparts "-";
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
EOF
    } >"$apt/apt.conf"
    export APT_CONFIG=$apt/apt.conf
}

# Reads what the archive has today.
update_apt() {
    say "packages: asking the Debian archive"
    apt-get update -qq || die "cannot reach the Debian archive; check the network, http_proxy and CLOISTER_DEBIAN_MIRROR"
}

# The kernel package that the meta package stands for today, and the meta package itself.
kernel_packages() {
    apt-cache depends --important --installed=false "$(packages kernel)" 2>/dev/null |
        sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p'
}

# Names the files of the packages "$@" and of everything they depend on, without those omitted.
closure_files() {
    apt-get install -qq --simulate "$@" |
        sed -n 's/^Inst \(\S*\) (\(\S*\) .*\[\(\S*\)\]).*/\1 \2 \3/p' |
        awk 'NR == FNR { omit[$1]; next } !($1 in omit) { gsub(":", "%3a", $2); print $1 "_" $2 "_" $3 ".deb" }' \
            <(packages omit) - | sort
}

# Downloads the packages named after $1 with everything they depend on, and writes the checksums of the
# files to $1.
fetch_closure() {
    local list=$1 files
    shift
    files=$(closure_files "$@") || die "cannot resolve $*: see apt's message above"
    apt-get install -qq --yes --download-only "$@" >/dev/null || die "cannot download $*: see apt's message above"
    (cd "$cache/archives" && xargs sha256sum <<<"$files") >"$list"
}

# Downloads the package $2 alone and writes the checksum of its file to $1.
fetch_alone() {
    # Alone in a directory: the cache can hold other versions.
    local new
    new=$(mktemp --directory "$cache/archives/new.XXXXXX")
    (cd "$new" && apt-get download -qq "$2") || die "cannot download $2: see apt's message above"
    (cd "$new" && sha256sum -- *.deb) >"$1"
    mv "$new"/*.deb "$cache/archives/"
    rmdir "$new"
}

# Makes sure that the cache holds all packages; $lists names their lists of files afterwards.
fetch_image_packages() {
    local key
    key=$({ echo "$suite"; entries "$here/packages.txt"; } | sha256sum | cut -c1-16)
    lists=$cache/lists-$key
    if [ -z "$refresh" ] && [ -d "$lists" ] &&
        (cd "$cache/archives" && cat "$lists"/* | sha256sum --check --quiet >/dev/null 2>&1); then
        say "packages: all in $cache"
        return
    fi
    configure_apt
    update_apt
    rm -rf "$lists" "$lists.new"
    mkdir "$lists.new"
    local kernel_package
    kernel_package=$(kernel_packages)
    [ -n "$kernel_package" ] || die "$(packages kernel) is not in the Debian archive"
    fetch_alone "$lists.new/kernel" "$kernel_package"
    # shellcheck disable=SC2046 # one word per package
    fetch_closure "$lists.new/root" $(packages root)
    # shellcheck disable=SC2046
    fetch_closure "$lists.new/tools" $(packages tools)
    mv "$lists.new" "$lists"
    say "packages: $(cat "$lists"/* | wc -l) downloaded"
}

# Unpacks each group of packages into the directory of its name, without running anything of theirs.
unpack_packages() {
    local group deb
    say "unpacking packages"
    for group in root tools kernel; do
        while read -r _ deb; do
            dpkg-deb --fsys-tarfile "$cache/archives/$deb" |
                tar -C "$work/$group" -xf - --no-same-owner --preserve-permissions --keep-directory-symlink
        done <"$lists/$group"
    done
    release=$(basename "$kernel"/usr/lib/modules/*)
    [ -f "$kernel/boot/vmlinuz-$release" ] || die "the kernel package holds no kernel"
}

# Runs the tool $1 (a path in the tools' packages) with the libraries that came with it, so that the
# result does not depend on what the host has.
tool() {
    local program=$tools/$1 libraries=$tools/usr/lib/x86_64-linux-gnu
    shift
    "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" --argv0 "$(basename "$program")" "$program" "$@"
}
