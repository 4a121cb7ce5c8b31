#pragma once
// The tiling of a residual unit that is one kernel (kernel.cuh). Plain host code.

#include <cstdint>
#include <optional>

#include "conv/residual_unit.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// The activations. Plain: LeakyReLU with slopes above 0 and at most 1. Any: with any slopes. Snake: both are Snake.
enum class UnitKind : int { plain, any, snake };

/// What follows from the number of channels, 32, 64, 96, 128 or 192, the bytes of an operand's number, and how many products
/// of operands make a sum: 1, or 3 for numbers of f32 in two parts. Then a second set of sums takes registers of the first.
template <int kChannels_, int kNumberBytes = 2, int kPasses_ = 1>
struct UnitShape {
  static constexpr int kChannels = kChannels_, kPasses = kPasses_;
  static constexpr bool kOfPositions = kChannels % 64 != 0;  ///< gemm_m, else channels
  static constexpr int kSums = kPasses == 3 ? 48 : 64;       ///< of a thread, at most
  static constexpr int kPositions = kChannels == 32 ? 8 * kSums : kChannels % 96 == 0 ? 128 : 4 * kSums;  ///< of a block
  static constexpr int kGroups = kChannels < 128 ? 2 : kChannels == 192 ? 3 : 4;                          ///< warpgroups
  static constexpr bool kHasProducer = kChannels % 96 == 0;  ///< a warp that copies the weights; else the warps take turns
  static constexpr int kWarps = 4 * kGroups, kThreads = 32 * (kWarps + (kHasProducer ? 1 : 0));
  static constexpr int kBlocksPerSm = kChannels < 128 ? 2 : 1;
  static constexpr int kVectors = kChannels / 8;                                      ///< of 8 channels
  static constexpr int kOperandVectors = kChannels * kNumberBytes / 16;               ///< of 16 bytes
  static constexpr int kOperands = kPasses == 3 && kNumberBytes == 2 ? 2 : 1;         ///< high and low parts
  static constexpr int kWeightParts = kPasses == 1 ? 1 : kNumberBytes == 2 ? 2 : 3;   ///< packed one after another
  static constexpr int kStageDepths = kChannels == 32 ? 2 : kChannels == 96 ? 3 : 4;  ///< products of a stage: two such vectors
  static constexpr int kParts = kOperandVectors / (2 * kStageDepths);                 ///< stages of a tap
  static constexpr int kStageBytes = kStageDepths * 2 * kChannels * 16;
  static constexpr int kStages = kChannels == 32 ? 8 : kChannels < 128 ? 4 : 3;
  static constexpr bool kWhole = false, kMayBeWhole = kChannels < 96;
  static constexpr int kRowBytes = 0;  ///< see DepthwiseUnitShape
  static constexpr int kBarrierBytes = 256, kBiasBytes = 2 * kChannels * 4;
  static constexpr int kSnakeBytes = 16 * kChannels;          ///< alpha and 1/beta of both activations
  static constexpr int kStagedPitch = kPositions + 8;         ///< of a channel of staged outputs
  static constexpr int kMostBoxes = kChannels == 32 ? 3 : 2;  ///< of the source
  /// Pieces of a source of f32 that a warp has.
  static constexpr int kMostPieces = kChannels == 192 ? 12 : kChannels == 96 ? 9 : kPasses == 3 ? 8 : 10;
};

/// The same for f32 in operands of f16: no source waits in shared memory, so there is room for more stages.
template <int kChannels, int kPasses>
struct UnitF32Shape : UnitShape<kChannels, 2, kPasses> {
  static constexpr int kStages = kChannels == 32 ? 8 : kChannels % 64 == 0 ? 5 : UnitShape<kChannels>::kStages;
};

/// The same with all weights of a convolution in shared memory, where there is room for them.
template <class Shape>
struct WholeUnitShape : Shape {
  static constexpr bool kWhole = true;
};

inline constexpr int kUnitRowReach = 64;  ///< positions that a depthwise convolution reads beyond those of a block

/// The same for units of f32 whose first convolution is depthwise: its activated source is rows of f32, in the place of the
/// operand, and the weights of the second one stay in shared memory (kWhole_) or not.
template <class Shape, bool kWhole_>
struct DepthwiseUnitShape : Shape {
  static constexpr bool kWhole = kWhole_;
  static constexpr int kRowPitch = Shape::kPositions + kUnitRowReach, kRowBytes = Shape::kChannels * kRowPitch * 4;
};

inline constexpr int kUnitChannelBytes = 16;  ///< what the sums of a channel need in f32 (f32/scale.cuh)

/// A launch. Positions count from the first of a block's source.
struct UnitTiling {
  int length = 0;
  int tile = 0;           ///< outputs of a block, a multiple of 8
  int tiles = 0;          ///< of a sample
  int before = 0;         ///< the source begins this many positions before the outputs, a multiple of 8
  int offset = 0;         ///< of the first position that the first convolution reads
  int pad = 0;            ///< of the second convolution: the middle begins this many positions before the outputs
  int source_blocks = 0;  ///< of 8 positions that are loaded
  int source_boxes = 0, source_width = 0;  ///< its copy: boxes of source_width positions, an odd multiple of 8
  int pieces = 0;                          ///< of a source of f32: 8 channels and 32 positions
  int pitch = 0;                           ///< positions of the operand, a multiple of 8
  int taps[2] = {}, step[2] = {};          ///< a depthwise convolution has taps[0] 0,
  int row_taps = 0, row_step = 0;          ///< and these
  float slope[2] = {};
  UnitKind kind = UnitKind::any;
  bool is_whole = false;  ///< all weights of a convolution are in shared memory, else stages of them
  int weight_bytes = 0;   ///< of them
  int shared_bytes = 0;
  int marked_shared_bytes = 0;  ///< in f32, of the kernel of the marked blocks, whose operand has numbers of 4 bytes
  std::int64_t blocks = 0;
  int thread_blocks = 0;  ///< that compute them
};

/// Whether a unit's kernel may wait on the multiprocessors for the kernel before it to end. Not next to other parts of a fork,
/// which could use them, if the last blocks leave many of them idle.
[[nodiscard]] bool starts_early(const UnitTiling& tiling);

/// The launch, or nothing if the kernel cannot compute the unit, or if the steps are as fast.
[[nodiscard]] std::optional<UnitTiling> make_unit_tiling(const ResidualUnit& unit, const DeviceProperties& gpu);

}  // namespace polyphase::cuda::tensor_core
