#!/usr/bin/env bash
# Sets the machine up, builds and runs every test. The last line is `N passed, N failed, N skipped`, counted in test cases over all
# programs; exits 1 if one failed.
#
# usage: tools/test.sh [--sanitize] [--werror] [--cuda] [--python] [--slow] [TEST...]
#   --sanitize   with AddressSanitizer and UndefinedBehaviorSanitizer, in build-asan/
#   --werror     warnings are errors
#   --cuda       with CUDA if nvcc is found: every kernel for sm_90a, and for sm_80 those of GPUs without wgmma; on a machine without
#                a GPU nvcc skips most optimizations; without this option CUDA is built only for a GPU of this machine
#   --python     with the Python package, if what it is built and tested with can be installed
#   --slow       also the tests that compile the whole library again
#   TEST         only these tests, as `meson test --list` names them
# POLYPHASE_TEST_COUNTS=FILE appends the last line to FILE as well.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=build
options=()
selection=()
suites=()
slow=no
cuda=no
python=no
while [ $# -gt 0 ]; do
  case $1 in
    --sanitize) folder=build-asan ;;
    --cuda)
      cuda=yes
      options+=(-Dgpu_archs=90a)
      ;;
    --python) python=yes ;;
    --slow) slow=yes ;;
    --werror) options+=(-Dwerror=true) ;;
    -h | --help)
      sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "tools/$(basename "$0")"
      exit 0
      ;;
    -*)
      echo "test: unknown option $1 (known: --sanitize --werror --cuda --python --slow --help)" >&2
      exit 2
      ;;
    *) selection+=("$1") ;;
  esac
  shift
done

if [ $folder = build-asan ]; then
  # b_lundef: clang links the sanitizers' runtime only into programs, not into the library.
  # Without optimization everything but the inner rooms compiles in half the time (src/meson.build).
  options+=(-Dtogether=true -Dbuildtype=plain -Doptimization=0 -Dcpp_args=-g1 "-Db_sanitize=address,undefined" -Db_lundef=false -Dcuda=disabled
    -Dbench=disabled)
  # lld takes a third of the time to link clang's runtime of the sanitizers into every program.
  if [[ ${CXX:-} == *clang* ]] && command -v ld.lld >/dev/null; then export CXX_LD=${CXX_LD:-lld}; fi
  # Tests that only run scripts and compilers gain nothing from sanitizers.
  suites=(--no-suite script)
  export UBSAN_OPTIONS=halt_on_error=1:abort_on_error=1:print_stacktrace=1
  export LSAN_OPTIONS=suppressions=$PWD/tests/support/leaks.txt:print_suppressions=0
fi

# Where no kernel can run, nvcc 12.9 or newer takes a third of the time for them. What starts them does not run either: -O3 is an argument
# for .cpp files alone, because Meson's optimization is for both languages.
if [ $cuda = yes ] && ! nvidia-smi -L >/dev/null 2>&1; then
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  if "$nvcc" --help 2>/dev/null | grep -e --Ofast-compile >/dev/null; then options+=(-Dcuda_args=-Ofc=max -Doptimization=plain -Dcpp_args=-O3 -Dtogether=true); fi
fi

[ $slow = yes ] || [ ${#selection[@]} -gt 0 ] || suites+=(--no-suite slow)

if [ $python = yes ]; then
  tools/setup.sh
  if reason=$(tools/python_setup.sh); then
    options+=(-Dpython=enabled)
  else
    echo "skipped: the Python package: $reason"
    [ -z "${POLYPHASE_TEST_COUNTS:-}" ] || echo "0 passed, 0 failed, 1 skipped" >>"$POLYPHASE_TEST_COUNTS"
  fi
fi

tools/build.sh $folder "${options[@]}"
# The kernels for GPUs without wgmma are compiled for sm_80 apart from the library.
if [ $cuda = yes ] && grep -qs '^build sm80_kernels:' $folder/build.ninja; then tools/build.sh $folder --target sm80_kernels; fi

log=$folder/meson-logs/testlog
rm -f "$log.json"
quiet=()
if ! [ -t 1 ]; then quiet=(--quiet); fi
status=0
.venv/bin/meson test -C $folder --no-rebuild --print-errorlogs "${quiet[@]}" "${suites[@]}" "${selection[@]}" || status=$?
[ -s "$log.json" ] || { echo "test: no test ran" >&2; exit 1; }
python3 tools/count_tests.py "$log.json" ${POLYPHASE_TEST_COUNTS:+"$POLYPHASE_TEST_COUNTS"} || status=1
exit $status
