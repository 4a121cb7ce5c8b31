# shellcheck shell=bash disable=SC2034  # read by tools/gpu_check.sh, which sources this file
# Programs, and the tools of compute-sanitizer that check them in addition to memcheck, which checks all.
#   racecheck and synccheck: kernels with shared memory
#   initcheck: kernels that read what other kernels wrote. It does not see the writes of cuBLAS' f16 and bf16 products on Hopper.
#   TOOL:N: in N parallel runs of two test cases each; the last run takes the rest
sanitized=(
  "cuda/conv/direct/direct racecheck:6 synccheck initcheck"
  "cuda/conv/depthwise/depthwise racecheck:8 synccheck initcheck"
  "cuda/conv/gemm/gemm racecheck synccheck initcheck"
  "cuda/conv/conv racecheck:2 synccheck initcheck"
  "cuda/conv/tensor_core/tensor_core racecheck:4 synccheck"
  "cuda/conv/tensor_core/weights_in_registers/source_tma/source_tma racecheck synccheck"
  "cuda/conv/tensor_core/choice/kernels racecheck:5 synccheck"
  "cuda/conv/tensor_core/weights_in_registers/source_bulk/source_bulk racecheck synccheck"
  "cuda/conv/tensor_core/source_in_registers/phased_stride2/phased_stride2 racecheck synccheck"
  "cuda/conv/tensor_core/source_in_registers/stride1/stride1 racecheck synccheck"
  "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/source_tma_16bit racecheck synccheck"
  "cuda/conv/tensor_core/source_in_registers/phased_stride4/phased_stride4 racecheck synccheck"
  "cuda/conv/tensor_core/both_in_shared/preconverted/preconverted racecheck:3 synccheck"
  "cuda/conv/tensor_core/recompute/by_tile/by_tile racecheck:2 synccheck"
  "cuda/conv/tensor_core/residual_unit/residual_unit racecheck:4 synccheck"
  "cuda/conv/tensor_core/wgrad/wgrad racecheck:3 synccheck"
  "cuda/conv/tensor_core/wgrad/wide/wide racecheck synccheck"
  "cuda/conv/tensor_core/wgrad/few initcheck"
  "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync racecheck synccheck"
  "cuda/conv/tensor_core/wgrad/mma_sync/mma_sync racecheck synccheck"
  "cuda/reduce/reduce racecheck synccheck initcheck"
  "cuda/reduce/moments racecheck synccheck initcheck"
  "cuda/reduce/weight_norm racecheck synccheck initcheck"
  "cuda/elementwise/copy racecheck synccheck initcheck"
  "cuda/elementwise/antialias racecheck synccheck initcheck"
  "cuda/elementwise/snake_backward racecheck synccheck initcheck"
  "cuda/elementwise/embedding racecheck synccheck initcheck"
  "cuda/reduce/row_norm racecheck synccheck initcheck"
  "cuda/linear/attention racecheck:2 synccheck initcheck"
  "cuda/linear/few_rows racecheck synccheck initcheck"
  "cuda/linear/rotary_attention racecheck:2 synccheck initcheck"
  "cuda/linear/lstm racecheck:2 synccheck initcheck"
  "cuda/linear/fft racecheck synccheck initcheck"
  "cuda/optimizers/optimizers racecheck synccheck initcheck"
  "cuda/optimizers/optimizers_lists initcheck"
  "cuda/elementwise/elementwise initcheck"
  "cuda/length/length initcheck"
  "cuda/length/pad initcheck"
  "cuda/length/upsample initcheck"
  "cuda/elementwise/random initcheck"
  "cuda/linear/matmul"
  "cuda/runtime/graph initcheck"
  "cuda/runtime/graph_state"
  "cuda/runtime/fork"
  "cuda/pinned"
  "cuda/memory/staging"
  "cuda/elementwise/index_check initcheck"
  "layers/conv_transpose1d initcheck"
  "layers/norm racecheck synccheck initcheck"
  "optim/adam initcheck"
)
# Cases that take minutes under a sanitizer and show nothing new: sizes beyond 2^31, many runs of the same kernel.
left_out='*2^31*,*hundred*,*twenty*,*grid of*,*after long work*'
# racecheck loses track of launches from several threads ("Internal Sanitizer Error") and counts that as a hazard. It takes minutes for
# every tile of the weight gradient; the cases before contain the tiles that are chosen.
left_out_of_racecheck="$left_out,*several threads*,*every tile*"
# initcheck looks at the source of a graph's copy when the graph is launched, before the graph's kernels have written it.
left_out_of_initcheck="$left_out,*RepeatedNumbersGuard*"
