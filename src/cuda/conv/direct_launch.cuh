#pragma once
// Host side of the direct kernels: the packed weights and the launch. Included by one .cu file per dtype.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda/allocator.hpp"
#include "cuda/conv/direct.cuh"
#include "cuda/conv/direct.hpp"
#include "cuda/conv/direct_pack.cuh"
#include "cuda/conv/direct_row.cuh"
#include "cuda/conv/direct_window.cuh"
#include "cuda/runtime.hpp"

namespace polyphase::cuda::direct {

/// What every launch of one call shares.
template <class T>
struct Call {
  const ConvProblem& problem;
  ConvDirection direction;
  const Epilogue& epilogue;
  const T *source, *w, *bias;
  T* out;
  int device;
  cudaStream_t stream;
};

[[nodiscard]] inline std::int64_t packed_words(const TapGemm& form, const Steps& steps) {
  return form.G * steps.column_tiles * steps.row_steps * steps.plane_steps * steps.tap_steps * steps.weight_words;
}

template <class T, class A>
void pack_weights(const Call<T>& call, const TapGemm& form, const Steps& steps, const Tile& tile, A* packed) {
  const std::int64_t count = packed_words(form, steps);
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>((count + 255) / 256, 4096));
  const auto pack = [&]<class Index>(Index) {
    pack_weights_kernel<T, A, Index><<<grid, 256, 0, call.stream>>>(form, steps, call.problem.K, tile.columns,
                                                                    call.direction == ConvDirection::forward,
                                                                    static_cast<Index>(count), call.w, packed);
  };
  if (count < std::int64_t{1} << 31) {
    pack(std::uint32_t{});
  } else {
    pack(std::uint64_t{});
  }
  check_launch("conv direct: pack weights");
}

/// Launches with `words` words of dynamic shared memory, one block for each of `blocks` as far as a grid goes.
template <class Kernel, class... Arguments>
void launch_blocks(Kernel* kernel, std::int64_t blocks, const Tile& tile, std::size_t shared, cudaStream_t stream,
                   Arguments... arguments) {
  CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>(blocks, INT32_MAX));
  kernel<<<grid, tile.threads(), shared, stream>>>(arguments...);
  check_launch("conv direct");
}

template <class T, int kTileP, int kTileC, int kThreadP, int kThreadC>
void launch_general(const Call<T>& call, const TapGemm& form, const Tile& tile) {
  using A = typename AccumulatorOf<T>::type;
  const Steps steps = make_steps(form, tile, sizeof(A));
  const Buffer packed(static_cast<std::size_t>(packed_words(form, steps)) * sizeof(A), call.device);
  pack_weights(call, form, steps, tile, packed.as<A>());
  launch_blocks(tap_gemm_kernel<T, kTileP, kTileC, kThreadP, kThreadC>, steps.blocks, tile,
                shared_words(tile, steps) * sizeof(A), call.stream, form, steps, call.epilogue, call.source,
                static_cast<const A*>(packed.as<A>()), call.bias, call.out);
}

template <int kGroups, int kThreadC, int kWarps>
void launch_window(const Call<float>& call, TapGemm form, const Tile& tile, int slices) {
  const bool by_quads = shift_to_quads(form, call.source);
  Steps steps = make_window_steps(form, tile);
  split_steps(steps, slices);
  const Buffer packed(static_cast<std::size_t>(packed_words(form, steps)) * sizeof(float), call.device);
  pack_weights(call, form, steps, tile, packed.as<float>());
  auto run = [&](const Epilogue& epilogue, const float* bias, float* out) {
    launch_blocks(window_kernel<kGroups, kThreadC, kWarps>, steps.blocks * steps.slices, tile,
                  shared_words(tile, steps) * sizeof(float), call.stream, form, steps, epilogue, by_quads, tile.stages,
                  call.source, static_cast<const float*>(packed.as<float>()), bias, out);
  };
  if (steps.slices == 1) return run(call.epilogue, call.bias, call.out);
  const std::int64_t rows = form.N * form.G * form.out_channels, elements = rows * form.out_length;
  const Buffer partial(static_cast<std::size_t>(steps.slices * elements) * sizeof(float), call.device);
  run({}, nullptr, partial.as<float>());
  const FastDivide by_length(static_cast<std::uint32_t>(form.out_length));
  const FastDivide by_channels(static_cast<std::uint32_t>(form.G * form.out_channels));
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>((elements + 255) / 256, 4096));
  add_slices_kernel<<<grid, 256, 0, call.stream>>>(by_length, by_channels, call.epilogue, steps.slices,
                                                   static_cast<int>(elements), partial.as<float>(), call.bias, call.out);
  check_launch("conv direct: add slices");
}

template <int kQuads>
void launch_row_of(const Call<float>& call, const TapGemm& form) {
  constexpr std::int64_t kMostBlocks = 1 << 20;
  const RowTiles tiles = row_tiles(form);
  const auto grid = static_cast<unsigned>(std::min(tiles.blocks, kMostBlocks));
  const bool wide = reinterpret_cast<std::uintptr_t>(call.out) % 16 == 0 && form.out_length % 4 == 0;
  row_kernel<kQuads><<<grid, 32 * kRowWarps, 0, call.stream>>>(
      form, call.epilogue, tiles, call.direction == ConvDirection::forward, wide, call.source, call.w, call.bias, call.out);
  check_launch("conv direct: one channel in");
}

inline void launch_row(const Call<float>& call, const TapGemm& form) {
  switch (row_quads(form)) {
    case 1:
      return launch_row_of<1>(call, form);
    case 2:
      return launch_row_of<2>(call, form);
    case 3:
      return launch_row_of<3>(call, form);
    case 4:
      return launch_row_of<4>(call, form);
    default:
      return launch_row_of<5>(call, form);
  }
}

/// The body of gather() for one dtype.
template <class T>
void gather_as(const ConvProblem& problem, ConvDirection direction, const T* source, const T* w, const T* bias, T* out,
               const Epilogue& epilogue, int device, cudaStream_t stream, int tile, int slices) {
  const TapGemm form = make_tap_gemm(problem, direction);
  const int sms = properties(device).sm_count;
  const Call<T> call{problem, direction, epilogue, source, w, bias, out, device, stream};
  if constexpr (std::is_same_v<T, double>) {
    const std::size_t i = choose(kTiles64, form, sms, false, tile).tile;
    if (i == 0) return launch_general<T, 128, 64, 4, 8>(call, form, kTiles64[i]);
    return launch_general<T, 128, 16, 4, 4>(call, form, kTiles64[i]);
  } else {
    if constexpr (std::is_same_v<T, float>) {
      if (tile < 0 && is_row(form)) return launch_row(call, form);
    }
    const Choice choice = choose(kTiles32, form, sms, std::is_same_v<T, float>, tile, slices);
    const Tile& chosen = kTiles32[choice.tile];
    if constexpr (std::is_same_v<T, float>) {
      switch (choice.tile) {
        case 8:
          return launch_window<2, 8, 8>(call, form, chosen, choice.slices);
        case 9:
          return launch_window<2, 8, 4>(call, form, chosen, choice.slices);
        case 10:
          return launch_window<1, 8, 8>(call, form, chosen, choice.slices);
        case 11:
          return launch_window<2, 8, 2>(call, form, chosen, choice.slices);
        case 12:
        case 13:
          return launch_window<1, 8, 2>(call, form, chosen, choice.slices);
        default:
          break;
      }
    }
    switch (choice.tile) {
      case 0:
        return launch_general<T, 128, 128, 4, 16>(call, form, chosen);
      case 1:
      case 2:
        return launch_general<T, 128, 64, 4, 16>(call, form, chosen);
      case 3:
        return launch_general<T, 256, 64, 8, 8>(call, form, chosen);
      case 4:
        return launch_general<T, 128, 32, 4, 16>(call, form, chosen);
      case 5:
        return launch_general<T, 256, 32, 8, 8>(call, form, chosen);
      case 6:
        return launch_general<T, 128, 16, 4, 4>(call, form, chosen);
      default:
        return launch_general<T, 512, 4, 4, 4>(call, form, chosen);
    }
  }
}

}  // namespace polyphase::cuda::direct
