#include "networks/blocks/euclidean_quantizer.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ops/elementwise.hpp"
#include "ops/embedding.hpp"
#include "ops/length.hpp"
#include "support/helpers.hpp"
#include "support/network_state.hpp"
#include "support/stream.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

EuclideanQuantizer three() { return EuclideanQuantizer({.codebooks = 3, .bins = 16, .dimension = 4}); }

}  // namespace

TEST_CASE("codebooks are buffers under EnCodec's names") {
  EuclideanQuantizer net = three();
  CHECK(net.parameters().empty());
  const NetworkState of(net);
  CHECK(of("vq.layers.2._codebook.embed").shape() == Shape{16, 4});
  CHECK(net.state_dict().size() == 3);
}

TEST_CASE("codes stand for the sum of their rows, and each codebook codes what is left over") {
  manual_seed(1);
  EuclideanQuantizer net = three();
  net.to(DType::f64);
  const NetworkState of(net);
  const Tensor x = random_f64({2, 4, 9}, 3);
  const Tensor codes = net.encode(x, 3);
  CHECK(codes.shape() == Shape{2, 3, 9});
  Tensor rest = x.transpose(1, 2), total = Tensor::zeros({2, 9, 4}, {.dtype = DType::f64});
  for (std::int64_t q = 0; q < 3; ++q) {
    const Tensor book = of(concat("vq.layers.", q, "._codebook.embed"));
    CHECK(nearest_code(rest, book).to_vector<std::int64_t>() == codes.select(1, q).to_vector<std::int64_t>());
    total = total + embedding(codes.select(1, q), book);
    rest = rest - embedding(codes.select(1, q), book);
  }
  CHECK(max_difference(net(codes), total.transpose(1, 2)) == 0);
  CHECK(net.encode(x, 2).to_vector<std::int64_t>() == codes.narrow(1, 0, 2).to_vector<std::int64_t>());
  CHECK(max_difference(net(codes), net(codes.narrow(1, 0, 2))) > kFloatSum);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    net.to(dtype);
    CHECK(net.encode(x.to(dtype), 3).shape() == Shape{2, 3, 9});
    CHECK(net(codes).dtype() == dtype);
  }
}

TEST_CASE("a quantizer in pieces") {
  manual_seed(2);
  EuclideanQuantizer net = three();
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < 2 * 3 * 40; ++i) numbers.push_back(i * 7 % 16);
  check_stream_of(net, Tensor::from_vector(numbers, {2, 3, 40}));
}

TEST_CASE("codes and vectors that do not fit are refused in words") {
  EuclideanQuantizer net = three();
  const auto codes = [](std::int64_t second) { return Tensor::from_vector<std::int64_t>({0, 1, second, 3}, {1, 2, 2}); };
  if (default_device().is_cpu()) {  // a GPU does not wait for the result
    CHECK(error_of<ShapeError>([&] { return net(codes(16)); }) ==
          "EuclideanQuantizer: codebook 1: expected codes in [0, 16), got 16");
    CHECK(error_of<ShapeError>([&] { return net(codes(-1)); }).find("codebook 1") != std::string::npos);
  }
  CHECK(error_of<ShapeError>([&] {
          return net(Tensor::zeros({1, 4, 2}, {DType::i64}));
        }) == "EuclideanQuantizer: expected codes (N, 1 to 3, T), got (1, 4, 2)");
  CHECK(error_of<DTypeError>([&] {
          return net(Tensor::zeros({1, 3, 2}));
        }) == "EuclideanQuantizer: expected codes of i64, got f32");
  CHECK(error_of<ShapeError>([&] { return net.encode(Tensor::ones({1, 5, 2}), 3); }).find("(N, 4, T)") != std::string::npos);
  CHECK(error_of<ShapeError>([&] {
          return net.encode(Tensor::ones({1, 4, 2}), 4);
        }) == "EuclideanQuantizer: expected from 1 to 3 codebooks, got 4");
  CHECK(error_of<ShapeError>([] { return EuclideanQuantizer({.codebooks = 1, .bins = 0, .dimension = 4}), 0; }) ==
        "EuclideanQuantizer: expected bins >= 1, got 0");
}
