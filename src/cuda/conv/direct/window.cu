// Launches of the window kernel and of the kernel for one input channel (both f32).
#include "cuda/conv/direct/launch.cuh"
#include "cuda/conv/direct/row.cuh"
#include "cuda/conv/direct/window.cuh"

namespace polyphase::cuda::direct {
namespace {

template <int kGroups, int kThreadC, int kWarps>
void launch_window(const Call<float>& call, TapGemm gemm, const Tile& tile, int slices) {
  const bool by_quads = shift_to_quads(gemm, call.source);
  Steps steps = make_window_steps(gemm, tile);
  split_steps(steps, slices);
  const auto packed = packed_weights<float, float>(call, gemm, steps, tile);
  auto run = [&](const Epilogue& epilogue, const float* bias, float* out) {
    launch_blocks(window_kernel<kGroups, kThreadC, kWarps>, steps.blocks * steps.slices, tile,
                  shared_words(tile, steps) * sizeof(float), call.stream, gemm, steps, epilogue, by_quads, tile.stages,
                  call.source, static_cast<const float*>(packed->as<float>()), bias, out);
  };
  if (steps.slices == 1) return run(call.epilogue, call.bias, call.out);
  const std::int64_t rows = gemm.N * gemm.G * gemm.out_channels, elements = rows * gemm.out_length;
  const Buffer partial(static_cast<std::size_t>(steps.slices * elements) * sizeof(float), call.device);
  run({}, nullptr, partial.as<float>());
  const FastDivide by_length(static_cast<std::uint32_t>(gemm.out_length));
  const FastDivide by_channels(static_cast<std::uint32_t>(gemm.G * gemm.out_channels));
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>((elements + 255) / 256, 4096));
  add_slices_kernel<<<grid, 256, 0, call.stream>>>(by_length, by_channels, call.epilogue, steps.slices,
                                                   static_cast<int>(elements), partial.as<float>(), call.bias, call.out);
  check_launch("conv direct: add slices");
}

template <int kQuads>
void launch_row_of(const Call<float>& call, const TapGemm& gemm) {
  constexpr std::int64_t kMostBlocks = 1 << 20;
  const RowTiles tiles = row_tiles(gemm);
  const auto grid = static_cast<unsigned>(std::min(tiles.blocks, kMostBlocks));
  const bool wide = reinterpret_cast<std::uintptr_t>(call.out) % 16 == 0 && gemm.out_length % 4 == 0;
  row_kernel<kQuads><<<grid, 32 * kRowWarps, 0, call.stream>>>(
      gemm, call.epilogue, tiles, call.direction == ConvDirection::forward, wide, call.source,
      static_cast<const float*>(call.weights.data()), call.bias, call.out);
  check_launch("conv direct: one channel in");
}

}  // namespace

void launch_row(const Call<float>& call, const TapGemm& gemm) {
  switch (row_quads(gemm)) {
    case 1:
      return launch_row_of<1>(call, gemm);
    case 2:
      return launch_row_of<2>(call, gemm);
    case 3:
      return launch_row_of<3>(call, gemm);
    case 4:
      return launch_row_of<4>(call, gemm);
    default:
      return launch_row_of<5>(call, gemm);
  }
}

void launch_windows(const Call<float>& call, const TapGemm& gemm, const Choice& choice) {
  const Tile& tile = kTiles32[choice.tile];
  switch (choice.tile) {
    case 8:
      return launch_window<2, 8, 8>(call, gemm, tile, choice.slices);
    case 9:
      return launch_window<2, 8, 4>(call, gemm, tile, choice.slices);
    case 10:
      return launch_window<1, 8, 8>(call, gemm, tile, choice.slices);
    case 11:
      return launch_window<2, 8, 2>(call, gemm, tile, choice.slices);
    default:
      return launch_window<1, 8, 2>(call, gemm, tile, choice.slices);
  }
}

}  // namespace polyphase::cuda::direct
