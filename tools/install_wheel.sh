#!/usr/bin/env bash
# Installs the newest wheel of a package in a folder into a fresh virtual environment that sees PYTHON's packages, without a network.
#
# usage: tools/install_wheel.sh ENVIRONMENT FOLDER [PACKAGE [PYTHON]]      PACKAGE: polyphase-cuda13 (default) or polyphase
set -euo pipefail

[ $# -ge 2 ] && [ $# -le 4 ] || { echo "usage: tools/install_wheel.sh ENVIRONMENT FOLDER [PACKAGE [PYTHON]]" >&2; exit 2; }
environment=$1
package=${3:-polyphase-cuda13}
python=${4:-python3}
option=
[ "$package" = polyphase ] || option=" --cuda"
wheel=$(find "$2" -maxdepth 1 -name "${package//-/_}-*.whl" 2>/dev/null | sort | tail -n 1)
[ -n "$wheel" ] || { echo "install_wheel: expected a wheel of $package in $2, which tools/wheel.sh$option makes; there is none" >&2; exit 1; }
rm -rf "$environment"
"$python" -m venv --system-site-packages "$environment"
# A PYTHON that is itself of a virtual environment hands on the system's packages only; this hands on its own too.
site=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
"$python" -c 'import site; print(*site.getsitepackages(), sep="\n")' >"$site/packages_of_parent.pth"
"$environment/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps "$wheel"
