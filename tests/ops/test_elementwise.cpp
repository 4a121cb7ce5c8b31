#include "ops/elementwise.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "autograd/autocast.hpp"
#include "autograd/gradcheck.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Inputs = std::vector<Tensor>;
using Values = std::vector<double>;

Tensor vector(const Values& values) { return Tensor::from_vector(values); }

std::string check(Tensor (*function)(const Tensor&), const Values& values) {
  return gradcheck([function](const Inputs& in) { return function(in[0]); }, {leaf_of(values)});
}

// a op b for every pair of shapes that can be broadcast; b is away from 0.
std::string check_broadcast(Tensor (*function)(const Tensor&, const Tensor&)) {
  const std::vector<std::pair<Shape, Shape>> shapes = {{{2, 3}, {2, 3}}, {{2, 3}, {3}},      {{3}, {2, 3}}, {{2, 1}, {1, 3}},
                                                       {{2, 3}, {}},     {{}, {2, 2}},       {{}, {}},      {{0, 3}, {3}},
                                                       {{1}, {2, 0}},    {{2, 1, 3}, {4, 1}}};
  for (const auto& [a_shape, b_shape] : shapes) {
    Tensor b = uniform_f64(b_shape, 0.5, 2, 2);
    b.set_requires_grad(true);
    const std::string both = gradcheck([&](const Inputs& in) { return function(in[0], in[1]); }, {leaf_f64(a_shape), b});
    const std::string one =
        gradcheck([&](const Inputs& in) { return function(in[0], in[1]); }, {leaf_f64(a_shape), b.detach()});
    if (!both.empty() || !one.empty()) return concat(a_shape, " and ", b_shape, ": ", both, one);
  }
  return "";
}

}  // namespace

TEST_CASE("arithmetic") {
  const Tensor a = vector({1, -2, 3});
  const Tensor b = vector({4, 5, -6});
  CHECK((a + b).to_vector<double>() == Values{5, 3, -3});
  CHECK((a - b).to_vector<double>() == Values{-3, -7, 9});
  CHECK((a * b).to_vector<double>() == Values{4, -10, -18});
  CHECK((a / b).to_vector<double>() == Values{0.25, -0.4, -0.5});
  CHECK(add_scaled(a, b, 0.5).to_vector<double>() == Values{3, 0.5, 0});
  CHECK(addcmul(a, b, b).to_vector<double>() == Values{17, 23, 39});
  CHECK((a + 1.0).to_vector<double>() == Values{2, -1, 4});
  CHECK((1.0 - a).to_vector<double>() == Values{0, 3, -2});
  CHECK((a - 1.0).to_vector<double>() == Values{0, -3, 2});
  CHECK((3.0 * a).to_vector<double>() == Values{3, -6, 9});
  CHECK((a / 3.0).to_vector<double>() == Values{1.0 / 3, -2.0 / 3, 1});
  CHECK((6.0 / a).to_vector<double>() == Values{6, -3, 2});
  CHECK((-a).to_vector<double>() == Values{-1, 2, -3});
}

TEST_CASE("integers add and multiply too") {
  const Tensor a = Tensor::from_vector<std::int64_t>({1, 2, 3});
  CHECK((a + a).to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 4, 6});
  CHECK((a * a).to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 4, 9});
  CHECK(addcmul(a, a, a).to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 6, 12});
}

TEST_CASE("integers take a scalar that is one of them, and refuse others") {
  const double inf = std::numeric_limits<double>::infinity();
  using Ints = std::vector<std::int64_t>;
  const Tensor a = Tensor::from_vector<std::int64_t>({3, 5, -7});
  CHECK((a * 2.0).to_vector<std::int64_t>() == Ints{6, 10, -14});
  CHECK((1.0 - a).to_vector<std::int64_t>() == Ints{-2, -4, 8});
  CHECK((a / 2.0).to_vector<std::int64_t>() == Ints{1, 2, -3});
  const auto refused = [](const char* operation, double value) {
    return concat(operation, ": expected a value that i64 can hold, got ", value);
  };
  CHECK(error_of<DTypeError>([&] { return a * 0.5; }) == refused("mul", 0.5));
  CHECK(error_of<DTypeError>([&] { return a + 0.5; }) == refused("add", 0.5));
  CHECK(error_of<DTypeError>([&] { return inf - a; }) == refused("sub", inf));
  CHECK(error_of<DTypeError>([&] { return a / 0.5; }) == refused("div", 0.5));
  CHECK(error_of<DTypeError>([&] { return 0.5 / a; }) == refused("div", 0.5));
  CHECK(error_of<DTypeError>([&] { return add_scaled(a, a, 1e300); }) == refused("add_scaled", 1e300));
  CHECK(error_of<DTypeError>([&] { return clamp(a, 0.5, 4); }) == refused("clamp", 0.5));
  CHECK(error_of<DTypeError>([&] { return clamp(a, std::nan(""), 4); }) == refused("clamp", std::nan("")));
  CHECK(error_of<DTypeError>([&] { return clamp(a, inf, inf); }) == refused("clamp", inf));
  CHECK(clamp(a, -1, 4).to_vector<std::int64_t>() == Ints{3, 4, -1});
  CHECK(clamp(a, 0, inf).to_vector<std::int64_t>() == Ints{3, 5, 0});
  CHECK(clamp(a, -inf, 4).to_vector<std::int64_t>() == Ints{3, 4, -7});
  CHECK(clamp(a, -1e300, 1e300).to_vector<std::int64_t>() == Ints{3, 5, -7});
  CHECK(clamp(a, -0x1p63, 0x1p63).to_vector<std::int64_t>() == Ints{3, 5, -7});
  CHECK_FALSE(clamp(a, -inf, inf).storage().shares_with(a.storage()));
}

TEST_CASE("functions of one tensor") {
  const Tensor a = vector({0.25, 4});
  CHECK(sqrt(a).to_vector<double>() == Values{0.5, 2});
  CHECK(max_difference(rsqrt(a), vector({2, 0.5})) <= kDoubleSum);
  CHECK(reciprocal(a).to_vector<double>() == Values{4, 0.25});
  CHECK(square(a).to_vector<double>() == Values{0.0625, 16});
  CHECK(abs(vector({-2, 0, 3})).to_vector<double>() == Values{2, 0, 3});
  CHECK(clamp(vector({-2, 0, 3}), -1, 1).to_vector<double>() == Values{-1, 0, 1});
  CHECK(max_difference(exp(a), vector({std::exp(0.25), std::exp(4)})) <= kDoubleSum);
  CHECK(max_difference(log(a), vector({std::log(0.25), std::log(4)})) <= kDoubleSum);
  CHECK(max_difference(sin(a), vector({std::sin(0.25), std::sin(4)})) <= kDoubleSum);
  CHECK(max_difference(cos(a), vector({std::cos(0.25), std::cos(4)})) <= kDoubleSum);
  CHECK(max_difference(pow(a, 1.5), vector({0.125, 8})) <= kDoubleSum);
}

TEST_CASE("comparisons give masks, where picks") {
  const Tensor a = vector({1, 2, 3});
  const Tensor b = vector({2, 2, 2});
  CHECK(greater(a, b).to_vector<double>() == Values{0, 0, 1});
  CHECK(greater_equal(a, b).to_vector<double>() == Values{0, 1, 1});
  CHECK(less(a, b).to_vector<double>() == Values{1, 0, 0});
  CHECK(less_equal(a, b).to_vector<double>() == Values{1, 1, 0});
  CHECK(equal(a, b).to_vector<double>() == Values{0, 1, 0});
  CHECK(where(vector({1, 0, -1}), a, b).to_vector<double>() == Values{1, 2, 3});
  CHECK(maximum(a, b).to_vector<double>() == Values{2, 2, 3});
  CHECK(minimum(a, b).to_vector<double>() == Values{1, 2, 2});
  CHECK_FALSE(greater(leaf_of({1}), leaf_of({2})).requires_grad());
}

TEST_CASE("where: a guard does not round the condition") {
  const Tensor condition = vector({1e-30, 0, std::nan("")});
  const Tensor a = Tensor::ones({3}, {.dtype = DType::f16, .requires_grad = true});
  const AutocastGuard guard(DType::f16);
  const Tensor picked = where(condition, a, Tensor::zeros({3}, {.dtype = DType::f16}));
  CHECK(picked.dtype() == DType::f16);
  CHECK(max_difference(picked, vector({1, 0, 1})) == 0);
  sum(picked).backward();
  CHECK(max_difference(a.grad(), vector({1, 0, 1})) == 0);
}

TEST_CASE("gradients of two operands under broadcasting") {
  CHECK(check_broadcast(add) == "");
  CHECK(check_broadcast(sub) == "");
  CHECK(check_broadcast(mul) == "");
  CHECK(check_broadcast(div) == "");
  CHECK(check_broadcast(maximum) == "");
  CHECK(check_broadcast(minimum) == "");
  CHECK(check_broadcast([](const Tensor& a, const Tensor& b) { return add_scaled(a, b, -0.7); }) == "");
  CHECK(check_broadcast([](const Tensor& a, const Tensor& b) { return where(vector({1, 0, 1}).slice(0, 0, 1), a, b); }) == "");
  CHECK(check_broadcast([](const Tensor& a, const Tensor& b) { return addcmul(a, b, a); }) == "");
  CHECK(check_broadcast([](const Tensor& a, const Tensor& b) { return addcmul(b, a, b); }) == "");
  CHECK(gradcheck([](const Inputs& in) { return addcmul(in[0], in[1], in[2]); },
                  {leaf_f64({2, 1, 3}), leaf_f64({1, 3}, 2), leaf_f64({4, 1}, 3)}) == "");
  CHECK(gradcheck(
            [](const Inputs& in) {
              return where(vector({1, 0, 1}), in[0], in[1]);
            },
            {leaf_f64({2, 3}), leaf_f64({}, 2)}) == "");
}

TEST_CASE("gradients of functions of one tensor") {
  const Values positive = {0.3, 1, 2.5};
  const Values any = {-1.7, -0.2, 0.4, 2};
  CHECK(check(abs, any) == "");
  CHECK(check(square, any) == "");
  CHECK(check(sqrt, positive) == "");
  CHECK(check(rsqrt, positive) == "");
  CHECK(check(reciprocal, any) == "");
  CHECK(check(exp, any) == "");
  CHECK(check(log, positive) == "");
  CHECK(check(sin, any) == "");
  CHECK(check(cos, any) == "");
  CHECK(check([](const Tensor& a) { return -a; }, any) == "");
  CHECK(check([](const Tensor& a) { return a + 2.0; }, any) == "");
  CHECK(check([](const Tensor& a) { return a * -3.0; }, any) == "");
  CHECK(check([](const Tensor& a) { return 2.0 - a; }, any) == "");
  CHECK(check([](const Tensor& a) { return a / 3.0; }, any) == "");
  CHECK(check([](const Tensor& a) { return 3.0 / a; }, any) == "");
  CHECK(check([](const Tensor& a) { return pow(a, 2.5); }, positive) == "");
  CHECK(check([](const Tensor& a) { return pow(a, 3); }, any) == "");
  CHECK(check([](const Tensor& a) { return pow(a, 0); }, any) == "");
  CHECK(check([](const Tensor& a) { return clamp(a, -1, 1); }, any) == "");
}

TEST_CASE("gradients at the corners, as in PyTorch") {
  const auto gradient = [](const Tensor& leaf, const Tensor& out) {
    sum(out).backward();
    return leaf.grad().to_vector<double>();
  };
  const Tensor zero = leaf_of({0});
  CHECK(gradient(zero, abs(zero)) == Values{0});
  const Tensor bounds = leaf_of({-1, 1, 2});
  CHECK(gradient(bounds, clamp(bounds, -1, 1)) == Values{1, 1, 0});
  const Tensor a = leaf_of({1, 2});
  const Tensor b = leaf_of({1, 3});
  CHECK(gradient(a, maximum(a, b)) == Values{0.5, 0});
  CHECK(b.grad().to_vector<double>() == Values{0.5, 1});
  const Tensor c = leaf_of({1, 2});
  CHECK(gradient(c, minimum(c, vector({1, 3}))) == Values{0.5, 1});
  const Tensor origin = leaf_of({0});
  CHECK(gradient(origin, pow(origin, 0)) == Values{0});
  const Tensor d = leaf_of({std::nan(""), 1});
  const Tensor e = leaf_of({1, std::nan("")});
  CHECK(gradient(d, maximum(d, e)) == Values{1, 1});
  CHECK(e.grad().to_vector<double>() == Values{1, 1});
  CHECK(gradient(d, minimum(d, e)) == Values{2, 2});  // added to the earlier gradients
}

TEST_CASE("graphs that share parts") {
  const auto function = [](const Inputs& in) {
    const Tensor shared = sin(in[0]) * in[1];
    return exp(shared * 0.3) + shared * shared / (square(in[0]) + 1.0) - in[1];
  };
  CHECK(gradcheck(function, {leaf_f64({2, 3}), leaf_f64({3}, 2)}) == "");
}

TEST_CASE("16-bit types are computed in f32 and rounded once") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor a = uniform_f64({64}, 0.5, 2, 1).to(dtype);
    const Tensor b = uniform_f64({64}, 0.5, 2, 2).to(dtype);
    const double tolerance = dtype == DType::f16 ? kHalfRounding : kBFloat16Rounding;
    CHECK((a * b).dtype() == dtype);
    CHECK(max_difference(a * b, a.to(DType::f64) * b.to(DType::f64)) <= tolerance);
    CHECK(max_difference(exp(a * 0.5), exp((a * 0.5).to(DType::f64))) <= tolerance);
  }
}

TEST_CASE("16-bit types divide by what f32 makes of a double, as they add and multiply") {
  const Tensor x = Tensor::from_vector<double>({1000}).to(DType::f16);
  CHECK(max_difference(x / 1e5, Tensor::from_vector<double>({0.01}).to(DType::f16)) == 0);
  CHECK(max_difference(1e6 / x, Tensor::from_vector<double>({1000}).to(DType::f16)) == 0);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor whole = Tensor::arange(1, 257, 1, {.dtype = DType::f64});
    CHECK((whole.to(dtype) / 3.3).dtype() == dtype);
    CHECK(max_difference(whole.to(dtype) / 3.3, (whole / 3.3).to(dtype)) == 0);
    CHECK(max_difference(3.3 / whole.to(dtype), (3.3 / whole).to(dtype)) == 0);
    Tensor by = whole.to(dtype), under = whole.to(dtype);
    by.set_requires_grad(true), under.set_requires_grad(true);
    sum(by / 3.3).backward();
    CHECK(max_difference(by.grad(), Tensor::full({256}, 1 / 3.3, {.dtype = dtype})) == 0);
    sum(3.3 / under).backward();
    CHECK(max_difference(under.grad(), (-3.3 / square(whole)).to(dtype)) == 0);
  }
}

TEST_CASE("allclose") {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(allclose(vector({1, inf}), vector({1 + 1e-9, inf})));
  CHECK_FALSE(allclose(vector({1}), vector({1.1})));
  CHECK(allclose(vector({1}), vector({1.1}), 0, 0.2));
  // By default 1e-5 * |b| and 1e-8, as in PyTorch.
  CHECK(allclose(vector({1e3 + 0.009}), vector({1e3})));
  CHECK_FALSE(allclose(vector({1e3 + 0.011}), vector({1e3})));
  CHECK(allclose(vector({0.9e-8}), vector({0})));
  CHECK_FALSE(allclose(vector({1.1e-8}), vector({0})));
  CHECK_FALSE(allclose(vector({nan}), vector({nan})));
  CHECK_FALSE(allclose(vector({inf}), vector({-inf})));
  CHECK_FALSE(allclose(vector({1}), vector({inf})));
  CHECK_FALSE(allclose(vector({inf}), vector({1})));
  CHECK(allclose(random_f64({0}), random_f64({0})));
}

TEST_CASE("allclose of integers") {
  const auto integer = [](std::int64_t value) { return Tensor::from_vector<std::int64_t>({value, 7}); };
  constexpr std::int64_t kLarge = std::int64_t{1} << 53, kMax = std::numeric_limits<std::int64_t>::max();
  CHECK(allclose(integer(5), integer(5)));
  CHECK_FALSE(allclose(integer(5), integer(6)));
  CHECK(allclose(integer(5), integer(6), 0, 1));
  CHECK(allclose(integer(100), integer(99), 0.02));
  CHECK_FALSE(allclose(integer(kLarge + 1), integer(kLarge), 0, 0.5));  // equal in f64
  CHECK(allclose(integer(kLarge + 1), integer(kLarge), 0, 1));
  CHECK_FALSE(allclose(integer(kMax), integer(-kMax), 0, 10));  // their difference wraps around to -2
}

TEST_CASE("errors name the operation and what came") {
  const Tensor a = random_f64({2, 3});
  CHECK(error_of<ShapeError>([&] { return add(a, random_f64({2})); }).find("add: ") == 0);
  CHECK(error_of<DTypeError>([&] {
          return mul(a, Tensor::ones({2, 3}));
        }) == "mul: expected tensors of one dtype, got f64 and f32");
  CHECK(error_of<DTypeError>([&] { return exp(Tensor::ones({1}, {.dtype = DType::i64})); }) ==
        "exp: expected a floating-point tensor, got i64");
}

TEST_CASE("errors name the operation and the undefined argument") {
  const Tensor a = random_f64({2, 3});
  const auto refused = [](const char* operation, const char* argument) {
    return concat(operation, ": ", argument, " is undefined");
  };
  CHECK(error_of<Error>([&] { return a + Tensor(); }) == refused("add", "b"));
  CHECK(error_of<Error>([&] { return Tensor() - a; }) == refused("sub", "a"));
  CHECK(error_of<Error>([&] { return a * Tensor(); }) == refused("mul", "b"));
  CHECK(error_of<Error>([&] { return a / Tensor(); }) == refused("div", "b"));
  CHECK(error_of<Error>([&] { return add_scaled(a, {}, 2); }) == refused("add_scaled", "b"));
  CHECK(error_of<Error>([&] { return addcmul(a, {}, a); }) == refused("addcmul", "b"));
  CHECK(error_of<Error>([&] { return addcmul(a, a, {}); }) == refused("addcmul", "c"));
  CHECK(error_of<Error>([&] { return maximum(a, {}); }) == refused("maximum", "b"));
  CHECK(error_of<Error>([&] { return minimum({}, a); }) == refused("minimum", "a"));
  CHECK(error_of<Error>([&] { return less(a, {}); }) == refused("less", "b"));
  CHECK(error_of<Error>([&] { return where({}, a, a); }) == refused("where", "condition"));
  CHECK(error_of<Error>([&] { return where(a, a, {}); }) == refused("where", "b"));
  CHECK(error_of<Error>([&] { return exp(Tensor()); }) == refused("exp", "the tensor"));
  CHECK(error_of<Error>([&] { return Tensor() * 2.0; }) == refused("mul", "the tensor"));
  CHECK(error_of<Error>([&] { return -Tensor(); }) == refused("neg", "the tensor"));
}
