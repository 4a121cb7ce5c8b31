#include "cuda/conv/tensor_core/wgrad/mma_sync/mma_sync.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/conv/tensor_core/wgrad/mma_sync/tiling.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

namespace {

constexpr int kSharedLeast = 99 * 1024, kSharedOfAmpere = 163 * 1024;
constexpr std::size_t kLimit = std::size_t{1} << 28;

std::vector<ConvProblem> problems() { return thinned(random_wgrads(23, 40)); }

bool has_tensor_cores() { return cuda::device_count() > 0 && cuda::properties(0).arch() >= 80; }

/// Every kernel and side that fits into `limit` bytes of workspace, bit for bit against the reference on small integers.
/// Returns the norm of what was compared.
template <class E>
double check_bits(ConvProblem p, Precision precision, std::int64_t misalignment, std::size_t limit) {
  p.dtype = dtype_of<E>;
  const bool is_f32 = p.dtype == DType::f32;
  const int parts = is_f32 && precision != Precision::tf32 ? 2 : 1;
  const ConvArrays<E> arrays(p, kSmallIntegers);
  const Array<E> expected = arrays.run(ConvDirection::wgrad, Algorithm::reference);
  const cuda::DeviceProperties& gpu = cuda::properties(0);
  double norm = 0;
  for (std::size_t shape = 0; shape < tensor_core::mma_wgrad_shapes(parts).size(); ++shape) {
    for (const bool swapped : {false, true}) {
      const auto tiling = tensor_core::make_mma_wgrad_tiling(p, static_cast<int>(shape), swapped, parts, gpu.sm_count,
                                                             gpu.shared_bytes_per_block, limit);
      if (tiling.stages == 0) continue;
      const auto call = [&](const GpuCall& gpu_call) {
        tensor_core::WgradScales values{};
        values.x_largest[0] = values.y_largest[0] = 0x40000000U;  // 2
        const DeviceBytes scales(sizeof(values));
        CHECK_CUDA(cudaMemcpy(scales.data(), &values, sizeof(values), cudaMemcpyHostToDevice));
        CHECK_CUDA(cudaDeviceSynchronize());
        tensor_core::mma_wgrad_as(
            {gpu_call.problem, gpu_call.first, gpu_call.second, gpu_call.out,
             is_f32 ? static_cast<tensor_core::WgradScales*>(scales.data()) : nullptr, 0, gpu_call.stream},
            precision, tiling);
        CHECK_CUDA(cudaMemcpyAsync(&values, scales.data(), sizeof(values), cudaMemcpyDeviceToHost, gpu_call.stream));
        CHECK_CUDA(cudaStreamSynchronize(gpu_call.stream));
        CHECK(values.small == 0);
      };
      bool intact = false;
      const Array<E> got = run_on_gpu(arrays, ConvDirection::wgrad, call, intact, true, misalignment);
      CHECK_MESSAGE(same_bits(got, expected), p, ' ', precision, " shape ", shape, " swapped ", swapped, " pieces ",
                    tiling.pieces, " misaligned by ", misalignment);
      CHECK_MESSAGE(intact, p, ": wrote outside its output");
      norm += expected.norm();
    }
  }
  return norm;
}

}  // namespace

TEST_CASE("tiles, slices and pieces cover the problem, fit shared memory and keep the limit") {
  for (const ConvProblem& p : problems()) {
    for (const int shared : {kSharedLeast, kSharedOfAmpere}) {
      for (const int parts : {1, 2}) {
        int done = 0;
        const auto shapes = tensor_core::mma_wgrad_shapes(parts);
        for (std::size_t shape = 0; shape < shapes.size(); ++shape) {
          for (const bool swapped : {false, true}) {
            for (const std::size_t limit : {kLimit, std::size_t{1} << 21}) {
              const auto tiling =
                  tensor_core::make_mma_wgrad_tiling(p, static_cast<int>(shape), swapped, parts, 108, shared, limit);
              if (tiling.stages == 0) continue;
              ++done;
              CHECK(tiling.stages >= 2);
              CHECK(tiling.shared_bytes * shapes[shape].blocks_per_sm <= shared);
              CHECK(tiling.bytes() <= static_cast<std::int64_t>(limit));
              CHECK(std::int64_t{tiling.q} * p.D == std::int64_t{tiling.d} * p.S);
              CHECK(std::int64_t{tiling.q} * tiling.shifts >= p.K);
              CHECK(tiling.shift_tiles * tiling.shifts_of_tile >= tiling.shifts);
              CHECK(tiling.row_tiles * tiling.rows.tile >= tiling.rows.blocks);
              CHECK(tiling.column_tiles * tiling.vectors_of_tile >= tiling.vectors);
              CHECK(tiling.window >= tiling.step + (tiling.shifts_of_tile - 1) * tiling.d);
              CHECK(tiling.piece % tiling.step == 0);
              CHECK(tiling.pieces * tiling.piece >= p.N * tiling.pitch);
              CHECK(tiling.places >= tiling.piece + tiling.halo + tiling.window - tiling.step);
              CHECK(tiling.slices * tiling.steps_of_slice >= tiling.steps);
              CHECK((tiling.slices - 1) * tiling.steps_of_slice < tiling.steps);
              // Shared memory has room for the blocks of every tile's columns.
              for (int tile = 0; tile < tiling.column_tiles; ++tile) {
                const int first = tile * tiling.vectors_of_tile;
                const int last = std::min(first + tiling.vectors_of_tile, tiling.vectors) - 1;
                CHECK(last / tiling.shifts_of_tile - first / tiling.shifts_of_tile < tiling.columns.tile);
              }
              CHECK(tensor_core::mma_wgrad_cycles(tiling, parts, 108) > 0);
            }
          }
        }
        CHECK_MESSAGE(done > 0, p);
      }
    }
  }
}

TEST_CASE("a long line is done in pieces, and tensor cores add up 16384 positions at most") {
  const ConvProblem p = sized({.N = 4, .C_in = 64, .C_out = 64, .L_in = 8'000'000, .K = 3, .P_l = 1, .P_r = 1});
  const auto tiling = tensor_core::plan_mma_wgrad(p, 1, 108, kSharedOfAmpere, kLimit);
  REQUIRE(tiling.has_value());
  CHECK(tiling->pieces > 1);
  CHECK(tiling->steps_of_slice * tiling->step <= 16384 + tiling->step);
  CHECK_FALSE(tensor_core::plan_mma_wgrad(p, 1, 108, kSharedOfAmpere, 1 << 10).has_value());
  const auto reason = tensor_core::mma_wgrad_problem(p, Precision::tf32, 108, 1 << 10);
  REQUIRE(reason.has_value());
  CHECK(reason->find("no tile of it fits 1024 bytes of shared memory") != std::string::npos);
}

TEST_CASE("small integers, bit for bit: every kernel, side, type and precision, in one piece and in several") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  double norm = 0;
  int turn = 0;
  for (const ConvProblem& p : problems()) {
    const std::size_t limit = turn % 3 == 0 ? std::size_t{1} << 21 : kLimit;
    norm += check_bits<float>(p, Precision::fp32, turn % 5, limit);
    norm += check_bits<float>(p, Precision::tf32, turn % 3, limit);
    norm += turn % 2 == 0 ? check_bits<Half>(p, Precision::fp32, turn % 9, limit)
                          : check_bits<BFloat16>(p, Precision::fp32, turn % 9, limit);
    ++turn;
  }
  CHECK(norm > 0);
}
