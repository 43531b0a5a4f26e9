#!/bin/bash
# Makes the guest image in target/guest-images, or in CLOISTER_GUEST_IMAGES, unless the one there has the same
# inputs, and the image archive of the hello example. With --development also the development variant of it,
# which costs no time and no space.
#
# IMAGE_VERSION=X.Y.Z makes an image of that version, if need be another one of the same content.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly images=${CLOISTER_GUEST_IMAGES:-target/guest-images}
# Hidden, so that no node takes it for an image; in the same file system, so that moving it is atomic.
readonly scratch=$images/.build
# Images of each kind that are kept: former ones for CVMs made with them, and the newest.
readonly kept=4
readonly hello=examples/hello/hello.tar

say() { echo "==> $*" >&2; }

mkdir -p "$images"
# One at a time: two would give different images the same name.
exec 9>"$images/.lock"
flock 9

agent=$(images/build-agent.sh)
inputs=$(images/inputs.sh "$agent")
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)

# Images of a kind (a pattern for what follows the name), newest last.
built() {
    find "$images" -mindepth 2 -maxdepth 2 -path "$images/cloister-$1/digest.txt" -printf '%h\n' |
        sort --version-sort
}
newest() { built '[0-9]*' | tail -n 1; }

# CVMs need the very image that they were made with, so a changed image does not replace the former one:
# it gets a fourth number, and new CVMs take the newest.
next_version() {
    local newest base
    newest=$(newest)
    newest=${newest##*/cloister-}
    base=$(printf '%s\n' "$version" "$(cut -d. -f1-3 <<<"$newest")" | sort --version-sort | tail -n 1)
    case $newest in
    "$base") echo "$base.1" ;;
    "$base".*) echo "$base.$((${newest##*.} + 1))" ;;
    *) echo "$base" ;;
    esac
}

if [ -n "$(newest)" ] && [ "$(cat "$images/.inputs" 2>/dev/null)" = "$inputs" ]; then
    if [ -n "${IMAGE_VERSION-}" ] && [ ! -d "$images/cloister-$IMAGE_VERSION" ]; then
        images/variant.sh --of "$(newest)" --version "$IMAGE_VERSION" --output "$images/cloister-$IMAGE_VERSION"
    else
        say "the guest image is up to date: $(basename "$(newest)")"
    fi
else
    version=${IMAGE_VERSION:-$(next_version)}
    if [ -d "$images/cloister-$version" ]; then
        say "cloister-$version is there with other content, and CVMs may need it: choose another IMAGE_VERSION"
        exit 1
    fi
    say "making the guest image cloister-$version (the first time downloads about 100 MB of Debian packages)"
    rm -rf "$scratch"
    images/build.sh --agent "$agent" --output "$scratch" --version "$version"
    mv "$scratch" "$images/cloister-$version"
    echo "$inputs" >"$images/.inputs"
fi

if [ "${1-}" = --development ]; then
    production=$(newest)
    development=$images/cloister-dev-${production##*/cloister-}
    [ -d "$development" ] || images/variant.sh --of "$production" --kind development --output "$development"
fi
for kind in '[0-9]*' 'dev-[0-9]*'; do
    built "$kind" | head --lines="-$kept" | xargs --no-run-if-empty rm -r
done

if [ ! -f "$hello" ] || [ -n "$(find examples/hello -type f -newer "$hello")" ]; then
    examples/hello/build-image.sh "$hello"
fi
