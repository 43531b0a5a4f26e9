#!/bin/bash
# Makes the guest image in target/guest-images unless the one there has the same inputs, and the image
# archive of the hello example.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly images=target/guest-images
readonly scratch=target/guest-image-build
readonly hello=examples/hello/hello.tar

say() { echo "==> $*" >&2; }

agent=$(images/build-agent.sh)
inputs=$(find images "$agent" -type f -print0 | sort --zero-terminated | xargs --null sha256sum | sha256sum | cut -d' ' -f1)
name=cloister-$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)

if [ "$(cat "$images/.inputs" 2>/dev/null)" = "$inputs" ] && [ -f "$images/$name/digest.txt" ]; then
    say "the guest image is up to date"
else
    say "making the guest image $name (the first time downloads about 100 MB of Debian packages)"
    images/build.sh --agent "$agent" --output "$scratch"
    mkdir -p "$images"
    # CVMs that were made with the former image need it for their next start: a hash names one image.
    rm -rf "${images:?}/$name"
    mv "$scratch" "$images/$name"
    echo "$inputs" >"$images/.inputs"
fi

[ -f "$hello" ] || examples/hello/build-image.sh "$hello"
