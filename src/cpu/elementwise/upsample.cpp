#include "cpu/elementwise/upsample.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/conv/conv_kernels.hpp"
#include "cpu/elementwise/copy.hpp"
#include "cpu/elementwise/elementwise_loop.hpp"
#include "cpu/elementwise/run_sum.hpp"
#include "cpu/elementwise/upsample_kernels.hpp"
#include "cpu/memory/scratch.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

constexpr std::int64_t kInputs = 256;               // per task: whole vectors of any instruction set
constexpr std::int64_t kPhases = 16;                // phases whose outputs are interleaved into a row together
constexpr std::int64_t kMostParts = 1 << 16;        // limit for a task's partial sums, if that is more than one vector
constexpr std::int64_t kTerms = Backend::kRun / 2;  // phases per run: each contributes at most two terms to an input

// Output i*S + k is between input i and a neighbour.
template <class T>
struct Scale {
  std::int64_t S;
  T inverse;  // 1/2S
  explicit Scale(std::int64_t scale) : S(scale), inverse(T{1} / (T{2} * static_cast<T>(scale))) {}
  // Which neighbour: -1, 0 (none: output k is input i) or 1.
  [[nodiscard]] std::int64_t side(std::int64_t k) const { return 2 * k + 1 < S ? -1 : 2 * k + 1 > S ? 1 : 0; }
  // The neighbour's weight.
  [[nodiscard]] T weight(std::int64_t k) const { return static_cast<T>(std::abs(2 * k + 1 - S)) * inverse; }
};

// A task: n inputs of row r from i0 on.
struct RowPiece {
  std::int64_t r, i0, n;
};

// Calls work(RowPiece) for all rows of L in pieces of `width`; begin(), once per thread, makes the worker.
template <class Begin>
void for_each_piece(std::int64_t rows, std::int64_t L, std::int64_t width, std::int64_t scale, const Begin& begin) {
  const std::int64_t pieces = (L + width - 1) / width;
  parallel_for(rows * pieces, kElementGrain / width / scale + 1, [&](std::int64_t first, std::int64_t last) {
    auto work = begin();
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t i0 = task % pieces * width;
      work(RowPiece{task / pieces, i0, std::min(width, L - i0)});
    }
  });
}

// One thread's forward pass.
template <class E>
class Stretch {
 public:
  using T = Compute<E>;
  Stretch(E* out, const E* in, std::int64_t L, const Scale<T>& scale)
      : out_(out), in_(in), L_(L), scale_(scale), source_(kInputs + 2 + kMostLanes), phases_(kPhases * kInputs) {}

  void operator()(const RowPiece& piece) {
    const E* row = in_ + piece.r * L_;
    const std::int64_t S = scale_.S, end = piece.i0 + piece.n;
    E* to = out_ + (piece.r * L_ + piece.i0) * S;
    const std::int64_t from = std::max<std::int64_t>(piece.i0 - 1, 0), until = std::min(end + 1, L_);
    convert_elements(dtype_of<T>, source_.data() + 1 - (piece.i0 - from), dtype_of<E>, row + from, until - from);
    for (std::int64_t k = 0; k < S; k += kPhases) {
      const std::int64_t count = std::min(kPhases, S - k);
      for (std::int64_t j = 0; j < count; ++j) phase(k + j, piece.n, phases_.data() + j * kInputs);
      pack_kernels<E>().interleave(phases_.data(), kInputs, count, S, piece.n, piece.n * S - k, to + k);
    }
    if (piece.i0 == 0) std::fill(to, to + S / 2, row[0]);
    if (end == L_) std::fill(to + piece.n * S - S / 2, to + piece.n * S, row[L_ - 1]);
  }

 private:
  void phase(std::int64_t k, std::int64_t n, T* to) const {
    const T* own = source_.data() + 1;
    const T weight = scale_.weight(k);
    if (scale_.side(k) == 0)
      std::copy(own, own + n, to);
    else
      upsample_kernels<T>().blend(to, own, T{1} - weight, own + scale_.side(k), weight, n);
  }

  E* out_;
  const E* in_;
  std::int64_t L_;
  Scale<T> scale_;
  std::vector<T> source_;  // (kInputs + 2): inputs i0 - 1 to i0 + n
  std::vector<T> phases_;  // (kPhases, kInputs)
};

// One thread's backward pass.
template <class E>
class Gather {
 public:
  using T = Compute<E>;
  Gather(E* out, const E* in, std::int64_t L, const Scale<T>& scale, std::int64_t runs, std::int64_t width)
      : out_(out), in_(in), L_(L), scale_(scale), runs_(runs), width_(width), sums_(runs * width) {}

  void operator()(const RowPiece& piece) {
    const E* row = in_ + piece.r * L_ * scale_.S;
    std::fill(sums_.data(), sums_.data() + runs_ * width_, T{});
    for (std::int64_t c = 0; c < runs_; ++c)
      for (std::int64_t k = c; k < scale_.S; k += runs_) add_phase(row, piece, k, sums_.data() + c * width_);
    for (std::int64_t m = runs_; m > 1;) {
      const std::int64_t fewer = (m + Backend::kRun - 1) / Backend::kRun;
      for (std::int64_t c = fewer; c < m; ++c)
        kernels_.accumulate(sums_.data() + c % fewer * width_, sums_.data() + c * width_, 1, piece.n);
      m = fewer;
    }
    E* to = out_ + piece.r * L_ + piece.i0;
    convert_elements(dtype_of<E>, to, dtype_of<T>, sums_.data(), piece.n);
    if (piece.i0 == 0) to[0] = static_cast<E>(end_sum(row, 0));
    if (piece.i0 + piece.n == L_) to[piece.n - 1] = static_cast<E>(end_sum(row, L_ - 1));
  }

 private:
  // Adds the contributions of phase k of all outputs to the inputs of a piece.
  void add_phase(const E* row, const RowPiece& piece, std::int64_t k, T* sum) {
    const std::int64_t S = scale_.S, side = scale_.side(k);
    const T weight = scale_.weight(k);
    pack_kernels<E>().gather_row(row, L_ * S, (piece.i0 - 1) * S + k, S, phase_, piece.n + 2);
    kernels_.accumulate(sum, phase_ + 1, T{1} - weight, piece.n);
    if (side != 0) kernels_.accumulate(sum, phase_ + 1 - side, weight, piece.n);
  }
  // The first or last input of a row, which is repeated where it has no neighbour.
  [[nodiscard]] T end_sum(const E* row, std::int64_t i) const {
    const std::int64_t S = scale_.S;
    std::vector<T> sums(static_cast<std::size_t>(runs_));
    for (std::int64_t k = 0; k < S; ++k) {
      const std::int64_t side = scale_.side(k), partner = i + side, user = i - side;
      const T weight = scale_.weight(k);
      T& sum = sums[static_cast<std::size_t>(k % runs_)];
      sum = std::fma(partner < 0 || partner >= L_ ? T{1} : T{1} - weight, static_cast<T>(row[i * S + k]), sum);
      if (side != 0 && user >= 0 && user < L_) sum = std::fma(weight, static_cast<T>(row[user * S + k]), sum);
    }
    return run_sum<T>(sums.data(), runs_);
  }

  E* out_;
  const E* in_;
  std::int64_t L_;
  Scale<T> scale_;
  std::int64_t runs_, width_;
  Scratch<T> sums_;                         // (runs, width)
  T phase_[kInputs + 2 + kMostLanes] = {};  // of inputs i0 - 1 to i0 + n
  const UpsampleKernels<T>& kernels_ = upsample_kernels<T>();
};

}  // namespace

void upsample_linear(const Tensor& out, const Tensor& in, std::int64_t scale) {
  if (out.numel() == 0) return;
  dispatch_floating(out.dtype(), [&]<class E>(E) {
    const Scale<Compute<E>> weights(scale);
    const std::int64_t L = in.size(-1);
    for_each_piece(in.numel() / L, L, kInputs, scale, [&] { return Stretch<E>(out.data<E>(), in.data<E>(), L, weights); });
  });
}

void upsample_linear_backward(const Tensor& out, const Tensor& in, std::int64_t scale) {
  if (out.numel() == 0) return;
  const std::int64_t runs = (scale + kTerms - 1) / kTerms, L = out.size(-1);
  const std::int64_t width = std::clamp(kMostParts / runs / kMostLanes * kMostLanes, kMostLanes, kInputs);
  dispatch_floating(out.dtype(), [&]<class E>(E) {
    const Scale<Compute<E>> weights(scale);
    for_each_piece(out.numel() / L, L, width, scale,
                   [&] { return Gather<E>(out.data<E>(), in.data<E>(), L, weights, runs, width); });
  });
}

}  // namespace polyphase::cpu
