#!/usr/bin/env bash
# Gets what the tests of other machines talk to, where that is allowed and quick: an sshd and a SLURM from Debian's
# packages, and SkyPilot in an environment of its own. What cannot be had is left out; its tests are skipped.
set -euo pipefail

sky="${TMPDIR:-/tmp}/burnish-sky"
if [ ! -e "$sky/python" ]; then
  (
    rm -rf "$sky" && python3 -m venv "$sky" && timeout 300 "$sky/bin/pip" install --quiet skypilot
    printf '#!/bin/sh\nexec "%s/bin/python" "$@"\n' "$sky" > "$sky/python.new"
    chmod +x "$sky/python.new" && mv "$sky/python.new" "$sky/python" # complete from here on
  ) > /dev/null 2>&1 &
fi

missing=()
[ -x /usr/sbin/sshd ] || missing+=(openssh-server openssh-client)
[ -x /usr/sbin/slurmctld ] || missing+=(slurm-wlm)
[ "${#missing[@]}" -gt 0 ] || exit 0
[ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null || { echo "Not installed: ${missing[*]}"; exit 1; }
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 # no service is started: the tests start their own
timeout 60 apt-get update -qq > /dev/null
timeout 180 apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
