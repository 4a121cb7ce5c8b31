// Algorithm::direct: dispatches on the dtype.
#include "cuda/conv/direct/direct.hpp"

#include "cuda/conv/direct/tiling.hpp"
#include "cuda/conv/element.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::direct {

// Defined in <dtype>.cu, once per dtype.
template <class T>
void gather_as(const ConvProblem& problem, ConvDirection direction, const T* source, const Weights& weights, const T* bias,
               T* out, const Epilogue& epilogue, int device, cudaStream_t stream, int tile, int slices);

void gather(const ConvProblem& problem, ConvDirection direction, const void* source, const Weights& weights, const void* bias,
            void* out, const Epilogue& epilogue, int device, cudaStream_t stream, int tile, int slices) {
  const bool is_forward = direction == ConvDirection::forward;
  if (problem.N == 0 || (is_forward ? problem.L_out : problem.L_in) == 0) return;
  with_element(problem, direction, [&]<class T>(T* result) {
    result = static_cast<T*>(out);
    gather_as<T>(problem, direction, static_cast<const T*>(source), weights, static_cast<const T*>(bias), result, epilogue,
                 device, stream, tile, slices);
  });
}

int tile_of_any_length(const ConvProblem& problem, ConvDirection direction, int device) {
  constexpr std::int64_t kLength = 1 << 16;
  ConvProblem any = problem;
  any.N = 1;
  any.L_out += (kLength - any.L_in) * any.S;
  any.L_in = kLength;
  const TapGemm gemm = make_tap_gemm(any, direction);
  const int sms = properties(device).sm_count;
  const Choice choice = any.dtype == DType::f64 ? choose(kTiles64, gemm, sms, false, -1, 1)
                                                : choose(kTiles32, gemm, sms, any.dtype == DType::f32, -1, 1);
  return static_cast<int>(choice.tile);
}

}  // namespace polyphase::cuda::direct
