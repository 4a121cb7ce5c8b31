#pragma once
// Host side of the direct kernels: the packed weights and the launch. Included by one .cu file per dtype, and window.cu.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "conv/algorithm.hpp"
#include "cuda/conv/direct/direct.hpp"
#include "cuda/conv/direct/kernel.cuh"
#include "cuda/conv/direct/pack.cuh"
#include "cuda/conv/direct/row.cuh"
#include "cuda/conv/packed_weights.hpp"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::direct {

/// What all launches of one call share.
template <class T>
struct Call {
  const ConvProblem& problem;
  ConvDirection direction;
  const Epilogue& epilogue;
  const T* source;
  const Weights& weights;
  const T* bias;
  T* out;
  int device;
  cudaStream_t stream;
};

[[nodiscard]] inline std::int64_t packed_words(const TapGemm& gemm, const Steps& steps) {
  return gemm.G * steps.column_tiles * steps.row_steps * steps.plane_steps * steps.tap_steps * steps.weight_words;
}

/// The weights in the order in which `steps` reads them, as the accumulator's type A. Weights with a storage keep them.
template <class T, class A>
std::shared_ptr<const Buffer> packed_weights(const Call<T>& call, const TapGemm& gemm, const Steps& steps, const Tile& tile) {
  const ConvProblem& problem = call.problem;
  const PackingKey key{static_cast<std::int64_t>(Algorithm::direct),
                       static_cast<std::int64_t>(call.direction),
                       static_cast<std::int64_t>(problem.dtype),
                       problem.C_in,
                       problem.C_out,
                       problem.G,
                       problem.K,
                       problem.S,
                       problem.D,
                       tile.columns,
                       steps.rows,
                       steps.planes,
                       steps.taps,
                       steps.row_steps,
                       steps.plane_steps,
                       steps.tap_steps,
                       steps.piece_taps,
                       steps.column_tiles,
                       steps.weight_words};
  const std::int64_t count = packed_words(gemm, steps);
  const auto pack = [gemm, steps, count, K = problem.K, columns = tile.columns,
                     is_forward = call.direction == ConvDirection::forward](const void* w, void* to, cudaStream_t stream) {
    const auto grid = static_cast<unsigned>(std::min<std::int64_t>((count + 255) / 256, 4096));
    const auto launch = [&]<class Index>(Index) {
      pack_weights_kernel<T, A, Index><<<grid, 256, 0, stream>>>(gemm, steps, K, columns, is_forward, static_cast<Index>(count),
                                                                 static_cast<const T*>(w), static_cast<A*>(to));
    };
    if (count < std::int64_t{1} << 31) {
      launch(std::uint32_t{});
    } else {
      launch(std::uint64_t{});
    }
    check_launch("conv direct: pack weights");
  };
  return call.weights.packed(key, static_cast<std::size_t>(count) * sizeof(A), call.device, call.stream, pack);
}

/// Launches with `words` words of dynamic shared memory, one block for each of `blocks` up to the grid limit.
template <class Kernel, class... Arguments>
void launch_blocks(Kernel* kernel, std::int64_t blocks, const Tile& tile, std::size_t shared, cudaStream_t stream,
                   Arguments... arguments) {
  allow_shared_memory(kernel, static_cast<std::int64_t>(shared));
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>(blocks, INT32_MAX));
  kernel<<<grid, tile.threads(), shared, stream>>>(arguments...);
  check_launch("conv direct");
}

template <class T, int kTileP, int kTileC, int kThreadP, int kThreadC>
void launch_general(const Call<T>& call, const TapGemm& gemm, const Tile& tile) {
  using A = typename AccumulatorOf<T>::type;
  const Steps steps = make_tiling(gemm, tile, sizeof(A));
  const auto packed = packed_weights<T, A>(call, gemm, steps, tile);
  launch_blocks(tap_gemm_kernel<T, kTileP, kTileC, kThreadP, kThreadC>, steps.blocks, tile,
                shared_words(tile, steps) * sizeof(A), call.stream, gemm, steps, call.epilogue, call.source,
                static_cast<const A*>(packed->template as<A>()), call.bias, call.out);
}

/// Runs the window kernel (f32 only): rows 8 to 13 of kTiles32.
void launch_windows(const Call<float>& call, const TapGemm& gemm, const Choice& choice);
/// Runs the kernel for one input channel, for problems with is_row(gemm).
void launch_row(const Call<float>& call, const TapGemm& gemm);

/// gather() for one dtype.
template <class T>
void gather_as(const ConvProblem& problem, ConvDirection direction, const T* source, const Weights& weights, const T* bias,
               T* out, const Epilogue& epilogue, int device, cudaStream_t stream, int tile, int slices) {
  const TapGemm gemm = make_tap_gemm(problem, direction);
  const int sms = properties(device).sm_count;
  const Call<T> call{problem, direction, epilogue, source, weights, bias, out, device, stream};
  if constexpr (std::is_same_v<T, double>) {
    const std::size_t i = choose(kTiles64, gemm, sms, false, tile).tile;
    if (i == 0) return launch_general<T, 128, 64, 4, 8>(call, gemm, kTiles64[i]);
    return launch_general<T, 128, 16, 4, 4>(call, gemm, kTiles64[i]);
  } else {
    if constexpr (std::is_same_v<T, float>) {
      if (tile < 0 && is_row(gemm)) return launch_row(call, gemm);
    }
    const Choice choice = choose(kTiles32, gemm, sms, std::is_same_v<T, float>, tile, slices);
    const Tile& chosen = kTiles32[choice.tile];
    if constexpr (std::is_same_v<T, float>) {
      if (chosen.body == Body::window) return launch_windows(call, gemm, choice);
    }
    switch (choice.tile) {
      case 0:
        return launch_general<T, 128, 128, 4, 16>(call, gemm, chosen);
      case 1:
      case 2:
        return launch_general<T, 128, 64, 4, 16>(call, gemm, chosen);
      case 3:
        return launch_general<T, 256, 64, 8, 8>(call, gemm, chosen);
      case 4:
        return launch_general<T, 128, 32, 4, 16>(call, gemm, chosen);
      case 5:
        return launch_general<T, 256, 32, 8, 8>(call, gemm, chosen);
      case 6:
        return launch_general<T, 128, 16, 4, 4>(call, gemm, chosen);
      default:
        return launch_general<T, 512, 4, 4, 4>(call, gemm, chosen);
    }
  }
}

}  // namespace polyphase::cuda::direct
