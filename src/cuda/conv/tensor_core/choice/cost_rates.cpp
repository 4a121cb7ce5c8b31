#include <cmath>

#include "cuda/conv/tensor_core/both_in_shared/preconverted/preconverted.hpp"
#include "cuda/conv/tensor_core/choice/kernels.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

/// How fast a kernel does what it has to do with one kind of numbers. Fitted to the times of every kernel for bench/shapes.hpp
/// on an H200 (2026-11-23); a GPU with as many multiprocessors but another memory is taken to be as fast in proportion.
struct CostRates {
  double multiply;         // times what the tensor cores need at least
  double convert, gather;  // cycles a number; gather: more where neighbours are not neighbours in their row
  double store, spread;    // the same of outputs; spread: where classes of the stride are put together
  double tile;             // cycles a tile that nothing hides
  double read, again;      // what a byte read counts against one written; again: read for another tile of columns
  double terabytes;        // a second
  double microseconds;     // of all launches, and of what a block does before its first tile
};

/// Kinds of numbers: two halves of an f32, one, and 16 bits.
enum class Kind { split, scaled, half };

constexpr double kClock = 1.7e9, kSms = 132;  // of that GPU under such load

constexpr CostRates kPhased2[] = {{1.6, 0.44, 0, 0.17, 0.14, 0, 0.5, 0.3, 4.3, 14}, {1.51, 0.17, 0, 0, 0, 0, 1, 0.3, 3.4, 4.6}};
constexpr CostRates kPhased4 = {1.11, 0, 0, 0.1, 0.08, 360, 0.72, 0.3, 2.26, 5.4};
constexpr CostRates kPhased4F32 = {1.28, 0, 0, 0.1, 0.08, 360, 0.72, 0.3, 2.26, 9};
constexpr CostRates kTma16 = {1.42, 0.167, 0, 0.129, 0.05, 0, 0.935, 0.3, 3.56, 8};
constexpr CostRates kTma[] = {{1.15, 0.218, 0, 0, 0, 71.2, 1.45, 0.487, 4.76, 2.7},
                              {1, 0, 0, 0, 0, 101, 0.895, 0.488, 3.62, 2.2}};
constexpr CostRates kBulk[] = {{1.2, 0.306, 0.0111, 0.104, 0.195, 1190, 0.559, 1.11, 4.77, 3.7},
                               {1, 0.247, 0, 0.228, 0.0403, 42.1, 0.828, 0.537, 3.94, 9},
                               {1.86, 0.241, 0, 0.203, 0.0924, 64, 0.631, 0.49, 4.19, 2.5}};
constexpr CostRates kStride1[] = {{1, 0.076, 0, 0.536, 0.484, 81.3, 1.01, 0.3, 3.72, 14},
                                  {1.02, 0.062, 0, 0.451, 0.132, 21, 0.341, 0.3, 4.6, 2},
                                  {1, 0.0732, 0, 0.214, 0.089, 71.5, 0.453, 0.3, 4.6, 2}};
constexpr CostRates kStationary[] = {{1.33, 0.456, 0, 0.0497, 0.531, 137, 0, 0.911, 2.96, 12},
                                     {1.9, 0.318, 0, 0.00369, 0.16, 185, 0.606, 0.436, 3.29, 3.6},
                                     {1.33, 0.0581, 0.0761, 0.00475, 0.321, 963, 0.816, 0.676, 3.6, 5}};

CostRates rates_of(GatherKernel kernel, Kind kind) {
  const auto any = static_cast<int>(kind);
  switch (kernel) {
    case GatherKernel::phased_stride2:
      return kPhased2[any - 1];
    case GatherKernel::phased_stride4:
      return kind == Kind::split ? kPhased4F32 : kPhased4;
    case GatherKernel::source_tma_16bit:
      return kTma16;
    case GatherKernel::source_tma:
      return kTma[any];
    case GatherKernel::source_bulk:
      return kBulk[any];
    case GatherKernel::stride1:
      return kStride1[any];
    default:
      return kStationary[any];
  }
}

/// Four things that go on at a time, of which the longest counts most.
double overlapped(double a, double b, double c, double d) { return std::cbrt(a * a * a + b * b * b + c * c * c + d * d * d); }

}  // namespace

std::optional<double> kernel_cost(GatherKernel kernel, const KernelProblem& asked, const DeviceProperties& gpu) {
  if (asked.problem.N == 0) return std::nullopt;
  if (kernel == GatherKernel::preconverted) return preconverted_cost(asked.problem, asked.direction, asked.precision, gpu);
  const auto work = cost_counts(kernel, asked, gpu);
  if (!work) return std::nullopt;
  const bool is_f32 = asked.problem.dtype == DType::f32;
  const CostRates rates = rates_of(kernel, !is_f32                              ? Kind::half
                                           : asked.precision == Precision::tf32 ? Kind::scaled
                                                                                : Kind::split);
  const double multiply = rates.multiply * work->multiply;
  const double convert = (rates.convert + (work->gathers ? rates.gather : 0)) * work->convert;
  const double store = (rates.store + (work->spreads ? rates.spread : 0)) * work->store;
  const double bytes = work->read * (rates.read + rates.again * (work->column_tiles - 1)) + work->written;
  const double moved = bytes / (rates.terabytes * 1e12 * gpu.sm_count / kSms);
  return overlapped(multiply / kClock, convert / kClock, store / kClock, moved) + rates.tile * work->tiles / kClock +
         rates.microseconds * 1e-6;
}

}  // namespace polyphase::cuda::tensor_core
