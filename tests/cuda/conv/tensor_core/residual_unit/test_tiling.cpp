#include "cuda/conv/tensor_core/residual_unit/tiling.hpp"

#include <doctest/doctest.h>

#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::cuda;
using namespace polyphase::cuda::tensor_core;

namespace {

DeviceProperties h200() {
  DeviceProperties gpu;
  gpu.major = 9, gpu.sm_count = 132, gpu.shared_bytes_per_block = 232448;
  return gpu;
}

template <int kChannels>
void check_reads(const ResidualUnit& unit, const UnitTiling& tiling) {
  using Shape = UnitShape<kChannels>;
  const std::int64_t first = unit.padding(0), second = unit.padding(1);
  // What the two convolutions of a block read lies in what it has, for the outputs in what was loaded too.
  CHECK(Shape::kPositions - 1 + tiling.offset + 2 * first < tiling.source_pitch);
  CHECK(Shape::kPositions - 1 + 2 * second < tiling.middle_pitch);
  CHECK(tiling.tile + 2 * second <= Shape::kPositions);
  CHECK(tiling.tile + 2 * second + 2 * first + tiling.offset <= tiling.source_blocks * 8);
  CHECK(tiling.source_blocks * 8 <= tiling.source_pitch);
  // A thread loads no more than two patches of 8 x 8.
  CHECK((tiling.source_blocks + 7) / 8 * 8 * Shape::kVectors <= 2 * Shape::kThreads);
  // Outputs are staged where the source was.
  CHECK(Shape::kPositions + 8 <= tiling.source_pitch);
  // Vectors of neighbouring channels are in different banks; loads are aligned.
  CHECK(tiling.source_pitch % 8 == 1);
  CHECK(tiling.middle_pitch % 8 == 1);
  CHECK(tiling.tile % 8 == 0);
  CHECK(tiling.before % 8 == 0);
  CHECK(tiling.before == first + second + tiling.offset);
  CHECK(tiling.pad == second);
  CHECK(static_cast<std::int64_t>(tiling.tiles) * tiling.tile >= unit.L);
  CHECK(static_cast<std::int64_t>(tiling.tiles - 1) * tiling.tile < unit.L);
  CHECK(tiling.shared_bytes * Shape::kBlocksPerSm + 1024 * Shape::kBlocksPerSm <= 233472);
}

}  // namespace

TEST_CASE("residual unit: a block has what its convolutions read") {
  for (const std::int64_t C : {32, 64, 128})
    for (const std::int64_t K : {1, 3, 5, 7, 11})
      for (const std::int64_t D : {1, 2, 3, 5})
        for (const std::int64_t L : {8, 248, 256, 1000, 55104}) {
          const ResidualUnit unit{.N = L > 1000 ? 1 : 100, .C = C, .L = L, .K = {K, K}, .D = {D, 1}, .dtype = DType::f16};
          CAPTURE(C);
          CAPTURE(K);
          CAPTURE(D);
          CAPTURE(L);
          const auto tiling = make_unit_tiling(unit, h200());
          REQUIRE(tiling.has_value());
          if (C == 32) check_reads<32>(unit, *tiling);
          if (C == 64) check_reads<64>(unit, *tiling);
          if (C == 128) check_reads<128>(unit, *tiling);
        }
}

TEST_CASE("residual unit: other dtypes, channels, lengths, and what is slower, are computed in steps") {
  const ResidualUnit good{.N = 100, .C = 64, .L = 1000, .K = {7, 7}, .D = {3, 1}, .dtype = DType::bf16};
  CHECK(make_unit_tiling(good, h200()).has_value());
  const auto refused = [&](auto change) {
    ResidualUnit unit = good;
    change(unit);
    return !make_unit_tiling(unit, h200()).has_value();
  };
  CHECK(refused([](ResidualUnit& unit) { unit.dtype = DType::f32; }));
  CHECK(refused([](ResidualUnit& unit) { unit.C = 96; }));
  CHECK(refused([](ResidualUnit& unit) { unit.L = 1001; }));
  CHECK(refused([](ResidualUnit& unit) { unit.D[0] = 100; }));
  CHECK_FALSE(refused([](ResidualUnit& unit) { unit.N = 1000, unit.C = 32; }));
  CHECK_FALSE(refused([](ResidualUnit& unit) { unit.N = 1000, unit.C = 128; }));
  CHECK(refused([](ResidualUnit& unit) { unit.N = 1, unit.C = 128, unit.K = {11, 11}; }));
  CHECK_FALSE(refused([](ResidualUnit& unit) { unit.N = 1, unit.C = 128, unit.K = {3, 3}; }));
}
