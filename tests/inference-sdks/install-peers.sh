#!/bin/bash
# Installs the inference gateways that others publish, to be measured beside ours, below target/inference-peers. Only
# the bench needs them. Does nothing when they are there. Runs no script of the packages.
set -euo pipefail
cd "$(dirname "$0")/../.."

into=target/inference-peers
portkey=1.15.2
litellm=1.80.0
if [ -e "$into/installed" ] && [ "$(cat "$into/installed")" = "$portkey $litellm" ]; then
    exit 0
fi
echo "==> installing the inference gateways that are measured beside ours below $into" >&2
rm -rf "$into"
mkdir -p "$into"
(cd "$into" && npm install --ignore-scripts --no-audit --no-fund --loglevel=error "@portkey-ai/gateway@$portkey" >/dev/null)
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-compile \
    --only-binary :all: "litellm[proxy]==$litellm" --target "$into/python"
# Last: an installation that breaks off is begun anew.
echo "$portkey $litellm" >"$into/installed"
