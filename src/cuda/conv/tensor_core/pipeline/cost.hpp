#pragma once
// The seconds that a kernel of forward or dgrad is estimated to take: what it has to do for a problem is counted (CostCounts),
// and how fast it does that was measured once (CostRates), for all problems alike (docs/kernels/tensor_core.md).

#include <cstdint>
#include <optional>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// What a kernel does, weights packed. Cycles and numbers are those of the multiprocessor that has the most to do.
struct CostCounts {
  double multiply = 0;  ///< cycles of the tensor cores
  double convert = 0;   ///< numbers of the source that become operands
  double store = 0;     ///< numbers of the output, as they are staged
  double tiles = 0;
  double column_tiles = 1;       ///< for each of which the source is read
  double read = 0, written = 0;  ///< bytes of the tensors, each once, of all multiprocessors
  bool gathers = false;          ///< from planes of a stride
  bool spreads = false;          ///< outputs of several classes; of rows: such that go through shared memory
};

/// How fast a kernel does what it has to do with one kind of numbers. Fitted to the times of every kernel for bench/shapes.hpp
/// on an H200 (2026-11-23); a GPU with as many multiprocessors but another memory is taken to be as fast in proportion.
struct CostRates {
  double multiply = 1;       ///< times what the tensor cores need at least
  double convert = 0;        ///< cycles a number
  double gather = 0;         ///< more of them where neighbours are not neighbours in their row
  double store = 0;          ///< cycles an output
  double spread = 0;         ///< more of them where classes of the stride are put together
  double tile = 0;           ///< cycles a tile that nothing hides
  double read = 1;           ///< what a byte read counts against one written
  double read_again = 0.3;   ///< the same of a byte read for another tile of columns
  double terabytes = 3;      ///< a second
  double microseconds = 10;  ///< of all launches, and of what a block does before its first tile
};

/// Rates by kind of numbers: two halves of an f32 (fp32), one of them (tf32), and 16 bits.
struct KindRates {
  CostRates fp32{}, tf32{}, half{};
};

[[nodiscard]] double cost_seconds(const CostCounts& counts, const CostRates& rates, const DeviceProperties& gpu);

/// One tile: its products, all of so many columns or positions, its numbers in and out; and the channels' tiles.
struct TileCounts {
  double products, width, converted, stored;
  double column_tiles = 1;
};
/// Of the block that has the most tiles.
[[nodiscard]] CostCounts counts_of_tiles(double tiles, const TileCounts& tile, const KernelProblem& asked, const TapGemm& gemm);
/// The most tiles of a block that keeps to its columns.
[[nodiscard]] double tiles_of_block(const Tiling& tiling);
[[nodiscard]] double tiles_of_columns(const Tiling& tiling, const TapGemm& gemm);

[[nodiscard]] inline double number(std::int64_t value) { return static_cast<double>(value); }
[[nodiscard]] inline double pieces(std::int64_t size, std::int64_t piece) { return number((size + piece - 1) / piece); }

[[nodiscard]] bool is_16_bits(const ConvProblem& problem);
/// 16-bit numbers that one of the source becomes.
[[nodiscard]] int parts_of(const KernelProblem& asked);
/// Products of operands of that many parts: high by high, and the mixed ones.
[[nodiscard]] constexpr int products_of(int parts) { return parts == 2 ? 3 : 1; }
/// Whether zeros stand in operands where a phase lacks a tap that others have: an infinity of 16 bits would become NaN there.
[[nodiscard]] bool has_gaps(const KernelProblem& asked, const TapGemm& gemm);

}  // namespace polyphase::cuda::tensor_core
