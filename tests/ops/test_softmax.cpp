#include "ops/softmax.hpp"

#include <doctest/doctest.h>

#include "autograd/gradcheck.hpp"
#include "ops/elementwise.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("softmax and log_softmax agree with their formulas") {
  const Tensor x = random_f64({2, 3, 4}) * 3.0;
  for (const int dim : {0, 1, 2, -1, -3}) {
    const Tensor y = softmax(x, dim), logarithm = log_softmax(x, dim);
    const int d = dim < 0 ? dim + 3 : dim;
    const Tensor rows = x.transpose(d, 2).contiguous();
    const auto xs = rows.to_vector<double>(), ys = y.transpose(d, 2).contiguous().to_vector<double>();
    const auto ls = logarithm.transpose(d, 2).contiguous().to_vector<double>();
    const auto width = static_cast<std::size_t>(rows.size(2));
    for (std::size_t row = 0; row < xs.size(); row += width) {
      double total = 0;
      for (std::size_t i = 0; i < width; ++i) total += std::exp(xs[row + i]);
      for (std::size_t i = 0; i < width; ++i) {
        CHECK(std::abs(ys[row + i] - std::exp(xs[row + i]) / total) <= kDoubleRounding);
        CHECK(std::abs(ls[row + i] - (xs[row + i] - std::log(total))) <= kDoubleRounding * 10);
      }
    }
  }
}

TEST_CASE("softmax of large numbers and of -inf") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const Tensor x = Tensor::from_vector<double>({1000, 1000, -infinity, -1000}).to(dtype);
    CHECK(max_difference(softmax(x), Tensor::from_vector<double>({0.5, 0.5, 0, 0})) == 0);
    CHECK(std::abs(log_softmax(x).select(0, 0).item() + std::log(2.0)) <= kBFloat16Rounding);
  }
}

TEST_CASE("softmax: gradients, dtypes, nothing, errors") {
  for (const int dim : {0, 1}) {
    CHECK(gradcheck([&](const std::vector<Tensor>& in) { return softmax(in[0], dim); }, {leaf_f64({3, 4})}) == "");
    CHECK(gradcheck([&](const std::vector<Tensor>& in) { return log_softmax(in[0], dim); }, {leaf_f64({3, 4})}) == "");
  }
  CHECK(gradcheck([](const std::vector<Tensor>& in) { return softmax(in[0]) + log_softmax(in[0]); }, {leaf_f64({0, 4})}) == "");
  const Tensor x = random_f64({5, 70});
  CHECK(max_difference(softmax(x.to(DType::f32)), softmax(x)) <= kFloatRounding);
  for (const auto& [dtype, rounding] : {std::pair{DType::f16, kHalfRounding}, std::pair{DType::bf16, kBFloat16Rounding}}) {
    CHECK(softmax(x.to(dtype)).dtype() == dtype);
    CHECK(max_difference(softmax(x.to(dtype)), softmax(x.to(dtype).to(DType::f64))) <= rounding);
  }
  CHECK_THROWS_AS((void)softmax(x, 2), ShapeError);
  CHECK_THROWS_AS((void)log_softmax(Tensor::zeros({2}, {.dtype = DType::i64})), DTypeError);
}
