#include "ops/reduce.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/gradcheck.hpp"
#include "ops/elementwise.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Inputs = std::vector<Tensor>;
using Values = std::vector<double>;
using Reduction = Tensor (*)(const Tensor&, const std::vector<int>&, bool);

const std::vector<std::vector<int>> kDims = {{}, {0}, {1}, {-1}, {0, 2}, {1, -1}, {2, 0, 1}};

std::string check_all(Reduction reduction) {
  for (const std::vector<int>& dims : kDims)
    for (const bool keepdim : {false, true}) {
      const auto function = [&](const Inputs& in) { return reduction(in[0], dims, keepdim); };
      std::string text = gradcheck(function, {leaf_f64({2, 3, 2})});
      if (text.empty())
        text = gradcheck([&](const Inputs& in) { return function({in[0].permute({2, 0, 1})}); }, {leaf_f64({3, 2, 2})});
      if (!text.empty()) return concat(dims.size(), " dims, keepdim ", keepdim, ": ", text);
    }
  return "";
}

// Two passes in long double.
double plain_variance(const Tensor& x) {
  const Values values = x.to(DType::f64).to_vector<double>();
  const auto n = static_cast<long double>(values.size());
  long double mean = 0, squares = 0;
  for (const double value : values) mean += value / n;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return static_cast<double>(squares / (n - 1));
}

}  // namespace

TEST_CASE("sums and means by hand") {
  const Tensor x = Tensor::from_vector<double>({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(sum(x).item() == 21);
  CHECK(sum(x).rank() == 0);
  CHECK(mean(x).item() == 3.5);
  CHECK(sum(x, {0}).to_vector<double>() == Values{5, 7, 9});
  CHECK(sum(x, {1}).to_vector<double>() == Values{6, 15});
  CHECK(sum(x, {1}, true).shape() == Shape{2, 1});
  CHECK(sum(x, {-2, -1}, true).shape() == Shape{1, 1});
  CHECK(mean(x, {1}).to_vector<double>() == Values{2, 5});
  CHECK(sum(x.transpose(0, 1), {0}).to_vector<double>() == Values{6, 15});
  CHECK(sum(x, std::vector<int>{}).to_vector<double>() == x.to_vector<double>());
  CHECK(max(x).item() == 6);
  CHECK(min(x).item() == 1);
  CHECK(max(x).rank() == 0);
}

TEST_CASE("variance and norm by hand") {
  const Tensor x = Tensor::from_vector<double>({1, 2, 3, 4, 6, 8}, {2, 3});
  CHECK(var(x, {1}).to_vector<double>() == Values{1, 4});
  CHECK(max_difference(var(x, {1}, true, 0), Tensor::from_vector<double>({2.0 / 3, 8.0 / 3}, {2, 1})) <= kDoubleSum);
  CHECK(norm(Tensor::from_vector<double>({3, -4})).item() == 5);
  CHECK(max_difference(norm(x, {0}), sqrt(sum(square(x), {0}))) <= kDoubleSum);
  CHECK(std::isnan(var(x, {}).to_vector<double>()[0]));  // divisor 1 - 1
}

TEST_CASE("the variance keeps its digits however far the mean is from zero") {
  for (const double offset : {0.0, 1.0, 1e3, 1e6, 1e7})
    for (const double scale : {1.0, 1e-2, 100.0}) {
      CAPTURE(offset);
      CAPTURE(scale);
      const Tensor x = (random_f64({1000}) * scale + offset).to(DType::f32);
      const double expected = plain_variance(x);
      CHECK(relative(var(x, {0}).item() - expected, expected) <= kFloatVariance);
      const Tensor wide = x.to(DType::f64);
      CHECK(relative(var(wide, {0}).item() - expected, expected) <= kDoubleRounding);
    }
  const Tensor far = random_f64({1000}) + 1e12;  // even f64 loses half of its digits to a mean of this size
  CHECK(relative(var(far, {0}).item() - plain_variance(far), plain_variance(far)) <= kDoubleRounding);
  for (const DType half : {DType::f16, DType::bf16}) {
    const Tensor x = (random_f64({1000}) + 100.0).to(half);
    const double expected = plain_variance(x);
    CHECK(relative(var(x, {0}).item() - expected, expected) <= 2 * (half == DType::f16 ? kHalfUnit : kBFloat16Unit));
  }
}

TEST_CASE("the variance's gradient far from zero") {
  const auto function = [](const Inputs& in) { return var(in[0] + 1e6, {1}); };
  CHECK(gradcheck(function, {leaf_f64({2, 5})}, {.step = 1e-4}) == "");
  Tensor x = (random_f64({1000}) + 1e6).to(DType::f32);
  Tensor wide = x.to(DType::f64);
  x.set_requires_grad(true);
  wide.set_requires_grad(true);
  var(x, {0}).backward();
  var(wide, {0}).backward();
  CHECK(max_difference(x.grad() * 999.0, wide.grad() * 999.0) <= kFloatRounding * 8);  // 2*(x - mean) is at most about 7
}

TEST_CASE("empty tensors and rank 0") {
  CHECK(sum(random_f64({0, 3})).item() == 0);
  CHECK(sum(random_f64({0, 3}), {0}).to_vector<double>() == Values{0, 0, 0});
  CHECK(sum(random_f64({0, 3}), {1}).shape() == Shape{0});
  CHECK(std::isnan(mean(random_f64({0})).item()));
  CHECK(norm(random_f64({0})).item() == 0);
  const Tensor scalar = Tensor::full({}, 3, {.dtype = DType::f64});
  CHECK(sum(scalar).item() == 3);
  CHECK(mean(scalar).item() == 3);
  CHECK(norm(scalar).item() == 3);
  CHECK(max(scalar).item() == 3);
}

TEST_CASE("gradients over every choice of dimensions") {
  CHECK(check_all([](const Tensor& x, const std::vector<int>& dims, bool keepdim) { return sum(x, dims, keepdim); }) == "");
  CHECK(check_all([](const Tensor& x, const std::vector<int>& dims, bool keepdim) { return mean(x, dims, keepdim); }) == "");
  CHECK(check_all([](const Tensor& x, const std::vector<int>& dims, bool keepdim) { return norm(x, dims, keepdim); }) == "");
  CHECK(check_all([](const Tensor& x, const std::vector<int>& dims, bool keepdim) { return var(x, dims, keepdim, 0); }) == "");
  for (const std::vector<int>& dims : {std::vector<int>{0}, {0, 2}, {0, 1, 2}})
    CHECK(gradcheck([&](const Inputs& in) { return var(in[0], dims); }, {leaf_f64({2, 3, 2})}) == "");
}

TEST_CASE("gradients over all dimensions") {
  CHECK(gradcheck([](const Inputs& in) { return sum(in[0]); }, {leaf_f64({2, 3})}) == "");
  CHECK(gradcheck([](const Inputs& in) { return mean(in[0]); }, {leaf_f64({2, 3})}) == "");
  CHECK(gradcheck([](const Inputs& in) { return norm(in[0]); }, {leaf_f64({2, 3})}) == "");
  CHECK(gradcheck([](const Inputs& in) { return sum(in[0]); }, {leaf_f64({0, 3})}) == "");
  CHECK(gradcheck([](const Inputs& in) { return sum(in[0]) * mean(in[0]); }, {leaf_f64({})}) == "");
}

TEST_CASE("the norm's gradient is 0 at 0") {
  const Tensor x = leaf_of({0, 0});
  norm(x).backward();
  CHECK(x.grad().to_vector<double>() == Values{0, 0});
}

TEST_CASE("sum_to is the adjoint of broadcasting") {
  const Tensor x = Tensor::from_vector<double>({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(sum_to(x, {2, 3}).is_same(x));
  CHECK(sum_to(x, {3}).to_vector<double>() == Values{5, 7, 9});
  CHECK(sum_to(x, {2, 1}).to_vector<double>() == Values{6, 15});
  CHECK(sum_to(x, {}).item() == 21);
  CHECK(sum_to(random_f64({0, 3}), {1}).to_vector<double>() == Values{0});
  for (const Shape& shape : {Shape{3}, Shape{2, 1}, Shape{1, 1}, Shape{}})
    CHECK(gradcheck([&](const Inputs& in) { return sum_to(in[0], shape); }, {leaf_f64({2, 3})}) == "");
  CHECK(error_of<ShapeError>([&] { return sum_to(x, {4}); }) == "sum_to: expected a shape that broadcasts to (2, 3), got (4,)");
  CHECK(error_of<ShapeError>([&] {
          return sum_to(x, {1, 2, 3});
        }) == "sum_to: expected a shape that broadcasts to (2, 3), got (1, 2, 3)");
}

TEST_CASE("16-bit means do not overflow on the way") {
  const Tensor x = Tensor::full({1000}, 1000, {.dtype = DType::f16});
  CHECK(mean(x).item() == 1000);
  CHECK(mean(x).dtype() == DType::f16);
  CHECK(norm(Tensor::full({4}, 1000, {.dtype = DType::f16})).item() == 2000);
  CHECK(var(x, {0}).item() == 0);
  CHECK(sum(Tensor::full({300}, 1, {.dtype = DType::bf16})).item() == 300);  // bf16 has no 257: the sum must run in f32
}

TEST_CASE("long f32 sums stay exact to a few roundings") {
  const Tensor x = Tensor::full({1'000'000}, 0.1);
  CHECK(sum(x).item() / 1e5 == doctest::Approx(1).epsilon(kFloatSum / 10));
}

TEST_CASE("errors") {
  const Tensor x = random_f64({2, 3});
  CHECK(error_of<ShapeError>([&] {
          return max(random_f64({0, 3}));
        }) == "max: expected at least one element, got shape (0, 3)");
  CHECK(error_of<ShapeError>([&] { return min(random_f64({0})); }) == "min: expected at least one element, got shape (0,)");
  CHECK(error_of<ShapeError>([&] { return sum(x, {0, -2}); }) == "sum: expected each dimension once, got -2 twice");
  CHECK(error_of<ShapeError>([&] { return sum(x, {2}); }).find("sum: ") == 0);
  CHECK(error_of<DTypeError>([&] { return mean(Tensor::ones({1}, {.dtype = DType::i64})); }) ==
        "mean: expected a floating-point tensor, got i64");
}
