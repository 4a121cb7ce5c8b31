#include "cuda/conv/tensor_core/residual_unit/tiling.hpp"

#include <doctest/doctest.h>

#include <algorithm>

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

/// check<C>()
template <class Check>
void for_channels(std::int64_t C, const Check& check) {
  switch (C) {
    case 32:
      return check.template operator()<32>();
    case 64:
      return check.template operator()<64>();
    case 96:
      return check.template operator()<96>();
    case 128:
      return check.template operator()<128>();
    case 192:
      return check.template operator()<192>();
    default:
      FAIL("no unit of ", C, " channels");
  }
}

template <int kChannels>
void check_reads(const ResidualUnit& unit, const UnitTiling& tiling) {
  using Shape = UnitShape<kChannels>;
  const std::int64_t first = unit.padding(0), second = unit.padding(1);
  // What the two convolutions of a block read lies in what it has, for the outputs in what was loaded too.
  CHECK(Shape::kPositions - 1 + tiling.offset + 2 * first < tiling.pitch);
  CHECK(Shape::kPositions - 1 + 2 * second < tiling.pitch);
  CHECK(tiling.tile + 2 * second <= Shape::kPositions);
  CHECK(tiling.tile + 2 * second + 2 * first + tiling.offset <= tiling.source_blocks * 8);
  CHECK(tiling.source_blocks * 8 <= tiling.pitch);
  CHECK(tiling.source_blocks * 8 <= tiling.source_boxes * tiling.source_width);
  CHECK(tiling.before + Shape::kPositions <= tiling.source_boxes * tiling.source_width);
  // Rows of 8 channels are in different banks; a box is no wider than a tensor map's.
  CHECK(tiling.source_width % 16 == 8);
  CHECK(tiling.source_width <= 256);
  CHECK(tiling.source_boxes <= Shape::kMostBoxes);
  // Outputs are staged in the operand. The place of every box is a multiple of 128 bytes.
  CHECK(Shape::kStagedPitch <= tiling.pitch);
  CHECK(tiling.pitch * Shape::kVectors * 16 % 128 == 0);
  CHECK(Shape::kChannels * tiling.source_width * 2 % 128 == 0);
  CHECK(tiling.tile % 8 == 0);
  CHECK(tiling.before % 8 == 0);
  CHECK(tiling.before == first + second + tiling.offset);
  CHECK(tiling.pad == second);
  CHECK(static_cast<std::int64_t>(tiling.tiles) * tiling.tile >= unit.L);
  CHECK(static_cast<std::int64_t>(tiling.tiles - 1) * tiling.tile < unit.L);
  CHECK(tiling.blocks == unit.N * tiling.tiles);
  CHECK(tiling.thread_blocks == std::min<std::int64_t>(tiling.blocks, 132 * Shape::kBlocksPerSm));
  CHECK((tiling.shared_bytes + 1024) * Shape::kBlocksPerSm <= 233472);
}

template <class Shape>
void check_f32(const ResidualUnit& unit, const UnitTiling& tiling) {
  const std::int64_t first = unit.padding(0), second = unit.padding(1);
  // All positions that the first convolution reads are loaded.
  CHECK(tiling.before == first + second);
  CHECK(tiling.offset == 0);
  CHECK(tiling.pieces % Shape::kVectors == 0);
  CHECK(tiling.pieces / Shape::kVectors * 32 >= Shape::kPositions + 2 * first);
  CHECK(tiling.pieces <= Shape::kMostPieces * Shape::kWarps);
  CHECK(Shape::kPositions + 2 * first <= tiling.pitch);
  CHECK(Shape::kPositions + 2 * second <= tiling.pitch);
  // What a warp or a warpgroup stages lies in the operand.
  const int staged = Shape::kOfPositions ? Shape::kGroups * 32 * 68 * 4 : Shape::kWarps * 16 * 40 * 4;
  CHECK(staged <= tiling.pitch * Shape::kVectors * 16);
  // The numbers of marked blocks have 4 bytes, others have 2 in each operand.
  const int more_bytes = (4 - 2 * Shape::kOperands) * Shape::kChannels * tiling.pitch;
  const int fewer_stages = Shape::kStages - UnitShape<Shape::kChannels, 4, Shape::kPasses>::kStages;
  const int with_stages =
      tiling.shared_bytes - (tiling.is_whole ? tiling.weight_bytes - Shape::kStages * Shape::kStageBytes : 0);
  CHECK(tiling.marked_shared_bytes == with_stages + more_bytes - fewer_stages * Shape::kStageBytes);
  // All weights are in shared memory wherever there is room.
  CHECK(tiling.weight_bytes == 2 * std::max(unit.K[0], unit.K[1]) * unit.C * unit.C * Shape::kWeightParts);
  const bool has_room = (with_stages + tiling.weight_bytes - Shape::kStages * Shape::kStageBytes + 1024) * 2 <= 233472;
  CHECK(tiling.is_whole == (unit.C < 96 && has_room));
  CHECK(tiling.marked_shared_bytes <= 232448);
  CHECK(tiling.tile + 2 * second <= Shape::kPositions);
  CHECK(tiling.tile % 8 == 0);
  CHECK(tiling.blocks == unit.N * tiling.tiles);
  CHECK((tiling.shared_bytes + 1024) * Shape::kBlocksPerSm <= 233472);
}

}  // namespace

TEST_CASE("residual unit: a block of f32 has what its convolutions read") {
  for (const std::int64_t C : {32, 64, 96, 128, 192})
    for (const bool is_snake : {false, true})
      for (const std::int64_t K : {1, 3, 7, 11})
        for (const std::int64_t D : {1, 3, 5, 9})
          for (const std::int64_t L : {8, 1000, 55104}) {
            if ((C % 96 == 0 && (!is_snake || K == 11)) || (K == 11 && D == 9)) continue;
            ResidualUnit unit{.N = 100,
                              .C = C,
                              .L = L,
                              .K = {K, is_snake ? 1 : K},
                              .D = {D, 1},
                              .is_snake = is_snake,
                              .dtype = DType::f32,
                              .precision = Precision::tf32};
            CAPTURE(C);
            CAPTURE(K);
            CAPTURE(D);
            CAPTURE(L);
            const auto tiling = make_unit_tiling(unit, h200());
            REQUIRE(tiling.has_value());
            for_channels(C, [&]<int kChannels>() { check_f32<UnitF32Shape<kChannels, 1>>(unit, *tiling); });
            if (C % 96 == 0) continue;
            unit.precision = Precision::fp32;
            const auto in_parts = make_unit_tiling(unit, h200());
            REQUIRE(in_parts.has_value());
            for_channels(C, [&]<int kChannels>() { check_f32<UnitF32Shape<kChannels, 3>>(unit, *in_parts); });
          }
}

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
          for_channels(C, [&]<int kChannels>() { check_reads<kChannels>(unit, *tiling); });
        }
}

TEST_CASE("residual unit: with Snake too") {
  for (const std::int64_t C : {96, 128, 192})
    for (const std::int64_t D : {1, 3, 9})
      for (const std::int64_t L : {8, 128, 1000, 55104}) {
        const ResidualUnit unit{
            .N = L > 1000 ? 1 : 100, .C = C, .L = L, .K = {7, 1}, .D = {D, 1}, .is_snake = true, .dtype = DType::bf16};
        CAPTURE(C);
        CAPTURE(D);
        CAPTURE(L);
        const auto tiling = make_unit_tiling(unit, h200());
        REQUIRE(tiling.has_value());
        CHECK(tiling->kind == UnitKind::snake);
        for_channels(C, [&]<int kChannels>() { check_reads<kChannels>(unit, *tiling); });
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
  CHECK(refused([](ResidualUnit& unit) { unit.dtype = DType::f32, unit.precision = Precision::ieee; }));
  CHECK_FALSE(refused([](ResidualUnit& unit) { unit.dtype = DType::f32, unit.precision = Precision::fp32; }));
  CHECK_FALSE(refused([](ResidualUnit& unit) { unit.dtype = DType::f32, unit.precision = Precision::tf32; }));
  CHECK(refused([](ResidualUnit& unit) {
    unit.dtype = DType::f32, unit.precision = Precision::tf32, unit.N = 1, unit.L = (1 << 24) + 8;  // offsets of 32 bits
  }));
  // There is no room for the operand of marked blocks.
  const auto wide = [](ResidualUnit& unit, std::int64_t padding) {
    unit.dtype = DType::f32, unit.precision = Precision::tf32, unit.C = 128, unit.K = {1, 3}, unit.D = {1, padding};
  };
  CHECK_FALSE(refused([&](ResidualUnit& unit) { wide(unit, 44); }));
  CHECK(refused([&](ResidualUnit& unit) { wide(unit, 45); }));
  CHECK(refused([](ResidualUnit& unit) { unit.C = 96; }));
  CHECK(refused([](ResidualUnit& unit) { unit.L = 1001; }));
  CHECK(refused([](ResidualUnit& unit) { unit.D[0] = 100; }));
  CHECK(refused([](ResidualUnit& unit) { unit.scale = 2; }));
  CHECK_FALSE(refused([](ResidualUnit& unit) { unit.N = 1000, unit.C = 32; }));
  CHECK_FALSE(refused([](ResidualUnit& unit) { unit.N = 1000, unit.C = 128; }));
  CHECK(refused([](ResidualUnit& unit) { unit.N = 1, unit.C = 128, unit.K = {11, 11}; }));
  CHECK_FALSE(refused([](ResidualUnit& unit) { unit.N = 1, unit.C = 128, unit.K = {3, 3}; }));
}
