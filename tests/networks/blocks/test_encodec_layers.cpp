#include "networks/blocks/encodec_layers.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "ops/conv.hpp"
#include "ops/length.hpp"
#include "ops/norm.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/network_state.hpp"
#include "support/stream.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::networks;
using namespace polyphase::testing;

namespace {

// One position at a time: the row is padded by zeros to the length that reflection needs, then reflected.
std::vector<double> plain_reflection(const std::vector<double>& x, std::int64_t left, std::int64_t right) {
  std::vector<double> row = x;
  const auto needed = static_cast<std::size_t>(std::max(left, right)) + 1;
  if (row.size() < needed) row.resize(needed, 0);
  const auto last = static_cast<std::int64_t>(row.size()) - 1;
  std::vector<double> out;
  for (std::int64_t t = -left; t < static_cast<std::int64_t>(x.size()) + right; ++t) {
    const std::int64_t at = t < 0 ? -t : t > last ? 2 * last - t : t;
    out.push_back(row[static_cast<std::size_t>(at)]);
  }
  return out;
}

EncodecConv1d conv(std::int64_t kernel_size, std::int64_t stride, std::int64_t dilation, bool causal, bool norm = false) {
  return EncodecConv1d({.in_channels = 3,
                        .out_channels = 2,
                        .kernel_size = kernel_size,
                        .stride = stride,
                        .dilation = dilation,
                        .causal = causal,
                        .norm = norm});
}

}  // namespace

TEST_CASE("EnCodec's reflection, also of rows that are too short for it") {
  for (const std::int64_t length : {1, 2, 3, 6, 7, 20})
    for (const auto& [left, right] : {std::pair{6, 0}, {3, 3}, {3, 5}, {0, 0}, {0, 4}, {2, 1}}) {
      const Tensor x = random_f64({1, 1, length}, 3);
      CHECK(reflect_padded(x, left, right).to_vector<double>() == plain_reflection(x.to_vector<double>(), left, right));
    }
}

TEST_CASE("EnCodec's convolution: position of the padding, and whole strides") {
  manual_seed(1);
  for (const bool causal : {true, false})
    for (const std::int64_t length : {1, 2, 7, 12, 13}) {
      EncodecConv1d layer = conv(8, 4, 1, causal);
      layer.to(DType::f64);
      const NoGradGuard no_grad;
      const NetworkState of(layer);
      const Tensor x = random_f64({2, 3, length}, 2);
      const std::int64_t total = 4, extra = (4 - length % 4) % 4;
      const std::int64_t right = (causal ? 0 : total / 2) + extra, left = causal ? total : total - total / 2;
      const Tensor expected = of.conv(reflect_padded(x, left, right), "conv.conv", {.stride = 4});
      CHECK(max_difference(layer(x), expected) == 0);
      CHECK(layer(x).size(2) == (length + 3) / 4);
    }
  EncodecConv1d odd = conv(4, 1, 1, false);  // 3 positions: 2 on the left, 1 on the right
  CHECK(odd.left() == 2);
  CHECK(odd.right(9) == 1);
  CHECK(layer_gradcheck(odd, {1, 3, 5}) == "");
  CHECK(error_of<ShapeError>([&] {
          return odd(random_f64({2, 3}));
        }) == "EncodecConv1d: expected x (N, C, L >= 1), got (2, 3)");
}

TEST_CASE("EnCodec's norm has one group, and sees what a transposed convolution cuts off") {
  manual_seed(2);
  EncodecConv1d layer = conv(3, 1, 1, false, true);
  layer.to(DType::f64);
  randomise(layer);
  const NoGradGuard no_grad;
  const Tensor x = random_f64({2, 3, 10}, 2);
  const NetworkState of(layer);
  CHECK(max_difference(layer(x), group_norm(of.conv(reflect_padded(x, 1, 1), "conv.conv"), 1, of("conv.norm.weight"),
                                            of("conv.norm.bias"))) < kDoubleRounding);
  for (const bool causal : {true, false}) {
    EncodecConvTranspose1d up(
        {.in_channels = 3, .out_channels = 2, .kernel_size = 10, .stride = 5, .causal = causal, .norm = true});
    up.to(DType::f64);
    randomise(up);
    const NetworkState up_of(up);
    const Tensor whole =
        group_norm(conv_transpose1d(x, up_of("convtr.convtr.weight"), up_of("convtr.convtr.bias"), {.stride = 5}), 1,
                   up_of("convtr.norm.weight"), up_of("convtr.norm.bias"));
    CHECK(max_difference(up(x), whole.narrow(2, causal ? 0 : 3, 50)) < kDoubleRounding);
    CHECK(error_of<NotImplemented>([&] { return up.make_stream(); }).find("time_group_norm") != std::string::npos);
  }
  CHECK(error_of<NotImplemented>([&] { return layer.make_stream(); }).find("time_group_norm") != std::string::npos);
}

TEST_CASE("EnCodec's transposed convolution without a norm") {
  manual_seed(3);
  const Tensor x = random_f64({1, 3, 6}, 2);
  for (const bool causal : {true, false}) {
    EncodecConvTranspose1d up({.in_channels = 3, .out_channels = 2, .kernel_size = 10, .stride = 5, .causal = causal});
    up.to(DType::f64);
    const NoGradGuard no_grad;
    const NetworkState of(up);
    const Tensor whole = conv_transpose1d(x, of("convtr.convtr.weight"), of("convtr.convtr.bias"), {.stride = 5});
    CHECK(max_difference(up(x), whole.narrow(2, causal ? 0 : 3, 30)) < kDoubleRounding);
    check_stream(up, {2, 3, 20});
  }
}

TEST_CASE("EnCodec's convolutions in pieces: they wait for what is reflected") {
  manual_seed(4);
  for (const bool causal : {true, false})
    for (const auto& [kernel_size, stride, dilation] :
         {std::tuple{7, 1, 1}, {3, 1, 4}, {1, 1, 1}, {8, 4, 1}, {10, 5, 1}, {4, 1, 1}}) {
      EncodecConv1d layer = conv(kernel_size, stride, dilation, causal);
      for (const std::int64_t length : {1, 2, 3, 5, 7, 9, 41, 70}) {
        CAPTURE(length);
        CAPTURE(layer.left());
        check_stream(layer, {2, 3, length});
      }
    }
  EncodecConv1d layer = conv(7, 1, 1, true);
  Stream stream(layer);
  CHECK(stream.push(Tensor::ones({1, 3, 6})).size(2) == 0);
  CHECK(stream.push(Tensor::ones({1, 3, 1})).size(2) == 7);
  CHECK(stream.push(Tensor::ones({1, 3, 1})).size(2) == 1);
  CHECK(stream.latency() == 0);
  stream.reset();
  CHECK(stream.push(Tensor::ones({1, 3, 2})).size(2) == 0);
  CHECK(stream.finish().size(2) == 2);
}
