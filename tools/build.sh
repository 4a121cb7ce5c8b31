#!/usr/bin/env bash
# Sets the machine up (tools/setup.sh), configures a build folder once and builds it. For a new folder the first line says whether it has
# CUDA and why. On a terminal it then shows Ninja's progress; in a pipe it prints nothing more unless there is an error.
#
# usage: tools/build.sh FOLDER [--target NAME] [MESON OPTION...]      e.g. tools/build.sh build -Dbench=disabled
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
  echo "build: $*" >&2
  exit 1
}

[ $# -ge 1 ] || { echo "usage: tools/build.sh FOLDER [--target NAME] [MESON OPTION...]" >&2; exit 2; }
folder=$1
shift
targets=()
if [ "${1:-}" = --target ]; then
  targets=("$2")
  shift 2
fi

tools/setup.sh
if [ -z "${CXX:-}" ] && [ -f .venv/cxx ]; then
  CXX=$(cat .venv/cxx)
  export CXX
  if command -v ccache >/dev/null; then CXX="ccache $CXX"; fi
fi

# What ccache needs for precompiled headers. With depend it takes no preprocessor's run to find that it does not have a file.
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros} CCACHE_DEPEND=${CCACHE_DEPEND:-1}

# The CUDA toolkit's default folder; Meson looks for nvcc on PATH only.
if ! command -v nvcc >/dev/null && [ -x /usr/local/cuda/bin/nvcc ]; then
  export PATH=$PATH:/usr/local/cuda/bin
fi
if [ -z "${NVCC:-}" ] && command -v nvcc >/dev/null && command -v ccache >/dev/null; then export NVCC="ccache nvcc"; fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if [ -f "$folder/build.ninja" ]; then
  # Options on the command line are always set, also in a folder that was configured by hand.
  # A folder of an older checkout reads the project's options again first, in case they are new.
  if [ $# -gt 0 ]; then
    { ninja -C "$folder" build.ninja && .venv/bin/meson configure "$folder" "$@"; } >"$log" 2>&1 || { cat "$log" >&2; die "Meson refuses $*"; }
  fi
else
  .venv/bin/meson setup "$folder" "$@" >"$log" 2>&1 || { grep -A 2 ERROR "$log" >&2 || tail -n 20 "$log" >&2; die "Meson could not configure $folder"; }
  sed -n 's/^Message: CUDA /build: CUDA /p' "$log"
  ! [ -t 1 ] || echo "build: configured $folder"
fi

if [ -t 1 ]; then
  ninja -C "$folder" "${targets[@]}" || die "it does not compile; the errors are above"
else
  ninja -C "$folder" --quiet "${targets[@]}" >"$log" 2>&1 || { grep -v '^ninja: Entering' "$log" >&2; die "it does not compile; the errors are above"; }
fi
