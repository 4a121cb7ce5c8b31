#!/usr/bin/env bash
# Installs what the Python package is built and tested with (tools/python_requirements.txt) into a virtual environment. Says nothing if
# all of it is there; where it cannot be had, one line says why, and it exits 1.
#
# usage: tools/python_setup.sh [PYTHON]      PYTHON of a virtual environment; .venv/bin/python if none is given
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${1:-.venv/bin/python}
requirements=tools/python_requirements.txt

die() {
  echo "$*"
  exit 1
}

[ -x "$python" ] || die "there is no $python: Meson is the system's, which has no virtual environment"
mark=$("$python" -c 'import sys; print(sys.prefix)')/polyphase_requirements
if cmp -s $requirements "$mark"; then exit; fi
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || die "$("$python" --version) is older than Python 3.10"
"$python" -c 'import sysconfig, pathlib; pathlib.Path(sysconfig.get_paths()["include"], "Python.h").stat()' 2>/dev/null ||
  die "$python has no header Python.h; install python3-dev"
said=$("$python" -m pip install --quiet --disable-pip-version-check --retries 1 --only-binary :all: --require-hashes -r $requirements 2>&1) ||
  die "pip cannot install $requirements: $(tail -n 1 <<<"$said")"
cp $requirements "$mark"
