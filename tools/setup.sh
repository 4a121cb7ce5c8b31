#!/usr/bin/env bash
# Prepares this machine for building polyphase: installs missing packages (Debian, Ubuntu) and puts the project's version of Meson under
# .venv. Prints what it installs, installs nothing that exists, and works without a network if nothing is missing. With CXX=clang++ it also
# looks for clang's OpenMP.
#
# usage: tools/setup.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

meson_version=1.12.0
meson_sha256=71f133147fa0fcfe8f4df49fa1045771064947834538409e5d97b3613aac8b4e # the hash of its wheel
packages=()

die() {
  echo "setup: $*" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# at_least HAVE WANT: compares versions
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# The compiler: $CXX if it is set, else the first that is new enough; Ubuntu 22.04's plain g++ is not.
new_enough() {
  local version
  version=$("$@" -dumpversion 2>/dev/null) || return 1
  if "$@" --version 2>/dev/null | grep -q clang; then at_least "$version" 14; else at_least "$version" 12; fi
}

find_compiler() {
  local candidate
  if [ -n "${CXX:-}" ]; then
    # shellcheck disable=SC2086  # CXX may hold words, as in "ccache g++"
    new_enough $CXX || die "CXX is '$CXX', which is not there or older than g++ 12 and clang 14"
    compiler=$CXX
    return
  fi
  for candidate in c++ g++ g++-14 g++-13 g++-12 clang++ clang++-18 clang++-16 clang++-15 clang++-14; do
    if have "$candidate" && new_enough "$candidate"; then
      compiler=$candidate
      return
    fi
  done
  compiler=
}

# g++ if the distribution's default is new enough, else the oldest that is.
new_enough_package() {
  local candidate
  candidate=$(apt-cache policy g++ 2>/dev/null | sed -n 's/^ *Candidate: \([0-9]*:\)\?//p')
  if [ -z "$candidate" ] || at_least "$candidate" 12; then echo g++; else echo g++-12; fi
}

# Whether the compiler finds this header. Only the compiler knows where headers are.
has_header() {
  [ -n "$compiler" ] || return 1
  # shellcheck disable=SC2086
  printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | $compiler -std=c++20 ${2:-} -E -x c++ - >/dev/null 2>&1
}

# The Debian packages whose purpose nothing on this machine serves yet; `needed`: how many of them a build cannot do without.
find_missing() {
  packages=()
  find_compiler
  if [ -z "$compiler" ]; then
    packages+=("$(new_enough_package)")
  elif [[ $compiler == *clang* ]] && ! has_header omp.h -fopenmp; then
    packages+=("libomp-$("${compiler##* }" -dumpversion | cut -d. -f1)-dev")
  fi
  have ninja || packages+=(ninja-build)
  have pkg-config || packages+=(pkg-config)
  has_header Eigen/Core -I/usr/include/eigen3 || packages+=(libeigen3-dev)
  has_header doctest/doctest.h || packages+=(doctest-dev)
  has_header nlohmann/json.hpp || packages+=(nlohmann-json3-dev)
  has_header CLI/CLI.hpp || packages+=(libcli11-dev)
  if [ -z "$meson" ] && ! { have python3 && python3 -c 'import ensurepip, venv' 2>/dev/null; }; then
    packages+=(python3-venv)
  fi
  needed=${#packages[@]}
  has_header sndfile.h || packages+=(libsndfile1-dev) # FLAC in programs
  have gnuplot || packages+=(gnuplot-nox)             # pictures
}

find_meson() {
  local candidate
  meson=
  for candidate in .venv/bin/meson "$(command -v meson || true)"; do
    if [ -n "$candidate" ] && at_least "$("$candidate" --version 2>/dev/null || echo 0)" "$meson_version"; then
      meson=$candidate
      return
    fi
  done
}

# apt-get as root; its output goes to a log, and the last error is printed if it fails.
apt() {
  local log
  log=$(mktemp)
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=2 "$@" >"$log" 2>&1; then
    grep '^E:' "$log" | tail -n 1 >&2 || true
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

install_packages() {
  local list="${packages[*]}"
  have apt-get || die "this is no Debian or Ubuntu; install what their packages $list hold, then try again"
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    have sudo || die "not root, and there is no sudo: as root, run: apt-get install $list"
    as_root=(sudo)
    [ -t 0 ] || as_root=(sudo -n)
    "${as_root[@]}" true 2>/dev/null || die "not root, and sudo refuses: as root, run: apt-get install $list"
  fi
  echo "setup: installing $list"
  apt update || die "apt-get update failed (no network?); when it works again, run: apt-get install $list"
  apt install -y --no-install-recommends "${packages[@]}" || die "apt-get could not install them (no network?); when it can, run: apt-get install $list"
}

# .venv/bin/meson is the Meson that the other scripts call: a link to the system's Meson if that is new enough.
install_meson() {
  if [ "$meson" = .venv/bin/meson ]; then return; fi
  if [ -n "$meson" ]; then
    mkdir -p .venv/bin
    ln -sf "$meson" .venv/bin/meson
    return
  fi
  echo "setup: installing Meson $meson_version into .venv"
  rm -rf .venv
  python3 -m venv .venv || die "python3 -m venv .venv failed; install python3-venv, then try again"
  local said
  if ! said=$(.venv/bin/pip install --quiet --disable-pip-version-check --retries 1 --only-binary :all: --require-hashes -r /dev/stdin \
    <<<"meson==$meson_version --hash=sha256:$meson_sha256" 2>&1); then
    rm -rf .venv
    [[ $said != *"DO NOT MATCH THE HASHES"* ]] || die "what was downloaded as Meson $meson_version is not the file whose hash this script has"
    die "cannot download Meson $meson_version (no network?); have 'meson --version' say that or newer, then try again"
  fi
}

# The compiler is stored in .venv/cxx for tools/build.sh if Meson would not choose it itself.
note_compiler() {
  case $compiler in
    c++) rm -f .venv/cxx ;;
    *) echo "$compiler" >.venv/cxx ;;
  esac
}

find_meson
find_missing
if [ ${#packages[@]} -gt 0 ]; then
  if [ "$needed" -gt 0 ]; then
    install_packages
  else
    (install_packages) || echo "setup: going on without ${packages[*]}"
  fi
  find_missing
  [ "$needed" -eq 0 ] || die "installed, but still not found: ${packages[*]:0:$needed}"
fi
install_meson
note_compiler
if [ -t 1 ]; then
  echo "setup: ready (${compiler}, Meson $(.venv/bin/meson --version))"
fi
