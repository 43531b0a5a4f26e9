#!/bin/bash
# Makes the newest guest image of target/guest-images once more, agent included, and compares: the same
# sources and packages must give the same hash.
set -euo pipefail
cd "$(dirname "$0")/.."

newest=$(find target/guest-images -mindepth 2 -maxdepth 2 -name digest.txt -printf '%h\n' | sort --version-sort | tail -n 1)
[ -n "$newest" ] || {
    echo "there is no guest image to compare with; run make image" >&2
    exit 1
}
again=$(mktemp -d target/guest-image-again.XXXXXX)
trap 'rm -rf "$again"' EXIT
images/build.sh --agent "$(images/build-agent.sh)" --output "$again/image" --version "${newest##*cloister-}"
if ! diff "$newest/sha256sum.txt" "$again/image/sha256sum.txt"; then
    echo "the guest image is not reproducible: these files differ" >&2
    exit 1
fi
echo "==> the guest image $(basename "$newest") is the same on a second build: $(cat "$newest/digest.txt")"
