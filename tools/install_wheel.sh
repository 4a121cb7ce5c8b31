#!/usr/bin/env bash
# Installs the newest wheel of polyphase-cuda13 in a folder into a fresh virtual environment that sees the system's packages, without a network.
#
# usage: tools/install_wheel.sh ENVIRONMENT FOLDER
set -euo pipefail

[ $# = 2 ] || { echo "usage: tools/install_wheel.sh ENVIRONMENT FOLDER" >&2; exit 2; }
wheel=$(find "$2" -maxdepth 1 -name 'polyphase_cuda13-*.whl' 2>/dev/null | sort | tail -n 1)
[ -n "$wheel" ] || { echo "install_wheel: expected a wheel of polyphase-cuda13 in $2, which tools/wheel.sh --cuda makes; there is none" >&2; exit 1; }
rm -rf "$1"
python3 -m venv --system-site-packages "$1"
"$1/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps "$wheel"
