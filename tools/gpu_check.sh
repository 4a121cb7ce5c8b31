#!/usr/bin/env bash
# Every check that needs an NVIDIA GPU, in one command: builds, runs every test, runs the GPU's tests again under compute-sanitizer, runs
# the golden files on the GPU, and times the library. Installs nothing and needs no network.
#
# usage: tools/gpu_check.sh [--only PART[,PART...]] [--match REGEX] [--quick] [--jobs N] [--seconds N] [--out FOLDER]
#   --only PART   one of build, test, sanitize, golden, bench, networks (the part of bench that times whole networks), scaling (training on
#                 two GPUs) and python (times of the wheel's layers in PyTorch); the last three run only if they are asked for; all parts
#                 but build need the build folder of an earlier run
#   --match REGEX  selects checks of sanitize by tool, program and case ('racecheck.*choice'), checks of bench by name ('conv.*fp32') and
#                 cases of networks by name ('mimi.*1x'); fails if none matches
#   --quick       code for this GPU only (else for sm_80 too), the GPU's tests only, two sanitizers on three programs, four shapes
#   --jobs N      sanitized programs at a time (default: three quarters of the cores)
#   --seconds N   for the tables of convolutions, about (default 240), and half as much for PyTorch on the same cases;
#                 what does not fit is omitted and named
#   --out FOLDER  where the results go (default build-gpu/check)
#
# FOLDER holds these files. They are updated after each result, so that a stopped run leaves its results:
#   GPU.json       (h200.json on an H200) every check and every measurement; `bench/report.py adopt` takes it into docs/
#   gpu_check.md   the table: check, result, seconds
#   network_roofline_*.json  the parts of a network and what the machine allows (part networks); `bench/report.py pictures` draws them
#   goals.md       on an H200 the library's goals, reached or missed by how much; goals.png if gnuplot is installed
#   failures.log   the beginning and the end of what each failed check printed
# The last line is `N passed, N failed, N skipped`. Exit code 1 if one failed; 2 on a bad argument or without a GPU.
# POLYPHASE_COMMIT names the commit if the folder is no git repository; POLYPHASE_GOLDEN is the folder of more golden files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build="build-gpu"
out=$build/check
parts=build,test,sanitize,golden,bench
match=""
quick=no
seconds=240
jobs=$(($(nproc) * 3 / 4))
[ "$jobs" -ge 1 ] || jobs=1

die() {
  echo "gpu_check: $*" >&2
  exit 2
}

while [ $# -gt 0 ]; do
  case $1 in
    --only | --match | --jobs | --seconds | --out)
      [ $# -ge 2 ] || die "$1 wants a value after it"
      case $1 in
        --only) parts=$2 ;;
        --match) match=$2 ;;
        --jobs) jobs=$2 ;;
        --seconds) seconds=$2 ;;
        --out) out=$2 ;;
      esac
      shift
      ;;
    --quick) quick=yes ;;
    -h | --help)
      sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' tools/gpu_check.sh
      exit 0
      ;;
    *) die "unknown argument $1 (known: --only --match --quick --jobs --seconds --out --help)" ;;
  esac
  shift
done
[[ $jobs =~ ^[1-9][0-9]*$ ]] || die "--jobs: expected a number of at least 1, got '$jobs'"
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die "--seconds: expected a number of at least 1, got '$seconds'"
status=0
[[ "" =~ $match ]] || status=$?
[ $status -lt 2 ] || die "--match: expected a regular expression, got '$match'"
IFS=, read -r -a wanted <<<"$parts"
[ ${#wanted[@]} -gt 0 ] || die "--only: expected a part of build, test, sanitize, golden, bench, networks, scaling, python"
for part in "${wanted[@]}"; do
  [[ $part =~ ^(build|test|sanitize|golden|bench|networks|scaling|python)$ ]] ||
    die "--only: expected a part of build, test, sanitize, golden, bench, networks, scaling, python, got '$part'"
done
wants() { [[ ,$parts, == *,$1,* ]]; }

# ---- the machine

export PATH=$PATH:/usr/local/cuda/bin:/usr/local/nvidia/bin
command -v nvidia-smi >/dev/null || die "no NVIDIA GPU here: there is no nvidia-smi"
gpu_line=$(nvidia-smi -i 0 --query-gpu=name,driver_version,compute_cap --format=csv,noheader 2>/dev/null | head -n 1) ||
  die "no NVIDIA GPU here: nvidia-smi finds none"
IFS=, read -r gpu driver capability <<<"$gpu_line"
driver=${driver# }
capability=${capability# }
[[ $capability =~ ^[0-9]+\.[0-9]+$ ]] || die "no NVIDIA GPU here: nvidia-smi says '$gpu_line'"
command -v nvcc >/dev/null || die "there is no nvcc, neither on PATH nor under /usr/local/cuda"
cuda=$(nvcc --version | sed -n 's/^.*release \([0-9.]*\),.*$/\1/p')
arch=${capability/./}
[ "$arch" != 90 ] || arch=90a
# Its last word, without the memory that some names end in: h200 of "NVIDIA H200", h100 of "NVIDIA H100 80GB HBM3".
gpu_file=$(sed 's/ [0-9]*GB\b.*//; s/^.* //' <<<"$gpu" | tr '[:upper:]' '[:lower:]' | tr -cd 'a-z0-9_-')
commit=${POLYPHASE_COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
golden=${POLYPHASE_GOLDEN:-../shared/golden}
if [ -d "$golden" ]; then
  golden=$(cd "$golden" && pwd)
  export POLYPHASE_GOLDEN=$golden
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
root=$PWD
work=$root/$build/gpu_check
mkdir -p "$work"
checks=$work/checks.tsv # part, name, result, seconds, note
# Parts that are run separately make one result if they have the same commit.
if [ "$parts" = build,test,sanitize,golden,bench ] || [ "$(cat "$work/commit" 2>/dev/null)" != "$commit" ]; then
  rm -rf "$work"
  mkdir -p "$work"
fi
echo "$commit" >"$work/commit"
touch "$checks"
sed -i '/^[a-z]*\t--match /d' "$checks"
: >"$out/failures.log"
export OMP_WAIT_POLICY=passive

# ---- results as they arrive

seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }

write_results() {
  local file results=()
  for file in "$work"/*.json; do if [ -s "$file" ]; then results+=("$file"); fi; done
  python3 bench/report.py collect "$gpu_file" "${results[@]}" --folder "$out" --checks "$checks" --commit "$commit" \
    --date "$(date -u +%F)" --set "gpu=$gpu" --set "driver=$driver" --set "cuda=$cuda" >"$work/report.log" 2>&1 ||
    tail -n 3 "$work/report.log" >&2
}

# record PART NAME passed|failed|skipped SECONDS NOTE [LOG]: replaces the check's result of an earlier call.
record() {
  { grep -vF "$1"$'\t'"$2"$'\t' "$checks" || true; } >"$checks.new"
  mv "$checks.new" "$checks"
  printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "${5//$'\t'/ }" >>"$checks"
  printf '%-8s %-44s %7s s  %s\n' "$3" "$1: $2" "$4" "$5"
  if [ "$3" = failed ] && [ -n "${6:-}" ]; then
    { printf '\n==== %s: %s\n' "$1" "$2"; head -n 80 "$6"; echo ...; tail -n 40 "$6"; } | cut -c 1-400 >>"$out/failures.log"
  fi
  write_results
}

stage() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }

last_line() { { grep -aiE "$1" "$2" || true; } | tail -n 1 | sed 's/^=* *//' | cut -c 1-160; }

# Turns an exit status and a log into verdict and note.
judge() {
  local status=$1 log=$2 limit=$3
  note=$(last_line '^(test cases: )?[0-9]+ passed, [0-9]+ failed' "$log")
  note=${note//"$golden/"/}
  case $status in
    0) verdict=passed ;;
    77) verdict=failed note="it saw no GPU" ;;
    86) verdict=failed note=$(last_line 'ERROR SUMMARY|RACECHECK SUMMARY' "$log") ;;
    124 | 137) verdict=failed note="stopped after $limit s" ;;
    *) verdict=failed note="exit status $status: $(last_line 'error|fail|wrong' "$log")" ;;
  esac
  # No case could be checked: the algorithm takes none of them.
  if [ "$status" = 1 ] && grep -aqE '^0 passed, 0 failed, [1-9][0-9]* skipped' "$log"; then
    verdict=skipped note="no case is for it"
  fi
  # Cases that pass without using the GPU, which a sanitizer reports as an error.
  if [ "$status" = 255 ] && grep -aq 'terminated before first instrumented API call' "$log" &&
    grep -aqE '^test cases: [0-9]+ passed, 0 failed' "$log"; then
    verdict=skipped note="its cases use no GPU"
  fi
  # A test of the GPU that found no GPU has tested nothing.
  if [ "$verdict" = passed ] && grep -aqE '^skipped: .*(no CUDA device|cuda:0)' "$log"; then
    verdict=failed note="a test saw no GPU"
  fi
}

# run PART NAME LIMIT COMMAND...: runs one check and waits for it. Returns 1 if it failed.
run() {
  local part=$1 name=$2 limit=$3 log begin=$EPOCHREALTIME status=0 verdict note
  shift 3
  log=$work/${part}_${name//[^a-zA-Z0-9_]/_}.log
  timeout -k 10 "$limit" "$@" >"$log" 2>&1 || status=$?
  judge "$status" "$log" "$limit"
  record "$part" "$name" "$verdict" "$(seconds_since "$begin")" "$note" "$log"
  [ "$verdict" != failed ]
}

# launch PART NAME LIMIT COMMAND...: the same in parallel, at most $jobs at a time; finish waits for all of them.
declare -A running=()
launch() {
  local part=$1 name=$2 limit=$3 log
  shift 3
  while [ ${#running[@]} -ge "$jobs" ]; do reap; done
  log=$work/${part}_${name//[^a-zA-Z0-9_]/_}.log
  (
    begin=$EPOCHREALTIME
    status=0
    timeout -k 10 "$limit" "$@" >"$log" 2>&1 || status=$?
    echo "$status $(seconds_since "$begin")" >"$log.status"
  ) &
  running[$!]="$part|$name|$limit|$log"
}
reap() {
  local pid="" part name limit log status seconds verdict note
  wait -n -p pid || true
  IFS='|' read -r part name limit log <<<"${running[$pid]}"
  unset "running[$pid]"
  read -r status seconds <"$log.status"
  judge "$status" "$log" "$limit"
  record "$part" "$name" "$verdict" "$seconds" "$note" "$log"
}
finish() { while [ ${#running[@]} -gt 0 ]; do reap; done; }

# ---- the parts

find_meson() {
  local candidate
  for candidate in .venv/bin/meson meson; do
    if "$candidate" --version >/dev/null 2>&1; then
      command -v "$candidate"
      return
    fi
  done
  die "there is no Meson, neither under .venv nor on PATH"
}

part_build() {
  stage "build on $gpu (sm_$arch), CUDA $cuda"
  if ! [ -f $build/build.ninja ]; then
    local archs=$arch
    if [ "$arch" != 80 ] && [ $quick = no ]; then archs=80,$arch; fi
    run build configure 120 "$meson" setup $build -Dbuildtype=release -Dcuda=enabled "-Dgpu_archs=$archs" || return 1
  fi
  # The compilers' messages for each object are kept, for the next check.
  # shellcheck disable=SC2016  # for the inner shell
  run build "release, every program" 590 bash -o pipefail -c 'ninja -C "$1" | tee -a "$1/ninja.log"' ninja $build || return 1
  launch build "no kernel spills, no wgmma is serialised" 300 python3 tests/structure/check_ptxas.py $build --log $build/ninja.log
  launch build "no barrier is reached before a read has finished" 300 python3 tests/structure/check_arrivals.py $build
  finish
}

# meson_test NAME ARGUMENT...: counts the cases of all programs.
meson_test() {
  local name=$1
  shift
  # shellcheck disable=SC2016  # for the inner shell
  run test "$name" 300 bash -c '
    meson=$1 build=$2 status=0
    shift 2
    rm -f "$build/meson-logs/testlog.json"
    "$meson" test -C "$build" --no-rebuild --print-errorlogs --quiet "$@" || status=$?
    python3 tools/count_tests.py "$build/meson-logs/testlog.json" || status=1
    exit "$status"' meson_test "$meson" $build "$@" || true
}

part_test() {
  stage tests
  meson_test "suite cuda" --suite cuda
  # The checks of scripts look at sources and compilers, not at the GPU: .ci/run runs them.
  if [ $quick = no ]; then meson_test "all others" --no-suite cuda --no-suite script --no-suite slow; fi
  # tools/wheel.sh --cuda makes the wheel, on a machine that reaches a package index; this one may not.
  if compgen -G 'dist/polyphase_cuda13-*.whl' >/dev/null; then
    run test "the Python wheel in dist" 590 tools/wheel.sh --cuda --no-index dist || true
  else
    record test "the Python wheel in dist" skipped 0 "dist has no polyphase_cuda13 wheel; tools/wheel.sh --cuda makes it"
  fi
}

# shellcheck source=tools/gpu_check_sanitized.sh
source tools/gpu_check_sanitized.sh

part_sanitize() {
  local line name tool program options=() own_port device has_port=no port=55000 pieces piece label cases exclude found=no
  stage "compute-sanitizer, reduced grids, plain cudaMalloc"
  command -v compute-sanitizer >/dev/null || { record sanitize all failed 0 "there is no compute-sanitizer"; return; }
  if compute-sanitizer --help 2>&1 | grep -q -- --report-api-errors; then
    # The tests make calls that must fail; only memory errors count here.
    options+=(--report-api-errors no)
  fi
  if compute-sanitizer --help 2>&1 | grep -q -- --base-port; then has_port=yes; fi
  # On some machines the GPU is available but not what the sanitizer needs.
  timeout 60 compute-sanitizer --tool memcheck "${options[@]}" $build/tests/cuda/test_cuda_linear_blas >"$work/probe.log" 2>&1 || true
  if grep -qiE 'device not supported|failed to initialize' "$work/probe.log"; then
    record sanitize all skipped 0 "$(last_line 'device not supported|failed to initialize' "$work/probe.log")"
    return
  fi
  for tool in racecheck memcheck initcheck synccheck; do # the slowest first
    for line in "${sanitized[@]}"; do
      name=${line%% *}
      [ $tool = memcheck ] || [[ "$line " =~ " $tool"[\ :] ]] || continue
      pieces=1
      if [[ "$line " =~ " $tool:"([0-9]+)\  ]]; then pieces=${BASH_REMATCH[1]}; fi
      if [ $quick = yes ]; then
        [[ $name =~ ^cuda/(conv/direct|conv/depthwise|reduce)$ && $tool =~ ^(memcheck|racecheck)$ ]] || continue
      fi
      # The programs of a folder of src/cuda are adjacent.
      case $name in
        cuda/conv/*) program=cuda/conv ;;
        cuda/*) program=cuda ;;
        *) program=${name%/*} ;;
      esac
      program=$build/tests/$program/test_${name//\//_}
      # Tests of src/cuda choose their devices themselves.
      device=(POLYPHASE_TEST_DEVICE=cuda:0)
      if [[ $name = cuda/* ]]; then device=(); fi
      exclude=$left_out
      case $tool in
        racecheck) exclude=$left_out_of_racecheck ;;
        initcheck) exclude=$left_out_of_initcheck ;;
      esac
      for ((piece = 1; piece <= pieces; ++piece)); do
        label="$tool $name" cases=()
        if [ "$pieces" -gt 1 ]; then
          label+=" case $piece" cases=("--first=$piece")
          if [ $piece -lt "$pieces" ]; then cases+=("--last=$piece"); fi
        fi
        [[ $label =~ $match ]] || continue
        found=yes
        port=$((port + 20))
        own_port=()
        if [ $has_port = yes ]; then own_port=(--base-port "$port"); fi
        launch sanitize "$label" 300 env POLYPHASE_TEST_REDUCED=1 POLYPHASE_CUDA_ALLOCATOR=malloc "${device[@]}" \
          compute-sanitizer --tool "$tool" --error-exitcode 86 --print-limit 20 "${options[@]}" \
          "${own_port[@]}" "$program" "--test-case-exclude=$exclude" "${cases[@]}"
      done
    done
  done
  finish
  [ $found = yes ] || record sanitize "--match '$match'" failed 0 "it finds no check"
}

# golden_check ALGORITHM PRECISION DTYPE FILE...
golden_check() {
  local algorithm=$1 precision=$2 dtype=$3
  shift 3
  launch golden "$algorithm $precision $dtype" 120 $build/tool/polyphase check --quiet --threads 1 --device cuda:0 \
    --algorithm "$algorithm" --precision "$precision" --dtype "$dtype" "$@"
}

part_golden() {
  local algorithm precision dtype file convolutions=() all=()
  stage "golden files on the GPU"
  for file in tests/golden/data/*.safetensors "$golden"/*.safetensors "$golden"/networks/*.safetensors; do
    [ -f "$file" ] || continue
    all+=("$file")
    case $file in */conv1d*) convolutions+=("$file") ;; esac
  done
  for algorithm in automatic direct depthwise tensor_core gemm; do
    for precision in ieee fp32 tf32; do golden_check $algorithm $precision f32 "${convolutions[@]}"; done
    for dtype in f64 f16 bf16; do golden_check $algorithm fp32 $dtype "${convolutions[@]}"; done
  done
  # Also training traces, generators and published networks, in the dtypes that have tolerances.
  for dtype in f64 f32; do golden_check automatic fp32 $dtype "${all[@]}"; done
  finish
}

# shellcheck source=tools/gpu_check_bench.sh
source tools/gpu_check_bench.sh
# shellcheck source=tools/gpu_check_on_request.sh
source tools/gpu_check_on_request.sh

meson=$(find_meson)
if wants build; then part_build || wanted=(); fi
if [ ${#wanted[@]} -gt 0 ]; then
  [ -x $build/tool/polyphase ] || die "$build is not built; run tools/gpu_check.sh --only build before"
  if wants test; then part_test; fi
  if wants sanitize; then part_sanitize; fi
  if wants golden; then part_golden; fi
  if wants bench; then part_bench; fi
  if wants python; then part_python; fi
  if wants networks; then
    stage "whole networks, nothing else running"
    time_networks networks "$seconds"
  fi
  if wants scaling; then part_scaling; fi
fi

printf '\n%s s; results in %s\n' "$SECONDS" "$out"
awk -F '\t' '{ count[$3]++ }
  END {
    printf "%d passed, %d failed, %d skipped\n", count["passed"], count["failed"], count["skipped"]
    exit count["failed"] > 0 || count["passed"] == 0
  }' "$checks"
