// dw[g,m,k] = sum over n, i of x[n,g,i] * y[n,g*M+m, S*i + k*D - P_l]. Rows are processed in chunks; y is split by residue so
// that every tap is a shifted row, and up to eight taps share one load of x. A chunk is summed in f32 lanes, chunks in double.
// The slices, which threads share, depend on the shape alone.

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <vector>

#include "cpu/conv/conv_element.hpp"
#include "cpu/conv/conv_kernels.hpp"
#include "cpu/conv/depthwise.hpp"
#include "cpu/conv/phase_plan.hpp"
#include "cpu/conv/recompute_non_finite.hpp"
#include "cpu/conv/tiling.hpp"
#include "cpu/memory/scratch.hpp"
#include "cpu/threads.hpp"
#include "tensor/error.hpp"

namespace polyphase::cpu {
namespace {

constexpr std::int64_t kChunkElements = 4096;  // of y, per channel
constexpr std::int64_t kItems = 64;            // groups times slices, if there are enough chunks

template <class E>
class DepthwiseWgrad {
  using T = Compute<E>;

 public:
  DepthwiseWgrad(const ConvProblem& problem, const E* x, const E* y, E* w)
      : p_(problem),
        shape_(gather_shape(problem, ConvDirection::dgrad)),
        kernels_(correlate_kernels<T>()),
        pack_(pack_kernels<E>()),
        chunk_(ceil_div(std::min(std::max<std::int64_t>(kChunkElements / p_.S, kernels_.lanes), p_.L_in), kernels_.lanes) *
               kernels_.lanes),
        layout_(tile_layout(shape_, chunk_, kernels_.lanes)),
        inner_(interior(shape_, 0)),
        x_(x),
        y_(y),
        w_(w) {}

  /// Whether x is finite at every position where a tap meets padding of y.
  [[nodiscard]] bool run() const {
    const std::int64_t chunks = p_.N * row_chunks();
    const std::int64_t slices = std::clamp<std::int64_t>(kItems / p_.G, 1, chunks);
    const std::int64_t weights = p_.channels_out_per_group() * p_.K;  // per group
    Scratch<double> sums(p_.G * slices * weights);
    std::fill(sums.data(), sums.data() + p_.G * slices * weights, 0.0);
    const double operations = static_cast<double>(2 * weights * p_.N * p_.L_in) / static_cast<double>(slices);
    parallel_for(p_.G * slices, worthwhile_grain(operations), [&](std::int64_t begin, std::int64_t end) {
      Scratch<T> x(chunk_);
      Scratch<T> y(layout_.channel_pitch);
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t slice = i % slices;
        for (std::int64_t c = chunks * slice / slices; c < chunks * (slice + 1) / slices; ++c)
          add_chunk(i / slices, c / row_chunks(), c % row_chunks() * chunk_, x.data(), y.data(), sums.data() + i * weights);
      }
    });
    for (std::int64_t i = 0; i < p_.G * weights; ++i) {
      double sum = 0;
      for (std::int64_t s = 0; s < slices; ++s) sum += sums.data()[(i / weights * slices + s) * weights + i % weights];
      w_[i] = static_cast<E>(static_cast<T>(sum));
    }
    return finite_at_ends_;
  }

 private:
  [[nodiscard]] std::int64_t row_chunks() const { return ceil_div(p_.L_in, chunk_); }

  void add_chunk(std::int64_t g, std::int64_t n, std::int64_t first, T* x, T* y, double* sums) const {
    const std::int64_t count = std::min(chunk_, p_.L_in - first);
    const std::int64_t padded = ceil_div(count, kernels_.lanes) * kernels_.lanes;
    pack_.gather_row(x_ + (n * p_.C_in + g) * p_.L_in, p_.L_in, first, 1, x, padded);
    if (!finite_at_ends(inner_, first, count, x, 1)) finite_at_ends_ = false;
    for (std::int64_t m = 0; m < shape_.R; ++m) {
      for (const Segment& s : layout_.segments)
        pack_.gather_row(y_ + (n * p_.C_out + g * shape_.R + m) * p_.L_out, p_.L_out, p_.S * (first + s.first) + s.residue,
                         p_.S, y + s.base, s.span + padded);
      for (std::int64_t k = 0; k < p_.K; k += kMostCorrelated) {
        const std::int64_t taps = std::min(kMostCorrelated, p_.K - k);
        kernels_.correlate[taps - 1](x, y, layout_.tap_offset[0].data() + k, count, sums + m * p_.K + k);
      }
    }
  }

  const ConvProblem& p_;
  GatherShape shape_;
  const CorrelateKernels<T>& kernels_;
  const PackKernels<E>& pack_;
  std::int64_t chunk_;  // positions i per chunk
  TileLayout layout_;
  Interior inner_;
  const E* x_;
  const E* y_;
  E* w_;
  mutable std::atomic<bool> finite_at_ends_ = true;
};

}  // namespace

void depthwise_wgrad(const ConvProblem& problem, const void* x, const void* y, void* w) {
  bool finite = true;
  with_element(problem, [&](auto element) {
    using E = decltype(element);
    finite = DepthwiseWgrad<E>(problem, static_cast<const E*>(x), static_cast<const E*>(y), static_cast<E*>(w)).run();
  });
  if (!finite) recompute_weights(problem, x, y, w);
}

}  // namespace polyphase::cpu
