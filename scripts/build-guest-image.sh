#!/bin/bash
# Makes the guest image in target/guest-images unless the one there has the same inputs, and the image
# archive of the hello example.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly images=target/guest-images
readonly scratch=target/guest-image-build
# Former images that are kept for CVMs made with them, and the newest.
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

# Newest last, by version.
built() { find "$images" -mindepth 2 -maxdepth 2 -name digest.txt -printf '%h\n' | sort --version-sort; }

# CVMs need the very image that they were made with, so a changed image does not replace the former one:
# it gets a fourth number, and new CVMs take the newest.
next_version() {
    local newest
    newest=$(built | sed -n "s/.*cloister-\($version\)/\1/p" | tail -n 1)
    case $newest in
    '') echo "$version" ;;
    "$version") echo "$version.1" ;;
    *) echo "$version.$((${newest##*.} + 1))" ;;
    esac
}

newest=$(built | tail -n 1)
if [ -n "$newest" ] && [ "$(cat "$images/.inputs" 2>/dev/null)" = "$inputs" ]; then
    say "the guest image is up to date: $(basename "$newest")"
else
    version=$(next_version)
    say "making the guest image cloister-$version (the first time downloads about 100 MB of Debian packages)"
    images/build.sh --agent "$agent" --output "$scratch" --version "$version"
    mv "$scratch" "$images/cloister-$version"
    echo "$inputs" >"$images/.inputs"
    built | head --lines="-$kept" | xargs --no-run-if-empty rm -r
fi

if [ ! -f "$hello" ] || [ -n "$(find examples/hello -type f -newer "$hello")" ]; then
    examples/hello/build-image.sh "$hello"
fi
