# shellcheck shell=bash disable=SC2154,SC2086  # read by tools/gpu_check.sh, which sources this file and sets its variables
# Parts that run only if they are asked for.

# The wheel polyphase-cuda13 in dist, in an environment that sees the system's PyTorch. The part test runs the wheel's tests.
part_python() {
  local environment=$work/python overhead=$work/python.json
  stage "PyTorch's layers and the Python package's, nothing else running"
  if ! run python "install the wheel" 120 tools/install_wheel.sh "$environment" dist; then return; fi
  rm -f "$overhead"
  run python "python_torch" $((seconds + 60)) "$environment/bin/python" bench/python_torch.py --device cuda:0 --time-budget "$seconds" --json "$overhead" || true
  run python "python_replace" $((seconds + 60)) "$environment/bin/python" bench/python_replace.py --device cuda:0 --time-budget "$seconds" --json "$overhead" || true
}

# A training step of HiFi-GAN as published on one GPU and, data parallel, on two, PyTorch's on the same; and NCCL's operations.
part_scaling() {
  local gpus precision file files=() options=(--graph) most budget=240
  stage "training on one and two GPUs, nothing else running"
  most=$(nvidia-smi --list-gpus | grep -c .)
  if [ "$most" -gt 2 ]; then most=2; fi
  if [ "$quick" = yes ]; then options+=(--seconds 2) budget=110; fi
  if [ "$most" = 2 ]; then
    run scaling "NCCL" 180 env NCCL_NVLS_ENABLE=0 $build/tests/distributed/network/test_distributed_network_nccl || true
  fi
  for precision in fp32 tf32 bf16; do
    for ((gpus = 1; gpus <= most; ++gpus)); do
      file=$work/scaling_${gpus}_$precision.json
      rm -f "$file"
      run scaling "scaling, $gpus GPU, $precision" 180 env NCCL_NVLS_ENABLE=0 $build/bench/scaling \
        --config bench/networks/hifigan_v1.json --gpus $gpus --precision $precision "${options[@]}" --json "$file" || true
      if [ -s "$file" ]; then files+=("$file"); fi
    done
  done
  if [ "$most" = 1 ]; then record scaling "scaling, 2 GPUs" skipped 0 "this machine has one GPU"; fi
  if ! has_torch; then
    record scaling "PyTorch, GAN step" skipped 0 "python3 has no torch that sees the GPU"
  elif [ ${#files[@]} -gt 0 ]; then
    run scaling "PyTorch, GAN step" $((budget + 60)) env NCCL_NVLS_ENABLE=0 python3 bench/peers_torch_gan.py --time-budget $budget "${files[@]}" || true
  fi
}

# The parts of a network next to what the machine allows.
roofline_networks() {
  local precision name=hifigan_v1_16x861
  [[ $name =~ $match ]] || return 0
  for precision in fp32 f16; do
    run networks "roofline, $name $precision" 120 $build/bench/network_roofline --device cuda:0 --match "^$name\$" --precision $precision \
      --json "$out/network_roofline_${name}_$precision.json" || true
  done
}
