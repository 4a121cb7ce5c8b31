#include "cuda/conv/tensor_core/residual_unit/tiling.hpp"

#include <algorithm>
#include <iterator>

#include "cuda/runtime/fork.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr std::int64_t kMostLength = 1 << 30;
constexpr std::int64_t kMostNumbers = 1 << 30;  // of a sample of f32: its offsets have 32 bits
constexpr int kReserved = 1024;                 // bytes of shared memory by the system, of each thread block

int rounded_up(std::int64_t value) { return static_cast<int>((value + 7) / 8 * 8); }

/// Whether the steps take less time, as measured on an H200 (docs/kernels/residual_unit.md).
bool is_faster_in_steps(const ResidualUnit& unit, const UnitTiling& tiling, const DeviceProperties& gpu) {
  return unit.C == 128 && unit.K[0] + unit.K[1] > 14 && tiling.blocks < gpu.sm_count / 2;
}

/// The source is copied to shared memory as it is, the operand also has the outputs. False: there is no room.
template <class Shape>
bool place_16_bits(const ResidualUnit& unit, UnitTiling& tiling) {
  const std::int64_t first = unit.padding(0), second = unit.padding(1);
  tiling.before = rounded_up(first + second);
  tiling.offset = tiling.before - static_cast<int>(first + second);
  tiling.source_blocks = rounded_up(tiling.tile + 2 * (first + second) + tiling.offset) / 8;
  constexpr int kWidest = 248;  // of a box: the odd multiple of 8 below the 256 of a tensor map
  const int read = std::max(tiling.source_blocks * 8, tiling.before + Shape::kPositions);
  tiling.source_boxes = (read + kWidest - 1) / kWidest;
  if (tiling.source_boxes > Shape::kMostBoxes) return false;
  tiling.source_width = 8 * (rounded_up((read + tiling.source_boxes - 1) / tiling.source_boxes) / 8 | 1);
  // Source, middle and outputs take turns.
  tiling.pitch = std::max({rounded_up(Shape::kPositions + 2 * first + tiling.offset),
                           rounded_up(Shape::kPositions + 2 * second), Shape::kStagedPitch});
  tiling.shared_bytes = tiling.source_boxes * Shape::kChannels * tiling.source_width * 2;
  return true;
}

/// The source of every position of the middle goes through registers, because the largest number of a block counts.
template <class Shape>
bool place_f32(const ResidualUnit& unit, UnitTiling& tiling) {
  const std::int64_t first = unit.padding(0), second = unit.padding(1);
  tiling.before = static_cast<int>(first + second);
  tiling.pieces = (Shape::kPositions + 2 * static_cast<int>(first) + 31) / 32 * Shape::kVectors;
  tiling.pitch = rounded_up(Shape::kPositions + 2 * std::max(first, second));
  tiling.shared_bytes = 2 * Shape::kChannels * kUnitChannelBytes;
  return tiling.pieces <= Shape::kMostPieces * Shape::kWarps && unit.C * unit.L <= kMostNumbers;
}

template <class Shape>
std::optional<UnitTiling> tiling_of(const ResidualUnit& unit, const DeviceProperties& gpu) {
  using MarkedShape = UnitShape<Shape::kChannels, 4, Shape::kPasses>;
  constexpr int kOperandBytes = Shape::kOperandVectors * Shape::kOperands * 16,
                kMarkedBytes = MarkedShape::kOperandVectors * 16;
  const std::int64_t second = unit.padding(1);
  if (2 * (unit.padding(0) + second) > Shape::kPositions / 2) return std::nullopt;  // more is computed twice
  UnitTiling tiling;
  tiling.length = static_cast<int>(unit.L);
  tiling.tile = static_cast<int>((Shape::kPositions - 2 * second) / 8 * 8);
  tiling.tiles = static_cast<int>((unit.L + tiling.tile - 1) / tiling.tile);
  tiling.pad = static_cast<int>(second);
  if (!(unit.dtype == DType::f32 ? place_f32<Shape>(unit, tiling) : place_16_bits<Shape>(unit, tiling))) return std::nullopt;
  for (std::size_t i = 0; i < 2; ++i) {
    tiling.taps[i] = static_cast<int>(unit.K[i]);
    tiling.step[i] = static_cast<int>(unit.D[i]);
    tiling.slope[i] = static_cast<float>(unit.slope[i]);
  }
  if (unit.is_snake)
    tiling.kind = UnitKind::snake;
  else if (std::all_of(std::begin(tiling.slope), std::end(tiling.slope), [](float slope) { return slope > 0 && slope <= 1; }))
    tiling.kind = UnitKind::plain;
  tiling.blocks = unit.N * tiling.tiles;
  tiling.shared_bytes += 128 + Shape::kBarrierBytes + Shape::kBiasBytes + tiling.pitch * kOperandBytes +
                         Shape::kStages * Shape::kStageBytes + (unit.is_snake ? Shape::kSnakeBytes : 0);
  if (unit.dtype == DType::f32)
    tiling.marked_shared_bytes = tiling.shared_bytes + tiling.pitch * (kMarkedBytes - kOperandBytes) +
                                 (MarkedShape::kStages - Shape::kStages) * Shape::kStageBytes;
  if (std::max(tiling.shared_bytes, tiling.marked_shared_bytes) > gpu.shared_bytes_per_block || tiling.blocks > INT32_MAX)
    return std::nullopt;
  const auto fit = [&](int bytes) {
    return (bytes + kReserved) * Shape::kBlocksPerSm <= gpu.shared_bytes_per_block + kReserved;
  };
  tiling.weight_bytes = std::max(tiling.taps[0], tiling.taps[1]) * Shape::kParts * Shape::kWeightParts * Shape::kStageBytes;
  const int with_weights = tiling.shared_bytes + tiling.weight_bytes - Shape::kStages * Shape::kStageBytes;
  tiling.is_whole = Shape::kMayBeWhole && fit(with_weights);
  if (tiling.is_whole) tiling.shared_bytes = with_weights;
  const bool fits = fit(tiling.shared_bytes);
  tiling.thread_blocks =
      static_cast<int>(std::min(tiling.blocks, static_cast<std::int64_t>(gpu.sm_count) * (fits ? Shape::kBlocksPerSm : 1)));
  if (is_faster_in_steps(unit, tiling, gpu)) return std::nullopt;
  return tiling;
}

/// MarkedOf: the shape of the kernel of the marked blocks, in 16 bits Of.
template <class Of, class MarkedOf>
std::optional<UnitTiling> depthwise_tiling_of(const ResidualUnit& unit, const DeviceProperties& gpu) {
  using Shape = DepthwiseUnitShape<Of, true>;
  using MarkedShape = DepthwiseUnitShape<MarkedOf, false>;
  const std::int64_t reach = 2 * unit.padding(0);
  if (reach > kUnitRowReach || unit.C * unit.L > kMostNumbers) return std::nullopt;
  UnitTiling tiling;
  tiling.length = static_cast<int>(unit.L);
  tiling.tile = tiling.pitch = Shape::kPositions;
  tiling.tiles = (tiling.length + tiling.tile - 1) / tiling.tile;
  tiling.before = static_cast<int>(unit.padding(0));
  tiling.pieces = (Shape::kPositions + static_cast<int>(reach) + 31) / 32 * Shape::kVectors;
  tiling.taps[1] = tiling.step[1] = 1;
  tiling.row_taps = static_cast<int>(unit.K[0]), tiling.row_step = static_cast<int>(unit.D[0]);
  tiling.kind = UnitKind::snake;
  tiling.is_whole = true;
  tiling.weight_bytes = Shape::kParts * Shape::kWeightParts * Shape::kStageBytes;
  const int tables = 128 + Shape::kBarrierBytes + Shape::kBiasBytes + Shape::kSnakeBytes +
                     Shape::kChannels * (kUnitChannelBytes + 4 * (tiling.row_taps + 1));
  const auto room = [&](int operand_vectors) { return std::max(tiling.pitch * operand_vectors * 16, Shape::kRowBytes); };
  tiling.shared_bytes = tables + room(Shape::kOperandVectors * Shape::kOperands) + tiling.weight_bytes;
  tiling.marked_shared_bytes = tables + room(MarkedShape::kOperandVectors) + MarkedShape::kStages * Shape::kStageBytes;
  tiling.blocks = unit.N * tiling.tiles;
  if (std::max(tiling.shared_bytes, tiling.marked_shared_bytes) > gpu.shared_bytes_per_block || tiling.blocks > INT32_MAX)
    return std::nullopt;
  const bool fits = (tiling.shared_bytes + kReserved) * Shape::kBlocksPerSm <= gpu.shared_bytes_per_block + kReserved;
  tiling.thread_blocks =
      static_cast<int>(std::min(tiling.blocks, static_cast<std::int64_t>(gpu.sm_count) * (fits ? Shape::kBlocksPerSm : 1)));
  return tiling;
}

template <int kChannels>
std::optional<UnitTiling> depthwise_tiling_of_channels(const ResidualUnit& unit, const DeviceProperties& gpu) {
  using Half = UnitShape<kChannels>;
  if (unit.dtype != DType::f32) return depthwise_tiling_of<Half, Half>(unit, gpu);
  if (unit.precision == Precision::tf32)
    return depthwise_tiling_of<UnitF32Shape<kChannels, 1>, UnitShape<kChannels, 4, 1>>(unit, gpu);
  return depthwise_tiling_of<UnitF32Shape<kChannels, 3>, UnitShape<kChannels, 4, 3>>(unit, gpu);
}

/// The kernels are for Snake, and a second convolution of one tap.
std::optional<UnitTiling> depthwise_tiling(const ResidualUnit& unit, const DeviceProperties& gpu) {
  if (!unit.is_snake || unit.K[1] != 1) return std::nullopt;
  if (unit.C == 64) return depthwise_tiling_of_channels<64>(unit, gpu);
  if (unit.C == 128) return depthwise_tiling_of_channels<128>(unit, gpu);
  return std::nullopt;
}

template <int kChannels>
std::optional<UnitTiling> tiling_of_channels(const ResidualUnit& unit, const DeviceProperties& gpu) {
  if (unit.dtype != DType::f32) return tiling_of<UnitShape<kChannels>>(unit, gpu);
  if (unit.precision == Precision::tf32) return tiling_of<UnitF32Shape<kChannels, 1>>(unit, gpu);
  if constexpr (kChannels % 96 != 0)
    return tiling_of<UnitF32Shape<kChannels, 3>>(unit, gpu);
  else
    return std::nullopt;
}

}  // namespace

bool starts_early(const UnitTiling& tiling) { return !is_in_part() || tiling.blocks <= tiling.thread_blocks; }

std::optional<UnitTiling> make_unit_tiling(const ResidualUnit& unit, const DeviceProperties& gpu) {
  const bool is_known = unit.dtype == DType::f32 ? unit.precision == Precision::tf32 || unit.precision == Precision::fp32
                                                 : unit.dtype == DType::f16 || unit.dtype == DType::bf16;
  if (!is_known || unit.L % 8 != 0 || unit.L > kMostLength) return std::nullopt;
  if (unit.scale != 1) return std::nullopt;  // the second sums begin with the source
  if (unit.is_depthwise) return depthwise_tiling(unit, gpu);
  switch (unit.C) {
    case 32:
      return tiling_of_channels<32>(unit, gpu);
    case 64:
      return tiling_of_channels<64>(unit, gpu);
    case 128:
      return tiling_of_channels<128>(unit, gpu);
    case 96:
      return unit.is_snake ? tiling_of_channels<96>(unit, gpu) : std::nullopt;
    case 192:
      return unit.is_snake ? tiling_of_channels<192>(unit, gpu) : std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace polyphase::cuda::tensor_core
