# shellcheck shell=bash disable=SC2154,SC2086  # read by tools/gpu_check.sh, which sources this file and sets its variables
# The part bench: the library's benchmarks, and PyTorch on the same problems.

# is_asked NAME: whether --match selects the check.
is_asked() { [[ $1 =~ $match ]] && found=yes; }

# bench NAME LIMIT RESULT COMMAND...: a benchmark that writes the file RESULT, which may exist although the benchmark failed.
bench() {
  local name=$1 limit=$2 result=$3
  shift 3
  is_asked "$name" || return 0
  rm -f "$result"
  run bench "$name" "$limit" "$@" || true
}

# peer NAME LIMIT RESULT COMMAND...: adds PyTorch's times to the file RESULT.
peer() {
  local name="PyTorch, $1" limit=$2 result=$3
  shift 3
  is_asked "$name" || return 0
  run bench "$name" "$limit" "$@" "$result" || true
}

has_torch() { python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1; }

# time_networks PART SECONDS: published networks at their full size, the library's and PyTorch's.
time_networks() {
  local part=$1 budget=$2 networks=$work/networks.json options=()
  if [ "$part" = networks ]; then options=(--match "$match"); fi
  if [ $quick = yes ]; then options+=(--networks "hifigan_v1,mimi_decode" --precisions fp32); fi
  rm -f "$networks"
  run "$part" "networks" $((budget + 120)) $build/bench/networks --device cuda:0 "${options[@]}" --time-budget "$budget" --json "$networks" || true
  [ -s "$networks" ] || return 0
  if ! has_torch; then
    record "$part" "PyTorch, networks" skipped 0 "python3 has no torch that sees the GPU"
  elif [ ! -d "$golden/networks" ]; then
    record "$part" "PyTorch, networks" skipped 0 "the golden files that its models are checked against are not in $golden/networks"
  else
    run "$part" "PyTorch, networks" $((budget + 120)) python3 bench/peers_torch_networks.py --golden "$golden" --time-budget "$budget" "$networks" || true
  fi
  if [ "$part" = networks ]; then roofline_networks; fi
  # A case that was left out is named in the file too.
  if has_torch && grep -q '"network": "hifigan_v1_gan_' "$networks"; then
    run "$part" "PyTorch, GAN step" 180 python3 bench/peers_torch_gan.py --time-budget 120 "$networks" || true
  fi
}

part_bench() {
  local conv=$work/conv.json others=$work/others.json forms=$work/forms.json mma=$work/mma.json step=$work/step.json
  local found=no blocks=$work/blocks.json allocator=$work/allocator.json elementwise=$work/elementwise.json cold=$work/cold.json data=$work/data.json data_options=(--seconds $((seconds / 2))) table=$build/bench/conv_transpose1d shapes="A,B,C,depthwise,rest"
  stage "benchmarks, nothing else running"
  if [ $quick = yes ]; then shapes="A,B,C,depthwise" data_options=(--quick); fi
  bench "training_step" 60 "$step" $build/bench/training_step --device cuda:0 --graph --json "$step"
  bench "allocator" 60 "$allocator" $build/bench/allocator --json "$allocator"
  bench "elementwise" 60 "$elementwise" $build/bench/elementwise --json "$elementwise"
  bench "cold_start" 60 "$cold" python3 bench/cold_start.py $build/bench/cold_start --json "$cold"
  bench "conv_transpose1d fp32, tf32, bf16" $((seconds * 2 / 3 + 40)) "$conv" $table --precisions fp32,tf32,bf16 --sustained \
    --time-budget $((seconds * 2 / 3)) --shapes "$shapes" --json "$conv"
  if [ $quick = no ]; then
    bench "conv_transpose1d ieee, f16" $((seconds / 6 + 40)) "$others" $table --precisions ieee,f16 --sustained \
      --time-budget $((seconds / 6)) --shapes depthwise,B,C,A --json "$others"
    bench "conv_transpose1d, the choice among forms" $((seconds / 4 + 40)) "$forms" $table --forms --no-peers \
      --precisions fp32,bf16,tf32 --directions forward,dgrad,wgrad --time-budget $((seconds / 4)) --shapes B,C,rest,A --json "$forms"
    bench "conv_transpose1d, the choice among forms of residual blocks" $((seconds / 8 + 40)) "$blocks" $table --forms --no-peers \
      --precisions fp32,bf16,tf32 --directions forward --time-budget $((seconds / 8)) --shapes blocks --json "$blocks"
    bench "conv_transpose1d tf32, the sm_80 path" $((seconds / 10 + 40)) "$mma" env POLYPHASE_TENSOR_CORE=sm80 $table \
      --precisions tf32 --directions forward --algorithms tensor_core --time-budget $((seconds / 10)) --shapes A,B,C,rest --json "$mma"
  fi
  if is_asked networks; then time_networks bench $((seconds / 2)); fi
  bench "data_independence" $((seconds / 2 + 90)) "$data" $build/bench/data_independence "${data_options[@]}" --json "$data"
  if has_torch; then
    peer training_step 60 "$step" python3 bench/peers_torch_step.py
    peer allocator 60 "$allocator" python3 bench/peers_torch_allocator.py
    peer "fp32, tf32, bf16" $((seconds / 2 + 60)) "$conv" python3 bench/peers_torch_cuda.py --time-budget $((seconds * 5 / 12))
    if [ $quick = no ]; then
      peer f16 $((seconds / 12 + 60)) "$others" python3 bench/peers_torch_cuda.py --time-budget $((seconds / 12))
    fi
  else
    record bench PyTorch skipped 0 "python3 has no torch that sees the GPU"
  fi
  [ $found = yes ] || record bench "--match '$match'" failed 0 "it finds no check"
  if [ "$gpu_file" = h200 ]; then show_goals; fi
}

show_goals() {
  local picture=()
  if command -v gnuplot >/dev/null; then picture=(--picture "$out/goals.png"); fi
  printf '\n== goals\n'
  python3 bench/report.py goals "$out/$gpu_file.json" "${picture[@]}" | tee "$out/goals.md"
}
