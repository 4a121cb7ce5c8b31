#include "cpu/reduce/reduce.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/elementwise/copy.hpp"
#include "cpu/elementwise/elementwise.hpp"
#include "cpu/elementwise/elementwise_loop.hpp"
#include "cpu/reduce/reduce_kernels.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

// The fewest elements in a piece of a long reduction; threads share pieces.
constexpr std::int64_t kPiece = 4096;
// Columns that are accumulated together, and the rows of them that form a piece.
constexpr std::int64_t kColumns = 1024;
constexpr std::int64_t kColumnRows = 128;
constexpr std::int64_t kShortReduction = 32;  // for fewer elements, starting and ending a row would dominate

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

double start_of(ReduceOp op) {
  if (op == ReduceOp::max) return -std::numeric_limits<double>::infinity();
  if (op == ReduceOp::min) return std::numeric_limits<double>::infinity();
  return 0;
}

// Combines two partial results.
double merge(ReduceOp op, double a, double b) {
  if (op == ReduceOp::max) return std::isnan(a) || a > b ? a : b;
  if (op == ReduceOp::min) return std::isnan(a) || a < b ? a : b;
  return a + b;
}
// By halves: the error grows with the logarithm of the count.
double merge_pairwise(ReduceOp op, const double* partial, std::int64_t count) {
  if (count == 1) return partial[0];
  return merge(op, merge_pairwise(op, partial, count / 2), merge_pairwise(op, partial + count / 2, count - count / 2));
}

struct Dimension {
  std::int64_t size, stride;
};

// Dimensions processed together, outermost first; maps flat positions to element offsets.
struct Space {
  std::vector<Dimension> dimensions;
  std::int64_t count = 1;

  void push(Dimension d) {
    count *= d.size;
    if (!dimensions.empty() && dimensions.back().stride == d.stride * d.size) {
      dimensions.back() = {dimensions.back().size * d.size, d.stride};
    } else {
      dimensions.push_back(d);
    }
  }
  [[nodiscard]] std::int64_t offset(std::int64_t flat) const {
    std::int64_t result = 0;
    for (auto d = dimensions.rbegin(); d != dimensions.rend(); ++d) {
      result += flat % d->size * d->stride;
      flat /= d->size;
    }
    return result;
  }
  // The innermost dimension; one element if there is none.
  [[nodiscard]] Dimension inner() const { return dimensions.empty() ? Dimension{1, 0} : dimensions.back(); }
  Dimension take_inner() {
    const Dimension taken = inner();
    if (!dimensions.empty()) dimensions.pop_back();
    count /= taken.size;
    return taken;
  }
};

// The kept and the reduced dimensions of an input; the reduced ones in memory order.
struct Split {
  Space kept, reduced;
};
Split split(const Tensor& out, const Tensor& in) {
  Split result;
  std::vector<Dimension> reduced;
  for (int d = 0; d < in.rank(); ++d) {
    const Dimension dimension{in.shape()[d], in.strides()[d]};
    if (dimension.size == 1) continue;
    if (out.shape()[d] == 1) {
      reduced.push_back(dimension);
    } else {
      result.kept.push(dimension);
    }
  }
  std::stable_sort(reduced.begin(), reduced.end(), [](Dimension a, Dimension b) { return a.stride > b.stride; });
  for (const Dimension d : reduced) result.reduced.push(d);
  return result;
}

// `count` <= kPiece elements from `offset` on as T (16-bit types widened to float): in place if contiguous, else through
// `buffer`.
template <class T>
const T* load_row(const Tensor& in, std::int64_t offset, std::int64_t stride, std::int64_t count, T* buffer) {
  if (in.dtype() == dtype_of<T>) {
    const T* from = static_cast<const T*>(in.raw()) + offset;
    if (stride == 1) return from;
    for (std::int64_t i = 0; i < count; ++i) buffer[i] = from[i * stride];
    return buffer;
  }
  const auto* halves = static_cast<const std::uint16_t*>(in.raw()) + offset;
  std::array<std::uint16_t, kPiece> gathered;
  if (stride != 1) {
    for (std::int64_t i = 0; i < count; ++i) gathered[at(i)] = halves[i * stride];
    halves = gathered.data();
  }
  convert_elements(dtype_of<T>, buffer, in.dtype(), halves, count);
  return buffer;
}

template <class T>
class Reduction {
 public:
  Reduction(ReduceOp op, const Tensor& out, const Tensor& in) : op_(op), out_(out), in_(in), spaces_(split(out, in)) {
    const ReduceKernels& kernels = reduce_kernels();
    if constexpr (std::is_same_v<T, float>) {
      functions_ = kernels.f32[static_cast<int>(op)];
    } else {
      functions_ = kernels.f64[static_cast<int>(op)];
    }
  }

  // By columns if the kept elements are neighbours in memory or there is little to reduce for each; else by rows.
  void run() {
    const Dimension kept = spaces_.kept.inner();
    const Dimension reduced = spaces_.reduced.inner();
    const bool side_by_side = kept.stride == 1 && reduced.stride != 1 && kept.size >= 4;
    const bool few =
        spaces_.reduced.count < kShortReduction;  // for any number of outputs, so that the order does not depend on it
    side_by_side || few ? by_columns() : by_rows();
  }

 private:
  // A piece is part of a long row or a group of short ones. Tasks are (output, piece).
  void by_rows() {
    const Dimension inner = spaces_.reduced.take_inner();
    const std::int64_t cuts = (inner.size + kPiece - 1) / kPiece;  // pieces of one row
    const std::int64_t group = cuts > 1 ? 1 : std::max<std::int64_t>(1, kPiece / inner.size);
    const std::int64_t rows = spaces_.reduced.count;
    const std::int64_t pieces = cuts * ((rows + group - 1) / group);
    const std::int64_t outputs = out_.numel();
    partial_.resize(at(outputs * pieces));
    const std::int64_t work = std::min(kPiece, inner.size * rows) + 16;
    parallel_for(outputs * pieces, kElementGrain / work + 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<T> buffer(at(std::min(kPiece, inner.size)));
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t piece = task % pieces;
        const std::int64_t start = piece % cuts * kPiece;
        const Dimension part{std::min(kPiece, inner.size - start), inner.stride};
        const std::int64_t first = piece / cuts * group;
        const std::int64_t offset = spaces_.kept.offset(task / pieces) + start * inner.stride;
        partial_[at(task)] = reduce_rows(offset, first, std::min(rows, first + group), part, buffer.data());
      }
    });
    finish(outputs, pieces, [&](std::int64_t o) { return merge_pairwise(op_, &partial_[at(o * pieces)], pieces); });
  }

  double reduce_rows(std::int64_t offset, std::int64_t first, std::int64_t last, Dimension row, T* buffer) const {
    std::array<double, kReduceLanes> lanes;
    lanes.fill(start_of(op_));
    for (std::int64_t r = first; r < last; ++r) {
      const T* x = load_row(in_, offset + spaces_.reduced.offset(r), row.stride, row.size, buffer);
      functions_.row(lanes.data(), x, row.size);
    }
    return merge_pairwise(op_, lanes.data(), kReduceLanes);
  }

  // A task is up to kColumns neighbouring outputs over up to kColumnRows rows.
  void by_columns() {
    const Dimension inner = spaces_.kept.take_inner();
    const std::int64_t outer = spaces_.kept.count;
    const std::int64_t rows = spaces_.reduced.count;
    const std::int64_t blocks = (inner.size + kColumns - 1) / kColumns;
    const std::int64_t pieces = (rows + kColumnRows - 1) / kColumnRows;
    const std::int64_t outputs = out_.numel();
    partial_.assign(at(outputs * pieces), start_of(op_));  // (piece, output)
    const std::int64_t work = std::min(kColumns, inner.size) * std::min(kColumnRows, rows) + 16;
    parallel_for(pieces * outer * blocks, kElementGrain / work + 1, [&](std::int64_t begin, std::int64_t end) {
      std::array<T, kColumns> buffer;
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t piece = task / (outer * blocks);
        const std::int64_t o = task / blocks % outer;
        const std::int64_t column = task % blocks * kColumns;
        const std::int64_t n = std::min(kColumns, inner.size - column);
        double* sums = &partial_[at(piece * outputs + o * inner.size + column)];
        const std::int64_t offset = spaces_.kept.offset(o) + column * inner.stride;
        for (std::int64_t r = piece * kColumnRows; r < std::min(rows, (piece + 1) * kColumnRows); ++r)
          functions_.columns(sums, load_row(in_, offset + spaces_.reduced.offset(r), inner.stride, n, buffer.data()), n);
      }
    });
    finish(outputs, pieces, [&](std::int64_t o) { return merge_strided(&partial_[at(o)], pieces, outputs); });
  }

  double merge_strided(const double* partial, std::int64_t count, std::int64_t stride) const {
    if (count == 1) return partial[0];
    return merge(op_, merge_strided(partial, count / 2, stride),
                 merge_strided(partial + count / 2 * stride, count - count / 2, stride));
  }

  // Writes total(o) for every output o, rounded to its dtype.
  template <class Total>
  void finish(std::int64_t outputs, std::int64_t pieces, const Total& total) const {
    auto* out = static_cast<char*>(out_.raw());
    const auto size = static_cast<std::int64_t>(size_of(out_.dtype()));
    parallel_for(outputs, kElementGrain / pieces + 1, [&](std::int64_t begin, std::int64_t end) {
      std::array<double, kBlock> totals;
      for (std::int64_t o = begin; o < end; o += kBlock) {
        const std::int64_t n = std::min(kBlock, end - o);
        for (std::int64_t i = 0; i < n; ++i) totals[at(i)] = total(o + i);
        convert_elements(out_.dtype(), out + o * size, DType::f64, totals.data(), n);
      }
    });
  }

  ReduceOp op_;
  const Tensor& out_;
  const Tensor& in_;
  Split spaces_;
  ReduceFunctions<T> functions_;
  std::vector<double> partial_;
};

// Integers, one by one: sums wrap around.
void reduce_i64(ReduceOp op, const Tensor& out, const Tensor& in) {
  Shape strides = out.strides();
  for (int d = 0; d < out.rank(); ++d)
    if (out.shape()[d] == 1) strides[d] = 0;
  const Tensor target = Tensor::over(out.storage(), in.shape(), strides, out.offset(), DType::i64);
  const Loop loop = make_loop(in, {&target, 1});
  fill(out, start_of(op));  // infinities become the ends of the range
  const auto* from = static_cast<const std::int64_t*>(in.raw());
  auto* to = static_cast<std::int64_t*>(out.raw());
  LoopPosition position(loop, 0);
  for (std::int64_t flat = 0; flat < loop.count; ++flat) {
    const std::int64_t x = from[position.offset(0)];
    std::int64_t& y = to[position.offset(1)];
    const auto wide = static_cast<std::uint64_t>(x);
    if (op == ReduceOp::max) y = std::max(y, x);
    if (op == ReduceOp::min) y = std::min(y, x);
    if (op == ReduceOp::sum) y = static_cast<std::int64_t>(static_cast<std::uint64_t>(y) + wide);
    if (op == ReduceOp::sum_of_squares) y = static_cast<std::int64_t>(static_cast<std::uint64_t>(y) + wide * wide);
    if (op == ReduceOp::sum_of_abs) y = static_cast<std::int64_t>(static_cast<std::uint64_t>(y) + (x < 0 ? 0 - wide : wide));
    position.advance(1);
  }
}

}  // namespace

void reduce(ReduceOp op, const Tensor& out, const Tensor& in) {
  if (out.numel() == 0) return;
  if (in.numel() == 0) {
    require<ShapeError>(op != ReduceOp::max && op != ReduceOp::min,
                        "reduce: expected at least one element for max and min, got ", in.shape());
    return fill(out, 0);
  }
  if (in.dtype() == DType::i64) return reduce_i64(op, out, in);
  if (in.dtype() == DType::f64) return Reduction<double>(op, out, in).run();
  Reduction<float>(op, out, in).run();
}

void reduce_map(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, MapScalars scalars) {
  const TensorOptions wide{out.dtype(), out.device()};
  const Tensor values = Tensor::empty({a.numel()}, wide);
  const auto flat = [](const Tensor& x) { return Tensor::over(x.storage(), {x.numel()}, {1}, x.offset(), x.dtype()); };
  const auto converted = [&](const Tensor& x) {
    if (x.dtype() == out.dtype()) return flat(x);
    const Tensor result = Tensor::empty({x.numel()}, wide);
    copy(result, flat(x));
    return result;
  };
  const Tensor inputs[] = {converted(a), converted(b)}, total[] = {flat(out)};
  map(op, values, inputs, scalars);
  reduce(ReduceOp::sum, total[0], values);
  map(MapOp::affine, total[0], total, {scalars.q, 0});
}

}  // namespace polyphase::cpu
