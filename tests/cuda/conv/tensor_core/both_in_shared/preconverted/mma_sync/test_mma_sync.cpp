#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "conv/workspace.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/cuda.hpp"
#include "cuda/memory/allocator.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

namespace {

constexpr int kSharedLeast = 99 * 1024, kSharedOfAmpere = 163 * 1024;
constexpr ConvDirection kGathers[] = {ConvDirection::forward, ConvDirection::dgrad};

/// Strides, dilations, groups, paddings, batches and lengths near the tile sizes. Classes that fill a row, and classes with
/// outputs between them that no tap reaches. Taps that share a window and taps that are far apart.
std::vector<ConvProblem> mma_problems() {
  return thinned(random_gathers(17, {1, 2, 31, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 513}, true));
}

bool has_tensor_cores() { return cuda::device_count() > 0 && cuda::properties(0).arch() >= 80; }

template <class E>
int parts_of(Precision precision) {
  return dtype_of<E> == DType::f32 && precision != Precision::tf32 ? 2 : 1;
}

/// The call for run_on_gpu.
auto by_plan(const tensor_core::PreconvertedPlan& plan, Precision precision, const cuda::Epilogue& epilogue = {}) {
  return [plan, precision, epilogue](const GpuCall& call) {
    const cuda::Buffer packed(static_cast<std::size_t>(tensor_core::preconverted_weight_bytes(plan)), 0);
    tensor_core::preconverted_pack_weights(call.problem, call.direction, precision, plan, call.second, packed.as<void>(),
                                           call.stream);
    tensor_core::preconverted_gather(call.problem, call.direction, precision, plan, call.first, {}, call.second,
                                     packed.as<void>(), call.bias, call.out, epilogue, 0, call.stream);
  };
}

/// One kernel's plan for all samples; empty if it does not fit.
std::optional<tensor_core::PreconvertedPlan> plan_of(const ConvProblem& p, ConvDirection direction, std::size_t shape,
                                                     int parts, int slices) {
  const cuda::DeviceProperties& gpu = cuda::properties(0);
  const tensor_core::PreconvertedTiling tiling =
      tensor_core::make_mma_tiling(cuda::make_tap_gemm(p, direction), tensor_core::mma_shapes(parts)[shape], parts, 4, slices,
                                   gpu.sm_count, gpu.shared_bytes_per_block);
  if (tiling.count == 0) return std::nullopt;
  return tensor_core::PreconvertedPlan{static_cast<int>(shape), p.N, tiling, true};
}

/// Every kernel, forward and dgrad, bit for bit against the reference on small integers. Returns the norm of what was compared.
template <class E>
double check_bits(ConvProblem p, Precision precision, int slices, std::int64_t misalignment) {
  p.dtype = dtype_of<E>;
  const ConvArrays<E> arrays(p, kSmallIntegers);
  const int parts = parts_of<E>(precision);
  const auto shapes = tensor_core::mma_shapes(parts);
  const cuda::DeviceProperties& gpu = cuda::properties(0);
  double norm = 0;
  for (const ConvDirection direction : kGathers) {
    const Array<E> expected = arrays.run(direction, Algorithm::reference);
    for (std::size_t shape = 0; shape < shapes.size(); ++shape) {
      ConvProblem piece = p;
      piece.N = slices > 1 ? (p.N + 1) / 2 : p.N;  // samples in two passes; the second may have fewer
      const tensor_core::PreconvertedTiling tiling =
          tensor_core::make_mma_tiling(cuda::make_tap_gemm(piece, direction), shapes[shape], parts, int{sizeof(E)}, slices,
                                       gpu.sm_count, gpu.shared_bytes_per_block);
      if (tiling.count == 0) continue;
      const tensor_core::PreconvertedPlan plan{static_cast<int>(shape), piece.N, tiling, true};
      bool intact = false;
      const Array<E> got = run_on_gpu(arrays, direction, by_plan(plan, precision), intact, true, misalignment);
      CHECK_MESSAGE(same_bits(got, expected), p, ' ', direction, ' ', precision, " shape ", shape, " slices ", slices,
                    " misaligned by ", misalignment);
      CHECK_MESSAGE(intact, p, ' ', direction, ": wrote outside its output");
      norm += expected.norm();
    }
  }
  return norm;
}

}  // namespace

TEST_CASE("steps fit shared memory, a part of a tile fits it when it is stored, and some shape does every problem") {
  for (const ConvProblem& p : mma_problems()) {
    for (const ConvDirection direction : kGathers) {
      const cuda::TapGemm gemm = cuda::make_tap_gemm(p, direction);
      for (const int shared : {kSharedLeast, kSharedOfAmpere, kSharedOfHopper}) {
        for (const int parts : {1, 2}) {
          int done = 0;
          for (const tensor_core::MmaShape& shape : tensor_core::mma_shapes(parts)) {
            for (const int slices : {1, 3}) {
              const int bytes = parts == 2 ? 4 : 2;
              const tensor_core::PreconvertedTiling tiling =
                  tensor_core::make_mma_tiling(gemm, shape, parts, bytes, slices, 132, shared);
              if (tiling.count == 0) continue;
              ++done;
              CHECK(tiling.shared_bytes * shape.blocks_per_sm <= shared);
              CHECK(tiling.stages >= 2);
              CHECK(tiling.stages <= tensor_core::kMmaStagesMost);
              CHECK(tiling.tile_columns == 64 * shape.column_warps);
              CHECK(tiling.tile_positions == shape.position_warps * tensor_core::mma_positions_of_warp(parts));
              CHECK(tensor_core::mma_cycles(gemm, tiling, shape, 132) > 0);
              const int warps = tensor_core::mma_warps_of_pass(gemm, tiling, shape, bytes);
              CHECK(shape.position_warps % warps == 0);
              const std::int64_t positions = warps * (tiling.tile_positions / shape.position_warps);
              const std::int64_t rows = tiling.interleaved ? tiling.usable / gemm.classes : 64;
              const std::int64_t run = tiling.interleaved ? gemm.out_stride * positions : positions;
              CHECK(shape.column_warps * rows * (run * bytes + 16) <= tiling.shared_bytes);
            }
          }
          CHECK_MESSAGE(done > 0, p, ' ', direction);
        }
      }
    }
  }
}

TEST_CASE("plans keep the workspace's limit, and few positions are cut into slices") {
  const ConvProblem few = sized({.N = 1, .C_in = 256, .C_out = 1024, .L_in = 100, .K = 16, .S = 8, .P_l = 4, .P_r = 4});
  const auto plan = tensor_core::make_mma_plan(few, ConvDirection::dgrad, Precision::fp32, 108, kSharedOfAmpere);
  REQUIRE(plan.has_value());
  CHECK(plan->is_mma);
  CHECK(plan->tiling.slices > 1);
  const ConvProblem much = sized({.N = 64, .C_in = 256, .C_out = 256, .L_in = 65536, .K = 3, .P_l = 1, .P_r = 1});
  const auto pieces = tensor_core::make_mma_plan(much, ConvDirection::forward, Precision::fp32, 108, kSharedOfAmpere);
  REQUIRE(pieces.has_value());
  CHECK(pieces->samples < 64);
  CHECK(pieces->samples >= 1);
  CHECK(pieces->tiling.source.bytes(1) + pieces->tiling.partial_bytes <= static_cast<std::int64_t>(conv_workspace_limit()));
}

TEST_CASE("small integers, bit for bit: every kernel, type and precision, one slice and three") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  double norm = 0;
  int turn = 0;
  for (const ConvProblem& p : mma_problems()) {
    const int slices = turn % 2 == 0 ? 1 : 3;
    norm += check_bits<float>(p, Precision::fp32, slices, turn % 5);
    norm += check_bits<float>(p, Precision::tf32, slices, turn % 3);
    if (turn % 2 == 0) norm += check_bits<Half>(p, Precision::fp32, slices, turn % 9);
    if (turn % 2 == 1) norm += check_bits<BFloat16>(p, Precision::fp32, slices, turn % 9);
    ++turn;
  }
  CHECK(norm > 0);
}

TEST_CASE("infinities, NaN and numbers of all sizes come out as from plain sums") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  // One of three classes has fewer taps, so that operands hold zeros next to the infinity.
  const ConvProblem p = sized({.N = 2, .C_in = 40, .C_out = 48, .L_in = 300, .K = 5, .S = 3, .P_l = 2, .P_r = 1});
  const cuda::DeviceProperties& gpu = cuda::properties(0);
  ConvArrays<float> arrays(p, kSmallIntegers);
  make_unusual(arrays, 15000);
  for (std::int64_t i = 2000; i < 2050; ++i) arrays.x[i] = std::ldexp(3.0F, -140);
  for (const ConvDirection direction : kGathers) {
    const auto plan = tensor_core::make_mma_plan(p, direction, Precision::fp32, gpu.sm_count, gpu.shared_bytes_per_block);
    REQUIRE(plan.has_value());
    bool intact = false;
    const Array<float> expected = arrays.run(direction, Algorithm::reference);
    const Array<float> got = run_on_gpu(arrays, direction, by_plan(*plan, Precision::fp32), intact);
    check_unusual(got, expected, direction);
  }
}

TEST_CASE("many short samples in a tile, with and without an activation") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  // Rows whose length is a multiple of 16 bytes, and others.
  for (const std::int64_t right : {4, 3}) {
    const ConvProblem p = sized({.N = 41, .C_in = 40, .C_out = 24, .L_in = 9, .K = 16, .S = 8, .P_l = 4, .P_r = right});
    const ConvArrays<float> arrays(p, kSmallIntegers);
    for (const bool active : {false, true}) {
      const cuda::Epilogue epilogue{active ? Activation::relu : Activation::none};
      Array<float> expected = arrays.run(ConvDirection::forward, Algorithm::reference);
      for (std::int64_t i = 0; active && i < expected.size(); ++i) expected[i] = std::max(expected[i], 0.0F);
      for (const Precision precision : {Precision::fp32, Precision::tf32}) {
        const int parts = parts_of<float>(precision);
        for (std::size_t shape = 0; shape < tensor_core::mma_shapes(parts).size(); ++shape) {
          const auto plan = plan_of(p, ConvDirection::forward, shape, parts, 1);
          REQUIRE(plan.has_value());
          bool intact = false;
          const Array<float> got = run_on_gpu(arrays, ConvDirection::forward, by_plan(*plan, precision, epilogue), intact);
          CHECK_MESSAGE(same_bits(got, expected), p, ' ', precision, " shape ", shape, (active ? " relu" : ""));
          CHECK(intact);
        }
      }
    }
  }
}

TEST_CASE("numbers too small for f16 cost few sums in every kernel, and sums near zero are corrected") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  const ConvProblem p = sized({.N = 3, .C_in = 72, .C_out = 40, .L_in = 160, .K = 8, .S = 4, .P_l = 2, .P_r = 2});
  for (const bool in_weights : {false, true}) {
    ConvArrays<float> arrays(p, kNormal);
    auto& spoilt = in_weights ? arrays.w : arrays.x;
    for (std::int64_t i = 0; i < spoilt.size(); ++i)
      if (i % 4999 == 5) spoilt[i] = std::ldexp(1.0F, -40);
    // The last sample has only numbers that are too small.
    for (std::int64_t i = 0; i < arrays.bias_out.size(); ++i) arrays.bias_out[i] = 0;
    for (std::int64_t i = 2 * p.C_in * p.L_in; !in_weights && i < arrays.x.size(); ++i) arrays.x[i] *= 0x1p-40F;
    for (std::size_t shape = 0; shape < tensor_core::mma_shapes(2).size(); ++shape) {
      for (const int slices : {1, 3}) {
        const auto plan = plan_of(p, ConvDirection::forward, shape, 2, slices);
        REQUIRE(plan.has_value());
        bool intact = false;
        const std::uint64_t before = cuda::computed_again();
        const Array<float> got = run_on_gpu(arrays, ConvDirection::forward, by_plan(*plan, Precision::fp32), intact);
        const auto again = static_cast<std::int64_t>(cuda::computed_again() - before);
        const std::int64_t of_sample = p.C_out * p.L_out;
        CHECK_MESSAGE(again < (in_weights ? 0 : of_sample) + of_sample / 8, (in_weights ? " weights" : " source"));
        CHECK_MESSAGE(again >= (in_weights ? 0 : of_sample / 2), (in_weights ? " weights" : " source"));
        check_as_accurate_as_plain(got, arrays, ConvDirection::forward, p);
      }
    }
  }
}
