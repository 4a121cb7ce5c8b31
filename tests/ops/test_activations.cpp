#include "ops/activations.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <functional>

#include "autograd/gradcheck.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Inputs = std::vector<Tensor>;
using Function = std::function<Tensor(const Tensor&)>;

// Values away from the corners at 0.
const std::vector<double> kValues = {-3, -1.2, -0.4, 0.3, 1, 2.7};

struct Case {
  const char* name;
  Function function;
  double (*formula)(double);
};

const std::vector<Case> kCases = {
    {"relu", relu, [](double x) { return x > 0 ? x : 0; }},
    {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.1); }, [](double x) { return x > 0 ? x : 0.1 * x; }},
    {"leaky_relu default", [](const Tensor& x) { return leaky_relu(x); }, [](double x) { return x > 0 ? x : 0.01 * x; }},
    {"elu", [](const Tensor& x) { return elu(x); }, [](double x) { return x > 0 ? x : std::exp(x) - 1; }},
    {"elu alpha", [](const Tensor& x) { return elu(x, 1.5); }, [](double x) { return x > 0 ? x : 1.5 * (std::exp(x) - 1); }},
    {"gelu", [](const Tensor& x) { return gelu(x); }, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
    {"gelu tanh", [](const Tensor& x) { return gelu(x, true); },
     [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x))); }},
    {"silu", silu, [](double x) { return x / (1 + std::exp(-x)); }},
    {"tanh", [](const Tensor& x) { return polyphase::tanh(x); }, [](double x) { return std::tanh(x); }},
    {"sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"softplus", softplus, [](double x) { return std::log(1 + std::exp(x)); }},
};

}  // namespace

TEST_CASE("values follow the formulas") {
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    std::vector<double> expected;
    for (const double x : kValues) expected.push_back(c.formula(x));
    CHECK(max_difference(c.function(Tensor::from_vector(kValues)), Tensor::from_vector(expected)) <= kDoubleSum);
  }
}

TEST_CASE("gradients") {
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    CHECK(gradcheck([&](const Inputs& in) { return c.function(in[0]); }, {leaf_of(kValues)}) == "");
    CHECK(gradcheck([&](const Inputs& in) { return c.function(in[0].transpose(0, 1)); }, {leaf_f64({2, 3})}) == "");
    CHECK(c.function(random_f64({0, 2})).shape() == Shape{0, 2});
  }
}

TEST_CASE("large arguments stay finite") {
  const Tensor x = leaf_of({-1000, 1000});
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    x.set_grad({});
    const Tensor y = c.function(x);
    sum(y).backward();
    for (const double value : y.to_vector<double>()) CHECK(std::isfinite(value));
    for (const double value : x.grad().to_vector<double>()) CHECK(std::isfinite(value));
  }
}

TEST_CASE("NaN: relu passes the gradient, leaky_relu its slope's share, all others give NaN") {
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    const Tensor x = leaf_of({std::nan(""), 2});
    sum(c.function(x) * Tensor::from_vector<double>({3, 3})).backward();
    const std::string name = c.name;
    const double got = x.grad().to_vector<double>()[0];
    if (name == "relu")
      CHECK(got == 3);
    else if (name == "leaky_relu")
      CHECK(got == 3 * 0.1);
    else if (name == "leaky_relu default")
      CHECK(got == 3 * 0.01);
    else
      CHECK(std::isnan(got));
  }
}

TEST_CASE("16-bit types") {
  const Tensor x = uniform_f64({50}, -2, 2);
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    const Tensor half = x.to(DType::f16);
    CHECK(max_difference(c.function(half), c.function(half.to(DType::f64))) <= kHalfRounding);
    const Tensor lowered = x.to(DType::bf16);
    CHECK(max_difference(c.function(lowered), c.function(lowered.to(DType::f64))) <= kBFloat16Rounding);
  }
}

TEST_CASE("snake: values per channel") {
  const Tensor x = random_f64({2, 3, 4});
  const Tensor alpha = uniform_f64({3}, 0.5, 2, 2);
  const Tensor beta = uniform_f64({3}, 0.5, 2, 3);
  const Tensor a = alpha.reshape({3, 1});
  CHECK(max_difference(snake(x, alpha), x + square(sin(a * x)) / a) <= kDoubleSum);
  CHECK(max_difference(snake_beta(x, alpha, beta), x + square(sin(a * x)) / beta.reshape({3, 1})) <= kDoubleSum);
  CHECK(max_difference(snake(x.select(0, 1), alpha), snake(x, alpha).select(0, 1)) == 0);
}

TEST_CASE("snake: gradients") {
  Tensor alpha = uniform_f64({3}, 0.5, 2, 2);
  Tensor beta = uniform_f64({3}, 0.5, 2, 3);
  alpha.set_requires_grad(true);
  beta.set_requires_grad(true);
  const auto one = [](const Inputs& in) { return snake(in[0], in[1]); };
  const auto two = [](const Inputs& in) { return snake_beta(in[0], in[1], in[2]); };
  CHECK(gradcheck(one, {leaf_f64({2, 3, 4}), alpha}) == "");
  CHECK(gradcheck(one, {leaf_f64({3, 4}), alpha}) == "");
  CHECK(gradcheck(one, {random_f64({3, 4}), alpha}) == "");
  CHECK(gradcheck(one, {leaf_f64({3, 4}), alpha.detach()}) == "");
  CHECK(gradcheck(two, {leaf_f64({2, 3, 4}), alpha, beta}) == "");
  CHECK(gradcheck(two, {leaf_f64({0, 3, 4}), alpha, beta}) == "");
}

TEST_CASE("snake: errors") {
  const Tensor x = random_f64({2, 3, 4});
  CHECK(error_of<ShapeError>([&] { return snake(x, random_f64({4})); }) == "snake: expected alpha (C=3), got (4,)");
  CHECK(error_of<ShapeError>([&] {
          return snake_beta(x, random_f64({3}), random_f64({3, 1}));
        }) == "snake_beta: expected beta (C=3), got (3, 1)");
  CHECK(error_of<ShapeError>([&] { return snake(random_f64({3}), random_f64({3})); }) ==
        "snake: expected x (N, C, L) or (C, L), got (3,)");
  CHECK(error_of<DTypeError>([&] { return relu(Tensor::ones({1}, {.dtype = DType::i64})); }) ==
        "relu: expected a floating-point tensor, got i64");
}

TEST_CASE("dropout keeps the mean, drops the share asked for and scales the rest") {
  Generator generator(7);
  const GeneratorGuard guard(generator);
  const Tensor x = Tensor::ones({10'000});
  const Tensor y = dropout(x, 0.25);
  const double dropped = 1 - sum(greater(y, Tensor::zeros({}))).item() / 10'000;
  CHECK(dropped == doctest::Approx(0.25).epsilon(0.05));
  CHECK(max(y).item() == doctest::Approx(1 / 0.75));
  CHECK(dropout(x, 0.25, false).is_same(x));
  CHECK(dropout(x, 0).is_same(x));
  CHECK(max_difference(dropout(x, 0.25), y) > 0);
}

TEST_CASE("dropout: the same elements in every dtype, and a gradient through the same mask") {
  const auto drop = [](const Tensor& x) {
    Generator generator(3);
    const GeneratorGuard guard(generator);
    return dropout(x, 0.5);
  };
  const Tensor wide = drop(Tensor::ones({100}));
  CHECK(max_difference(drop(Tensor::ones({100}, {.dtype = DType::f16})), wide) == 0);
  CHECK(max_difference(drop(Tensor::ones({100}, {.dtype = DType::f64})), wide) == 0);
  CHECK(gradcheck([&](const Inputs& in) { return drop(in[0]); }, {leaf_f64({4, 5})}) == "");
}

TEST_CASE("dropout: errors") {
  CHECK(error_of<ShapeError>([] { return dropout(Tensor::ones({1}), 1); }) == "dropout: expected p in [0, 1), got 1");
  CHECK(error_of<ShapeError>([] { return dropout(Tensor::ones({1}), -0.5); }) == "dropout: expected p in [0, 1), got -0.5");
}

TEST_CASE("snake's gradient and what else its argument gets have the bits of a sum") {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const auto leaf = [&](const Shape& shape, std::uint64_t seed) {
      Tensor made = random_f64(shape, seed).to(dtype).to(default_device());
      made.set_requires_grad(true);
      return made;
    };
    const Tensor x = leaf({2, 3, 37}, 1), alpha = leaf({3}, 2);
    const auto gradients = [&](bool apart) {
      for (const Tensor& t : {x, alpha}) Tensor(t).set_grad({});
      const Tensor in = x * 0.7;
      const Tensor other = apart ? in * 1.0 : in;  // recorded before the snake, so that its gradient is computed later
      const Tensor y = other + snake(in, alpha);
      square(y).backward(Tensor::full(y.shape(), 0.3, {.dtype = dtype, .device = y.device()}));
      return std::array{x.grad().to(DType::f64).to_vector<double>(), alpha.grad().to(DType::f64).to_vector<double>()};
    };
    CHECK(gradients(false) == gradients(true));
  }
}

TEST_CASE("glu: formula, gradients, dtypes, nothing, errors") {
  const Tensor x = random_f64({2, 4, 6});
  const auto xs = x.to_vector<double>(), last = glu(x).to_vector<double>(), middle = glu(x, 1).to_vector<double>();
  for (std::size_t row = 0; row < 8; ++row)
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(std::abs(last[row * 3 + i] - xs[row * 6 + i] / (1 + std::exp(-xs[row * 6 + 3 + i]))) <= kDoubleRounding);
  for (std::size_t n = 0; n < 2; ++n)
    for (std::size_t i = 0; i < 12; ++i)
      CHECK(std::abs(middle[n * 12 + i] - xs[n * 24 + i] / (1 + std::exp(-xs[n * 24 + 12 + i]))) <= kDoubleRounding);
  for (const int dim : {1, -1})
    for (const Shape& shape : {Shape{2, 4, 6}, Shape{0, 4, 6}})
      CHECK(gradcheck([&](const std::vector<Tensor>& in) { return glu(in[0], dim); }, {leaf_f64(shape)}) == "");
  CHECK(max_difference(glu(x.to(DType::f32)), glu(x)) <= 4 * kFloatRounding);
  for (const auto& [dtype, rounding] : {std::pair{DType::f16, kHalfRounding}, std::pair{DType::bf16, kBFloat16Rounding}})
    CHECK(max_difference(glu(x.to(dtype)), glu(x.to(dtype).to(DType::f64))) <= 2 * rounding);  // the sigmoid is also rounded
  CHECK(error_of<ShapeError>([&] {
          return glu(random_f64({2, 3}));
        }) == "glu: expected an even size of dimension 1, got (2, 3)");
}

TEST_CASE("average_of: sums in order, divides, activates; gradients and errors") {
  const std::vector<Tensor> parts{random_f64({2, 3}), random_f64({2, 3}, 2), random_f64({2, 3}, 3)};
  const Tensor mean = (parts[0] + parts[1] + parts[2]) / 3.0;
  CHECK(max_difference(average_of(parts, 3), mean) == 0);
  CHECK(max_difference(average_of(parts, 3, Activation::leaky_relu, 0.2), leaky_relu(mean, 0.2)) == 0);
  CHECK(max_difference(average_of(parts, 1, Activation::relu), relu(parts[0] + parts[1] + parts[2])) == 0);
  const auto function = [](const std::vector<Tensor>& in) { return average_of(in, 2, Activation::leaky_relu, 0.3); };
  CHECK(gradcheck(function, {leaf_f64({2, 3}), leaf_f64({2, 3}, 2), leaf_f64({2, 3}, 3)}) == "");
  CHECK(gradcheck([](const std::vector<Tensor>& in) { return average_of(in, 4); }, {leaf_f64({5})}) == "");
  const Tensor leaf = leaf_f64({2});  // twice in one sum
  average_of(std::vector<Tensor>{leaf, leaf}, 2).backward(Tensor::ones({2}, {.dtype = DType::f64}));
  CHECK(leaf.grad().to_vector<double>() == std::vector<double>{1, 1});
  CHECK(average_of(std::vector<Tensor>{random_f64({0, 3})}, 1).shape() == Shape{0, 3});
  CHECK(error_of<Error>([&] { return average_of({}, 1); }) == "average_of: expected at least one tensor, got none");
  CHECK(error_of<Error>([&] { return average_of(parts, 1, Activation::tanh); }) ==
        "average_of: expected no activation, relu, or leaky_relu with a slope of at least 0");
  CHECK(error_of<ShapeError>([&] {
          return average_of(std::vector<Tensor>{parts[0], random_f64({3, 2})}, 1);
        }) == "average_of: expected tensors of one shape, got (2, 3) and (3, 2)");
}
