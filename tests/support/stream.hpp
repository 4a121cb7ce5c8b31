#pragma once
// A network piece by piece beside the network at once.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "autograd/no_grad.hpp"
#include "layers/module.hpp"
#include "layers/stream.hpp"
#include "ops/length.hpp"
#include "support/helpers.hpp"

namespace polyphase::testing {

inline std::vector<double> f64_values(const Tensor& tensor) { return tensor.to(DType::f64).to_vector<double>(); }

/// What a stream returns for x pushed in pieces of `sizes`, one after another and again from the first.
inline Tensor streamed(Module& net, const Tensor& x, const std::vector<std::int64_t>& sizes) {
  Stream stream(net);
  std::vector<Tensor> pieces;
  std::int64_t begin = 0;
  for (std::size_t i = 0; begin < x.size(2); ++i) {
    const std::int64_t count = std::min(sizes[i % sizes.size()], x.size(2) - begin);
    pieces.push_back(stream.push(x.narrow(2, begin, count)));
    begin += count;
  }
  pieces.push_back(stream.finish());
  return cat(pieces, 2);
}

/// The stream's results are the network's, bit for bit, however the input is cut.
inline void check_stream(Module& net, const Shape& shape) {
  net.eval();
  for (const DType dtype : {DType::f32, DType::f64}) {
    net.to(dtype);
    const Tensor x = random_f64(shape, 5).to(dtype);
    const NoGradGuard no_grad;
    const Tensor whole = net(x);
    CAPTURE(name_of(dtype));
    for (const std::vector<std::int64_t>& sizes :
         {std::vector<std::int64_t>{1}, {2}, {3}, {8}, {64}, {1000}, {5, 1, 17, 2, 2, 40, 9}}) {
      CAPTURE(sizes.front());
      const Tensor pieces = streamed(net, x, sizes);
      REQUIRE(pieces.shape() == whole.shape());
      CHECK(f64_values(pieces) == f64_values(whole));
    }
  }
}

}  // namespace polyphase::testing
