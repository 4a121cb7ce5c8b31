#pragma once
// The cost model of the forward and dgrad kernels. The work for a problem is counted (CostCounts); the rates of each kernel
// were measured once for all problems (CostRates, docs/kernels/tensor_core.md).

#include <cstdint>
#include <optional>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// A kernel's work with packed weights. Cycles and numbers are those of the busiest multiprocessor.
struct CostCounts {
  double multiply = 0;  ///< cycles of the tensor cores
  double convert = 0;   ///< source numbers that are converted to operands
  double store = 0;     ///< output numbers, as they are staged
  double tiles = 0;
  double steps = 0;              ///< of all tiles, where a tile's rows are divided
  double column_tiles = 1;       ///< the source is read once for each
  double read = 0, written = 0;  ///< bytes of the tensors, each once, for all multiprocessors
  bool gathers = false;          ///< whether the source is read from planes of a stride
  bool spreads = false;          ///< whether outputs have several classes (stride1: whether such rows go through shared memory)
};

/// A kernel's rates for one kind of numbers. Fitted to the times of every kernel for bench/shapes.hpp on an H200 (2026-11-23;
/// stationary in 16 bits on 2026-11-28, with 29 problems of small batches and 256 channels more).
/// A GPU with as many multiprocessors but other memory is assumed to scale with its bandwidth.
struct CostRates {
  double multiply = 1;       ///< factor on the tensor cores' minimum
  double convert = 0;        ///< cycles per number
  double gather = 0;         ///< additional cycles if neighbours are not adjacent in their row
  double store = 0;          ///< cycles per output
  double spread = 0;         ///< additional cycles if the classes of a stride are interleaved
  double tile = 0;           ///< cycles per tile that nothing hides
  double step = 0;           ///< the same per step
  double read = 1;           ///< weight of a byte read relative to a byte written
  double read_again = 0.3;   ///< the same for a byte that is read again for another column tile
  double terabytes = 3;      ///< per second
  double microseconds = 10;  ///< for all launches, and for the start of a block before its first tile
};

/// Rates by kind of numbers: two halves of an f32 (fp32), one half (tf32), and 16 bits.
struct KindRates {
  CostRates fp32{}, tf32{}, half{};
};

[[nodiscard]] double cost_seconds(const CostCounts& counts, const CostRates& rates, const DeviceProperties& gpu);

/// One tile: its products, all with the same number of columns or positions, its numbers in and out, and the column tiles.
struct TileCounts {
  double products, width, converted, stored;
  double column_tiles = 1;
  double steps = 0;
};
/// The counts of the block that has the most tiles.
[[nodiscard]] CostCounts counts_of_tiles(double tiles, const TileCounts& tile, const KernelProblem& asked, const TapGemm& gemm);
/// The most tiles of a block that keeps its columns.
[[nodiscard]] double tiles_of_block(const Tiling& tiling);
[[nodiscard]] double tiles_of_columns(const Tiling& tiling, const TapGemm& gemm);

[[nodiscard]] inline double number(std::int64_t value) { return static_cast<double>(value); }
[[nodiscard]] inline double pieces(std::int64_t size, std::int64_t piece) { return number((size + piece - 1) / piece); }

[[nodiscard]] bool is_16_bits(const ConvProblem& problem);
/// 16-bit numbers per source number.
[[nodiscard]] int parts_of(const KernelProblem& asked);
/// Products of operands with that many parts: high by high, and the mixed ones.
[[nodiscard]] constexpr int products_of(int parts) { return parts == 2 ? 3 : 1; }
/// Whether operands contain zeros where a phase lacks a tap that others have: such a zero times a 16-bit Inf would be NaN.
[[nodiscard]] bool has_gaps(const KernelProblem& asked, const TapGemm& gemm);

}  // namespace polyphase::cuda::tensor_core
