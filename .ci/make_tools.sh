#!/usr/bin/env bash
# The browser and the checker of alert rules that some tests drive, from Debian's packages. Without them those tests are
# skipped with the reason, so a person's machine is left alone: only `.ci/run` calls this.
set -euo pipefail

declare -A package=([chromium]=chromium [promtool]=prometheus)
missing=()
for program in "${!package[@]}"; do
    command -v "$program" >/dev/null || missing+=("${package[$program]}")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "tools: ${missing[*]} not found and cannot be installed here; the tests that need them will be skipped"
    exit 0
fi
echo "tools: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log"
    echo "tools: ${missing[*]} could not be installed; the tests that need them will be skipped"
fi
rm -f "$log"
