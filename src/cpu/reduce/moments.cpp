#include "cpu/reduce/moments.hpp"

#include <algorithm>
#include <array>

#include "cpu/elementwise/elementwise.hpp"
#include "cpu/elementwise/elementwise_loop.hpp"
#include "cpu/reduce/reduce.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

// out = total*share, rounded; `rest`, if defined, is the rounding error.
template <class T>
void average(const Tensor& total, double share, const Tensor& out, const Tensor& rest) {
  const double* from = total.data<double>();
  T* to = out.data<T>();
  T* left = rest.defined() ? rest.data<T>() : nullptr;
  parallel_for(total.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const double exact = from[i] * share;
      to[i] = static_cast<T>(exact);
      if (left != nullptr) left[i] = static_cast<T>(exact - static_cast<double>(to[i]));
    }
  });
}

template <class T>
void moments_as(const Moments& out, const Tensor& in, double q) {
  const Tensor total = Tensor::empty(out.mean.shape(), {DType::f64, in.device()});
  const double count = static_cast<double>(std::max<std::int64_t>(1, in.numel() / total.numel()));
  reduce(ReduceOp::sum, total, in);
  average<T>(total, 1 / count, out.mean, out.rest);
  map(MapOp::sub, out.centred, std::array{in, out.mean_everywhere()}, {});
  if constexpr (std::is_same_v<T, double>) {  // the total does not have the bits that the mean needs
    reduce(ReduceOp::sum, total, out.centred);
    average<T>(total, 1 / count, out.rest, {});
  }
  reduce(ReduceOp::sum_of_squares, total, out.centred);
  const double* squares = total.data<double>();
  const T* rest = out.rest.data<T>();
  T* variance = out.variance.data<T>();
  parallel_for(total.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto off = static_cast<double>(rest[i]);
      const double sum = squares[i] - count * off * off;
      variance[i] = static_cast<T>((sum < 0 ? 0 : sum) * q);
    }
  });
}

}  // namespace

void moments(const Moments& out, const Tensor& in, double q) {
  if (out.mean.numel() == 0) return;
  in.dtype() == DType::f64 ? moments_as<double>(out, in, q) : moments_as<float>(out, in, q);
}

}  // namespace polyphase::cpu
