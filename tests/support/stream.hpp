#pragma once
// Compares a network that runs in pieces with the same network on the whole input.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "autograd/no_grad.hpp"
#include "layers/module.hpp"
#include "layers/streaming/stream.hpp"
#include "ops/length.hpp"
#include "support/helpers.hpp"

namespace polyphase::testing {

inline std::vector<double> f64_values(const Tensor& tensor) { return tensor.to(DType::f64).to_vector<double>(); }

/// The result of a stream for x pushed in pieces of `sizes`, repeated until x ends; on a GPU `recorded` or not.
inline Tensor streamed(Module& net, const Tensor& x, const std::vector<std::int64_t>& sizes, bool recorded = false) {
  Stream stream(net);
  stream.record_pushes(recorded);
  std::vector<Tensor> pieces;
  std::int64_t begin = 0;
  for (std::size_t i = 0; begin < x.size(-1); ++i) {
    const std::int64_t count = std::min(sizes[i % sizes.size()], x.size(-1) - begin);
    const Tensor piece = stream.push(x.narrow(-1, begin, count));
    pieces.push_back(stream.has_replayed() ? piece.clone() : piece);
    begin += count;
  }
  pieces.push_back(stream.finish());
  return cat(pieces, -1);
}

/// The largest |a - b| as a part of the largest |b|; 0 where both are empty.
inline double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) return std::numeric_limits<double>::quiet_NaN();
    difference = std::max(difference, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return difference == 0 ? 0 : difference / largest;
}

/// Checks that the stream's results are the network's, however the input is divided: on the CPU bit for bit; on a GPU, whose
/// kernels add in an order that depends on the length, within the rounding of about twenty sums. `x`: the input. The network
/// must be in eval().
inline void check_stream_of(Module& net, const Tensor& x) {
  const NoGradGuard no_grad;
  const Tensor whole = net(x);
  CAPTURE(name_of(whole.dtype()));
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{1}, {2}, {3}, {8}, {64}, {1000}, {5, 1, 17, 2, 2, 40, 9}}) {
    CAPTURE(sizes.front());
    const Tensor pieces = streamed(net, x, sizes);
    REQUIRE(pieces.shape() == whole.shape());
    if (x.device().is_cpu()) {
      CHECK(f64_values(pieces) == f64_values(whole));
      continue;
    }
    const double bound = whole.dtype() == DType::f32 ? 4e-6 : 4e-15;
    CHECK(relative_difference(f64_values(pieces), f64_values(whole)) < bound);
    if (sizes.front() > 3 || sizes.size() > 1) continue;
    const Tensor replayed = streamed(net, x, sizes, true);
    REQUIRE(replayed.shape() == whole.shape());
    CHECK(relative_difference(f64_values(replayed), f64_values(whole)) < bound);
  }
}

/// The same for a causal network of codes in f32 and f64, for each of `inputs`.
inline void check_causal_stream_of_codes(Module& net, const std::vector<Tensor>& inputs) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    net.to(dtype);
    for (const Tensor& codes : inputs) check_stream_of(net, codes);
  }
  CHECK(receptive_field(net).is_causal());
}

/// The same in f32 and f64, for random numbers of a shape.
inline void check_stream(Module& net, const Shape& shape) {
  net.eval();
  for (const DType dtype : {DType::f32, DType::f64}) {
    net.to(dtype);
    check_stream_of(net, random_f64(shape, 5).to(dtype));
  }
}

}  // namespace polyphase::testing
