#include "networks/blocks/noise_block.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "ops/conv.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/network_checks.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

/// A row of noise in f64.
std::vector<double> row(const NoiseSource& source, std::size_t block, std::int64_t first, std::int64_t count,
                        DType dtype = DType::f64) {
  return f64_values(source.row(block, first, count, Tensor::zeros({1, 1, count}, {dtype})));
}

}  // namespace

TEST_CASE("noise is a function of seed, block and position") {
  NoiseSource source;
  const std::vector<double> whole = row(source, 1, 0, 1000);
  for (const std::int64_t first : {0, 1, 2, 3, 4, 5, 131, 998}) {
    CAPTURE(first);
    const std::int64_t count = std::min<std::int64_t>(77, 1000 - first);
    CHECK(row(source, 1, first, count) == std::vector<double>(whole.begin() + first, whole.begin() + first + count));
  }
  CHECK(row(source, 0, 0, 1000) != whole);
  CHECK(row(source, 1, 0, 1000, DType::f32) == whole);
  source.set_seed(1);
  CHECK(row(source, 1, 0, 1000) != whole);
  source.set_seed(0);
  CHECK(row(source, 1, 0, 1000) == whole);
}

TEST_CASE("it is normal, far along the row too") {
  const NoiseSource source;
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{1} << 40}) {
    const std::vector<double> values = row(source, 3, first, 100000);
    double sum = 0, squares = 0;
    for (const double value : values) sum += value, squares += value * value;
    CHECK(std::abs(sum / 100000) < 0.02);  // 6 standard errors
    CHECK(std::abs(squares / 100000 - 1) < 0.03);
  }
}

TEST_CASE("the block is x + noise*linear(x), with seeded, given and no noise") {
  manual_seed(2);
  const auto source = std::make_shared<NoiseSource>();
  NoiseBlock block(3, 2, source);
  block.to(DType::f64);
  block.eval();
  const Tensor x = random_f64({2, 3, 9}), weight = StateOf(block)["linear.weight"];
  CHECK(StateOf(block).size() == 1);
  CHECK(max_difference(block(x), x + source->row(2, 0, 9, x) * conv1d(x, weight)) < kDoubleRounding);
  const Tensor given = random_f64({2, 1, 9}, 7);
  source->set_rows({given, given, given});
  CHECK(max_difference(block(x), x + given * conv1d(x, weight)) < kDoubleRounding);
  source->set_zero();
  CHECK(max_difference(block(x), x) == 0);
  CHECK(max_difference(source->row(2, 0, 9, x), Tensor::zeros({1, 1, 9}, {DType::f64})) == 0);
}

TEST_CASE("in training the noise is new in each call, for each sample of the batch") {
  const auto source = std::make_shared<NoiseSource>();
  NoiseBlock block(1, 0, source);
  const Tensor x = Tensor::ones({2, 1, 50});
  const Tensor y = block(x).detach();
  CHECK(max_difference(y, block(x)) > 0);
  CHECK(max_difference(y.narrow(0, 0, 1), y.narrow(0, 1, 1)) > 0);
  block.eval();
  const Tensor z = block(x).detach();
  CHECK(max_difference(z, block(x)) == 0);
  CHECK(max_difference(z.narrow(0, 0, 1), z.narrow(0, 1, 1)) == 0);
}

TEST_CASE("gradients") {
  NoiseBlock block(3, 0, std::make_shared<NoiseSource>());
  block.eval();
  CHECK(layer_gradcheck(block, {2, 3, 5}) == "");
}

TEST_CASE("a stream has the noise of its positions") {
  const auto source = std::make_shared<NoiseSource>();
  NoiseBlock block(3, 1, source);
  check_stream(block, {2, 3, 150});
  source->set_rows({Tensor(), random_f64({1, 1, 150}, 3)});
  check_stream(block, {2, 3, 150});
  source->set_zero();
  check_stream(block, {2, 3, 150});
  block.train();
  Stream stream(block);
  CHECK(error_of<Error>([&] {
          return stream.push(Tensor::ones({2, 3, 1}, {DType::f64}));
        }).find("eval()") != std::string::npos);
}

TEST_CASE("rows that do not fit are refused in words") {
  const auto source = std::make_shared<NoiseSource>();
  NoiseBlock block(3, 1, source);
  source->set_rows({Tensor::ones({1, 1, 9})});
  CHECK(error_of<ShapeError>([&] { return block(Tensor::ones({2, 3, 9})); }).find("got 1") != std::string::npos);
  source->set_rows({Tensor::ones({1, 1, 9}), Tensor::ones({1, 1, 8})});
  CHECK(error_of<ShapeError>([&] {
          return block(Tensor::ones({2, 3, 9}));
        }) == "noise: expected row 1 to be (1 or 2, 1, at least 9), got (1, 1, 8)");
}
