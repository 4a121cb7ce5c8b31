#!/usr/bin/env bash
# Builds a wheel of the Python package and tests it, installed in a fresh virtual environment, away from the source tree. The last line
# says `N passed, N failed, N skipped`; exits 1 where one failed. Wheels are left in dist/.
#
# usage: tools/wheel.sh [--cuda] [--python PYTHON] [--no-index FOLDER]
#   --cuda            polyphase-cuda13, for sm_80, sm_90a and, through PTX, later GPUs; else polyphase, for the CPU
#   --python PYTHON   the CPython to build for (python3); from 3.12 on the wheel is one for that version and all later ones
#   --no-index FOLDER no build and no network: tests the wheel in FOLDER, in an environment that sees the system's packages
#                     (NumPy, PyTorch); pytest is installed from FOLDER if the system has none
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

cuda=no
python=python3
folder=
while [ $# -gt 0 ]; do
  case $1 in
    --cuda) cuda=yes ;;
    --python) python=${2:?wheel: --python needs a PYTHON} && shift ;;
    --no-index) folder=$(realpath "${2:?wheel: --no-index needs a FOLDER}") && shift ;;
    -h | --help)
      sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' tools/wheel.sh
      exit 0
      ;;
    *)
      echo "wheel: unknown argument $1 (known: --cuda --python --no-index --help)" >&2
      exit 2
      ;;
  esac
  shift
done

die() {
  echo "wheel: $*" >&2
  exit 1
}

name=polyphase
[ $cuda = no ] || name=polyphase-cuda13
tree=build-wheel/$name
version=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])') || die "$python does not run"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
counts=$scratch/counts
touch "$counts"

pass() { echo "1 passed, 0 failed, 0 skipped" >>"$counts"; }
fail() {
  echo "failed: $*"
  echo "0 passed, 1 failed, 0 skipped" >>"$counts"
}
skip() {
  echo "skipped: $*"
  echo "0 passed, 0 failed, 1 skipped" >>"$counts"
}

# The tree without what Git ignores, under the wheel's name; the build folders of earlier calls stay in it.
copy_tree() {
  mkdir -p "$tree"
  find "$tree" -mindepth 1 -maxdepth 1 ! -name 'build-*' -exec rm -rf {} +
  git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- --ignore-failed-read -cf - | tar -xf - -C "$tree"
  sed -i "s/^name = \"polyphase\"/name = \"$name\"/" "$tree/pyproject.toml"
}

# add_jax PYTHON: installs JAX into PYTHON's environment, or says why it cannot. polyphase.jax is built with its headers.
add_jax() {
  "$1" -m pip install --quiet --disable-pip-version-check --retries 1 --only-binary :all: --require-hashes -r tools/jax_requirements.txt \
    >"$scratch/jax.log" 2>&1 || { tail -n 1 "$scratch/jax.log" && return 1; }
}

build() {
  local environment=$root/build-wheel/$version-env arguments=() built=$scratch/built
  [ -x "$environment/bin/python" ] || "$python" -m venv "$environment" || die "$python -m venv failed; install python3-venv"
  local reason
  reason=$(tools/python_setup.sh "$environment/bin/python") || die "$reason"
  reason=$(add_jax "$environment/bin/python") || skip "polyphase.jax, which this wheel lacks: JAX cannot be installed: $reason"
  copy_tree
  if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then
    arguments+=(-Csetup-args=-Dpython.allow_limited_api=true)
  fi
  [ $cuda = no ] || arguments+=(-Csetup-args=-Dcuda=enabled "-Csetup-args=-Dgpu_archs=80,90a")
  local compiler=${CXX:-c++}
  if command -v ccache >/dev/null && [[ $compiler != ccache* ]]; then compiler="ccache $compiler"; fi
  local log=$scratch/log
  (
    cd "$tree"
    PATH=$environment/bin:$PATH CXX=$compiler "$environment/bin/python" -m pip wheel . --quiet --disable-pip-version-check \
      --no-build-isolation --no-deps --wheel-dir "$built" -Cbuild-dir="build-$version" "${arguments[@]}"
  ) >"$log" 2>&1 || { tail -n 40 "$log" >&2; die "the wheel was not built; the errors are above"; }
  # libgomp goes into the wheel; the driver and cuBLAS stay outside.
  PATH=$environment/bin:$PATH "$environment/bin/auditwheel" repair --wheel-dir "$scratch/repaired" --exclude 'libcublas*' \
    --exclude libcuda.so.1 "$built"/*.whl >"$log" 2>&1 || { cat "$log" >&2; die "auditwheel refuses the wheel"; }
  mkdir -p dist
  wheel=dist/$(basename "$scratch"/repaired/*.whl)
  cp "$scratch"/repaired/*.whl dist/
  pass
}

check_abi3() {
  local environment=build-wheel/abi3-env
  case $wheel in
    *-abi3-*) ;;
    *)
      skip "abi3audit: $("$python" --version) makes a wheel for itself alone; one for all later versions needs --python with CPython 3.12"
      return
      ;;
  esac
  if ! [ -x $environment/bin/abi3audit ]; then
    "$python" -m venv $environment
    $environment/bin/pip install --quiet --disable-pip-version-check --retries 1 abi3audit==0.0.26 >/dev/null 2>&1 || true
  fi
  if ! [ -x $environment/bin/abi3audit ]; then
    skip "abi3audit: pip cannot install it"
  elif $environment/bin/abi3audit --strict "$wheel"; then
    pass
  else
    fail "abi3audit: the extension uses more than the stable ABI"
  fi
}

# Every wheel is small enough for a package index, and holds one library of ours.
check_size() {
  local bytes
  bytes=$(stat -c %s "$wheel")
  echo "wheel: $(basename "$wheel"), $((bytes / 1000)) kB"
  if [ "$bytes" -lt 60000000 ]; then pass; else fail "the wheel has $bytes bytes, 60 MB are allowed"; fi
}

install_and_test() {
  local environment=$scratch/env
  if [ -n "$folder" ]; then
    tools/install_wheel.sh "$environment" "$folder" "$name" "$python" || die "the wheel cannot be installed; the error is above"
    "$environment/bin/python" -c 'import pytest' 2>/dev/null ||
      "$environment/bin/pip" install --quiet --disable-pip-version-check --no-index --find-links "$folder" pytest ||
      die "this machine has no pytest, and $folder has no wheels of it"
  else
    "$python" -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r tools/python_requirements.txt
    add_jax "$environment/bin/python" >/dev/null || true # then its tests are skipped, with the reason
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps "$wheel"
  fi
  # What the tests look at, at its place in the tree, without the package.
  mkdir -p "$scratch/tree/tests" "$scratch/tree/examples" "$scratch/tree/docs"
  cp -r tests/python "$scratch/tree/tests"
  cp -r examples/python "$scratch/tree/examples"
  cp README.md "$scratch/tree"
  cp docs/python.md "$scratch/tree/docs"
  (cd "$scratch/tree/tests" && ls python/test_*.py) |
    OMP_WAIT_POLICY=passive XLA_PYTHON_CLIENT_PREALLOCATE=false xargs -P "$(($(nproc) / 4 + 1))" -I FILE \
      bash -c 'test_file "$@"' - "$environment/bin/python" "$scratch/tree/tests" "$counts" FILE
}

# test_file PYTHON FOLDER COUNTS FILE: the tests of one file, several of which run at a time on many cores.
test_file() {
  local log status=0
  log=$(mktemp)
  (cd "$2" && POLYPHASE_TEST_COUNTS=$log.counts "$1" -m pytest -q -p no:cacheprovider "$4") >"$log" 2>&1 || status=$?
  cat "$log"
  # 5: a file of which nothing is left after its skips. Without counts of its own, pytest has not run a test.
  if [[ $status =~ ^[015]$ ]] && grep -qv '^0 passed, 0 failed, 0 skipped$' "$log.counts" 2>/dev/null; then
    cat "$log.counts" >>"$3"
  else
    echo "failed: pytest of $4 ended with status $status"
    echo "0 passed, 1 failed, 0 skipped" >>"$3"
  fi
  rm -f "$log" "$log.counts"
}
export -f test_file

if [ -n "$folder" ]; then
  wheel=$(find "$folder" -maxdepth 1 -name "${name//-/_}-*.whl" | sort | tail -n 1)
  [ -n "$wheel" ] || die "there is no wheel of $name in $folder"
else
  build
  check_abi3
fi
check_size
install_and_test
awk '{ passed += $1; failed += $3; skipped += $5 }
     END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped; exit failed > 0 || passed == 0 }' "$counts"
