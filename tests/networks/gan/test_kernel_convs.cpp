#include "networks/gan/kernel_convs.hpp"

#include <doctest/doctest.h>

#include "support/helpers.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;
using networks::BinConv;
using networks::ColumnConv;

namespace {

// Conv2d written out: x (N, C, H, W), w (O, C, kh, kw), a bias, zeros around that keep both sizes at stride 1, stride along W.
std::vector<double> plain_conv2d(const Tensor& x, const Tensor& w, const Tensor& b, std::int64_t stride) {
  const std::vector<double> xs = x.contiguous().to_vector<double>(), ws = w.to_vector<double>(), bs = b.to_vector<double>();
  const std::int64_t N = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3), O = w.size(0), kh = w.size(2), kw = w.size(3);
  std::vector<double> y;
  for (std::int64_t n = 0; n < N; ++n)
    for (std::int64_t o = 0; o < O; ++o)
      for (std::int64_t h = 0; h < H; ++h)
        for (std::int64_t t = 0; t < W; t += stride) {
          double sum = bs[static_cast<std::size_t>(o)];
          for (std::int64_t c = 0; c < C; ++c)
            for (std::int64_t i = 0; i < kh; ++i)
              for (std::int64_t j = 0; j < kw; ++j) {
                const std::int64_t row = h + i - kh / 2, column = t + j - kw / 2;
                if (row < 0 || row >= H || column < 0 || column >= W) continue;
                sum += ws[static_cast<std::size_t>(((o * C + c) * kh + i) * kw + j)] *
                       xs[static_cast<std::size_t>(((n * C + c) * H + row) * W + column)];
              }
          y.push_back(sum);
        }
  return y;
}

}  // namespace

TEST_CASE("BinConv is Conv2d") {
  for (const std::int64_t stride : {1, 2}) {
    BinConv conv({.in_channels = 2, .out_channels = 3, .bins = 3, .kernel_size = 5, .stride = stride});
    conv.to(DType::f64);
    const Tensor x = random_f64({2, 2, 4, 7});  // (N, C, bins, frames)
    const Tensor y = conv(x);
    CHECK(y.shape() == Shape{2, 3, 4, stride == 1 ? 7 : 4});
    const Tensor expected = Tensor::from_vector(plain_conv2d(x, conv.weight(), conv.bias(), stride),
                                                {2, 3, 4, stride == 1 ? 7 : 4}, default_device());
    CHECK(max_difference(y, expected) <= kDoubleRounding * 10);
    CHECK(layer_gradcheck(conv, {1, 2, 3, 6}) == "");
  }
}

TEST_CASE("ColumnConv is Conv1d with a weight of rank 4") {
  ColumnConv conv({.in_channels = 1, .out_channels = 2, .kernel_size = 3, .stride = 2, .padding = 1});
  CHECK(conv.weight().shape() == Shape{2, 1, 3, 1});
  CHECK(conv(Tensor::ones({4, 1, 6})).shape() == Shape{4, 2, 3});
  CHECK(layer_gradcheck(conv, {2, 1, 6}) == "");
}
