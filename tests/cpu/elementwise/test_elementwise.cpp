#include "cpu/elementwise/elementwise.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "cpu/isa.hpp"
#include "cpu/threads.hpp"
#include "support/conv.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

struct In {
  double a, b, c, d, p, q;
};

constexpr int kOps = static_cast<int>(MapOp::smooth_l1_grad) + 1;
constexpr MapScalars kScalars{0.7, 1.3};
const double kPi = std::acos(-1.0);

double normal_below(double x) { return 0.5 * std::erfc(-x * std::sqrt(0.5)); }
double logistic(double x) { return 1 / (1 + std::exp(-x)); }
double gelu_tanh_inner(double x) { return std::sqrt(2 / kPi) * (x + 0.044715 * x * x * x); }
double gelu_tanh_slope(double x) {
  const double t = std::tanh(gelu_tanh_inner(x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / kPi) * (1 + 3 * 0.044715 * x * x);
}
// std::max would turn a NaN into 0.
double softplus(double x) { return (x < 0 ? 0 : x) + std::log1p(std::exp(-std::abs(x))); }
double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

// The formulas of tensor/map_op.hpp by the C library.
double arithmetic(MapOp op, const In& in) {
  const auto [a, b, c, d, p, q] = in;
  switch (op) {
    case MapOp::add:
      return a + b;
    case MapOp::sub:
      return a - b;
    case MapOp::mul:
      return a * b;
    case MapOp::div:
      return a / b;
    case MapOp::add_scaled:
      return a + p * b;
    case MapOp::affine:
      return p * a + q;
    case MapOp::scale_around:
      return (a - b) * c + d;
    case MapOp::addcmul:
      return a + b * c;
    case MapOp::maximum:
      return std::max(a, b);
    case MapOp::minimum:
      return std::min(a, b);
    case MapOp::pow_scalar:
      return std::pow(a, p);
    case MapOp::div_scalar:
      return a / p;
    case MapOp::neg:
      return -a;
    case MapOp::abs:
      return std::abs(a);
    case MapOp::sign:
      return sign(a);
    case MapOp::square:
      return a * a;
    case MapOp::sqrt:
      return std::sqrt(a);
    case MapOp::rsqrt:
      return 1 / std::sqrt(a);
    case MapOp::reciprocal:
      return 1 / a;
    case MapOp::exp:
      return std::exp(a);
    case MapOp::log:
      return std::log(a);
    case MapOp::sin:
      return std::sin(a);
    case MapOp::cos:
      return std::cos(a);
    case MapOp::clamp:
      return std::min(std::max(a, p), q);
    case MapOp::greater:
      return a > b;
    case MapOp::greater_equal:
      return a >= b;
    case MapOp::less:
      return a < b;
    case MapOp::less_equal:
      return a <= b;
    case MapOp::equal:
      return a == b;
    case MapOp::where:
      return a != 0 ? b : c;
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

double activation(MapOp op, const In& in) {
  const auto [a, b, c, g, p, q] = in;
  switch (op) {
    case MapOp::relu:
      return std::max(a, 0.0);
    case MapOp::leaky_relu:
      return a > 0 ? a : p * a;
    case MapOp::elu:
      return a > 0 ? a : p * std::expm1(a);
    case MapOp::gelu:
      return a * normal_below(a);
    case MapOp::gelu_tanh:
      return 0.5 * a * (1 + std::tanh(gelu_tanh_inner(a)));
    case MapOp::silu:
      return a * logistic(a);
    case MapOp::tanh:
      return std::tanh(a);
    case MapOp::sigmoid:
      return logistic(a);
    case MapOp::relu_grad:
      return a > 0 ? b : 0;
    case MapOp::leaky_relu_grad:
      return a > 0 ? b : p * b;
    case MapOp::elu_grad:
      return a > 0 ? b : b * p * std::exp(a);
    case MapOp::gelu_grad:
      return b * (normal_below(a) + a * std::exp(-a * a / 2) / std::sqrt(2 * kPi));
    case MapOp::gelu_tanh_grad:
      return b * gelu_tanh_slope(a);
    case MapOp::silu_grad:
      return b * (logistic(a) + a * logistic(a) * (1 - logistic(a)));
    case MapOp::tanh_grad:
      return b * (1 - a * a);
    case MapOp::sigmoid_grad:
      return b * a * (1 - a);
    case MapOp::softplus:
      return softplus(a);
    case MapOp::softplus_grad:
      return b * logistic(a);
    case MapOp::snake:
      return a + std::pow(std::sin(b * a), 2) / c;
    case MapOp::snake_grad_x:
      return g * (1 + b * std::sin(2 * b * a) / c);
    case MapOp::snake_grad_alpha:
      return g * a * std::sin(2 * b * a) / c;
    case MapOp::snake_grad_beta:
      return -g * std::pow(std::sin(b * a) / c, 2);
    case MapOp::smooth_l1:
      return std::abs(a - b) < p ? (a - b) * (a - b) / (2 * p) : std::abs(a - b) - p / 2;
    case MapOp::smooth_l1_grad:
      return q * c * (std::abs(a - b) < p ? (a - b) / p : sign(a - b));
    case MapOp::squared_difference:
      return (a - b) * (a - b);
    case MapOp::squared_difference_grad:
      return q * c * (a - b);
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

double expected(MapOp op, const In& in) { return op <= MapOp::where ? arithmetic(op, in) : activation(op, in); }

int inputs_of(MapOp op) {
  if (op == MapOp::addcmul || op == MapOp::where || op == MapOp::snake) return 3;
  if (op == MapOp::squared_difference_grad || op == MapOp::smooth_l1_grad) return 3;
  switch (op) {
    case MapOp::scale_around:
    case MapOp::snake_grad_x:
    case MapOp::snake_grad_alpha:
    case MapOp::snake_grad_beta:
      return 4;
    case MapOp::affine:
    case MapOp::pow_scalar:
    case MapOp::div_scalar:
    case MapOp::softplus:
      return 1;
    default:
      break;
  }
  if (op <= MapOp::minimum || op >= MapOp::relu_grad) return 2;
  return op >= MapOp::greater && op <= MapOp::equal ? 2 : 1;
}

// Functions defined for positive arguments get positive ones. The third input is a divisor, so it keeps away from 0.
std::vector<Tensor> make_inputs(MapOp op, const Shape& shape, DType dtype) {
  const bool positive = op == MapOp::pow_scalar || op == MapOp::sqrt || op == MapOp::rsqrt || op == MapOp::log;
  std::vector<Tensor> inputs;
  for (int k = 0; k < inputs_of(op); ++k) {
    const double low = positive || k == 2 ? 0.5 : -3;
    inputs.push_back(uniform_f64(shape, low, 3, static_cast<std::uint64_t>(k + 1)).to(dtype));
  }
  // Some elements are equal and some zero, for the comparisons and for `where`.
  if (inputs.size() == 2) inputs[1].slice(-1, 0, shape.back(), 3).copy_(inputs[0].slice(-1, 0, shape.back(), 3));
  if (op == MapOp::where) inputs[0].slice(-1, 0, shape.back(), 2).zero_();
  return inputs;
}

Tensor run(MapOp op, const std::vector<Tensor>& inputs, MapScalars scalars = kScalars) {
  Tensor out = Tensor::full(inputs[0].shape(), 7, {.dtype = inputs[0].dtype()});
  cpu::map(op, out, inputs, scalars);
  return out;
}

// The largest error over the allowed error: `relative` times max(1, |value|), plus one rounding to the dtype.
double worst_error(MapOp op, DType dtype, double relative) {
  const std::vector<Tensor> inputs = make_inputs(op, {3, 41}, dtype);
  const std::vector<double> got = run(op, inputs).to(DType::f64).to_vector<double>();
  std::vector<std::vector<double>> values(4, std::vector<double>(got.size(), 0));
  for (std::size_t k = 0; k < inputs.size(); ++k) values[k] = inputs[k].to(DType::f64).to_vector<double>();
  const double unit = dtype == DType::f16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : 0;
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double want = expected(op, {values[0][i], values[1][i], values[2][i], values[3][i], kScalars.p, kScalars.q});
    const double allowed = relative * std::max(1.0, std::abs(want)) + unit * std::abs(want);
    const double error = std::abs(got[i] - want) / allowed;
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  return worst;
}

bool same(const Tensor& a, const Tensor& b) {
  const Tensor left = a.contiguous(), right = b.contiguous();
  return left.shape() == right.shape() &&
         std::memcmp(left.raw(), right.raw(), static_cast<std::size_t>(left.numel()) * size_of(left.dtype())) == 0;
}

// Views of new values of shape (4, 6, 70). Their layouts cover every path of the loop.
std::vector<Tensor> layouts(DType dtype, std::uint64_t seed) {
  const auto values = [&](const Shape& shape) { return uniform_f64(shape, 0.5, 3, seed).to(dtype); };
  return {values({4, 6, 70}),
          values({1, 6, 1}).expand({4, 6, 70}),
          values({70}).expand({4, 6, 70}),
          values({}).expand({4, 6, 70}),
          values({70, 6, 4}).transpose(0, 2),
          values({4, 6, 140}).slice(2, 1, 140, 2),
          values({4, 1, 70}).expand({4, 6, 70}),
          values({6, 4, 71}).transpose(0, 1).narrow(2, 1, 70)};
}

}  // namespace

TEST_CASE("every function agrees with the C library in every dtype") {
  for_each_isa([] {
    for (int i = 0; i < kOps; ++i) {
      const auto op = static_cast<MapOp>(i);
      CAPTURE(cpu_isa());
      CAPTURE(i);
      CHECK(worst_error(op, DType::f64, kDoubleRounding) <= 1);
      CHECK(worst_error(op, DType::f32, kFloatFunction) <= 1);
      CHECK(worst_error(op, DType::f16, kFloatFunction) <= 1);
      CHECK(worst_error(op, DType::bf16, kFloatFunction) <= 1);
    }
  });
}

TEST_CASE("the layout of the operands does not change a bit") {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i64})
    for (const Tensor& a : layouts(dtype, 1))
      for (const Tensor& b : layouts(dtype, 2)) {
        CAPTURE(a.strides());
        CAPTURE(b.strides());
        const Tensor plain = run(MapOp::sub, {a.contiguous(), b.contiguous()});
        CHECK(same(run(MapOp::sub, {a, b}), plain));
        Tensor wide = Tensor::zeros({70, 6, 8}, {.dtype = dtype});
        const Tensor out = wide.slice(2, 1, 8, 2).transpose(0, 2);  // (4, 6, 70), no stride of 1
        cpu::map(MapOp::sub, out, std::vector<Tensor>{a, b}, {});
        CHECK(same(out, plain));
        CHECK(wide.slice(2, 0, 8, 2).to(DType::f64).to_vector<double>() == std::vector<double>(70 * 6 * 4, 0));
      }
}

TEST_CASE("four inputs of different layouts") {
  const std::vector<Tensor> mixed = {layouts(DType::f32, 1)[4], layouts(DType::f32, 2)[1], layouts(DType::f32, 3)[3],
                                     layouts(DType::f32, 4)[5]};
  std::vector<Tensor> plain;
  for (const Tensor& t : mixed) plain.push_back(t.contiguous());
  CHECK(same(run(MapOp::snake_grad_x, mixed), run(MapOp::snake_grad_x, plain)));
}

TEST_CASE("neither the thread count nor the place changes a bit") {
  const Tensor x = random_f64({3, 2, 50001}).to(DType::f32), alpha = random_f64({1, 2, 1}, 2).to(DType::f32).expand(x.shape());
  const int before = num_threads();
  set_num_threads(1);
  const Tensor one = run(MapOp::snake, {x, alpha, alpha});
  for (const int threads : {2, 3}) {
    set_num_threads(threads);
    CHECK(same(run(MapOp::snake, {x, alpha, alpha}), one));
  }
  set_num_threads(before);
  const Tensor shifted = x.narrow(2, 5, 1003);
  CHECK(same(run(MapOp::snake, {shifted, alpha.narrow(2, 5, 1003), alpha.narrow(2, 5, 1003)}), one.narrow(2, 5, 1003)));
}

namespace {

// Distance from `want` in units in the last place of the nearest float.
double ulps(float got, double want) {
  const auto nearest = static_cast<float>(want);
  if (std::isnan(nearest)) return std::isnan(got) ? 0 : std::numeric_limits<double>::infinity();
  if (std::isinf(nearest) || std::isinf(got)) return got == nearest ? 0 : std::numeric_limits<double>::infinity();
  const int exponent = nearest == 0 ? -149 : std::max(-149, std::ilogb(nearest) - 23);
  return std::abs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent);
}

// The largest distance over floats of every size, sign and kind: bit patterns `step` apart, and the special values.
double worst_ulps(MapOp op, double (*function)(double), std::uint32_t step) {
  std::vector<float> x = {0.0F,
                          -0.0F,
                          1.0F,
                          -1.0F,
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::max(),
                          std::numeric_limits<float>::denorm_min(),
                          65536.0F,
                          65537.0F,
                          4.2e8F,
                          4.3e8F,
                          1e22F};
  for (std::uint64_t bits = 1; bits < (std::uint64_t{1} << 32U); bits += step)
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  const std::vector<float> y = run(op, {Tensor::from_vector(x)}, {1, 0}).to_vector<float>();
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) worst = worse(worst, ulps(y[i], function(static_cast<double>(x[i]))));
  return worst;
}

}  // namespace

TEST_CASE("f32 functions are within kFunctionUlps over all floats") {
  for_each_isa([] {
    CAPTURE(cpu_isa());
    constexpr std::uint32_t kStep = 32771;
    CHECK(worst_ulps(MapOp::exp, std::exp, kStep) <= kFunctionUlps);
    CHECK(worst_ulps(MapOp::log, std::log, kStep) <= kFunctionUlps);
    CHECK(worst_ulps(MapOp::sin, std::sin, kStep) <= kFunctionUlps);
    CHECK(worst_ulps(MapOp::cos, std::cos, kStep) <= kFunctionUlps);
    CHECK(worst_ulps(MapOp::tanh, std::tanh, kStep) <= kFunctionUlps);
    CHECK(worst_ulps(MapOp::sigmoid, logistic, kStep) <= kFunctionUlps);
    CHECK(worst_ulps(MapOp::sqrt, std::sqrt, kStep) <= kFunctionUlps);
    CHECK(worst_ulps(MapOp::softplus, softplus, kStep) <= kFunctionUlps);
    CHECK(worst_ulps(
              MapOp::elu, [](double x) { return x > 0 ? x : std::expm1(x); }, kStep) <= kFunctionUlps);
  });
  CHECK(std::signbit(run(MapOp::sin, {Tensor::from_vector<float>({-0.0F})}).item<float>()));
}

TEST_CASE("sin and cos keep their digits next to their zeros") {
  std::vector<float> x;
  for (double k = 1; k < 1e6; k += k < 50000 ? 1 : 997) x.push_back(static_cast<float>(k * kPi / 2));
  for_each_isa([&] {
    for (const auto& [op, function] : {std::pair<MapOp, double (*)(double)>{MapOp::sin, std::sin}, {MapOp::cos, std::cos}}) {
      const std::vector<float> y = run(op, {Tensor::from_vector(x)}).to_vector<float>();
      double worst = 0;
      for (std::size_t i = 0; i < x.size(); ++i) worst = worse(worst, ulps(y[i], function(static_cast<double>(x[i]))));
      CHECK(worst <= kFunctionUlps);
    }
  });
}

TEST_CASE("a large argument changes only its own element") {
  const std::vector<float> x = uniform_f64({20000}, -60000, 60000).to(DType::f32).to_vector<float>();
  for (const MapOp op : {MapOp::sin, MapOp::cos})
    for (const float large : {1e5F, 1e30F}) {
      std::vector<float> disturbed = x;
      for (std::size_t i = 0; i < x.size(); i += 4) disturbed[i] = large;  // one in each vector
      const std::vector<float> y = run(op, {Tensor::from_vector(x)}).to_vector<float>();
      std::vector<float> z = run(op, {Tensor::from_vector(disturbed)}).to_vector<float>();
      for (std::size_t i = 0; i < x.size(); i += 4) z[i] = y[i];
      CHECK(y == z);
    }
}

TEST_CASE("NaN goes through maximum, minimum, clamp and relu") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor a = Tensor::from_vector<float>({nan, 1, 2}), b = Tensor::from_vector<float>({3, nan, 5});
  for (const MapOp op : {MapOp::maximum, MapOp::minimum}) {
    const std::vector<float> y = run(op, {a, b}).to_vector<float>();
    CHECK(std::isnan(y[0]));
    CHECK(std::isnan(y[1]));
    CHECK(y[2] == (op == MapOp::maximum ? 5 : 2));
  }
  for (const MapOp op : {MapOp::clamp, MapOp::relu, MapOp::leaky_relu}) CHECK(std::isnan(run(op, {a}).to_vector<float>()[0]));
}

TEST_CASE("derivatives where the argument, or the result it is kept as, is NaN: PyTorch's") {
  const MapScalars slope{0.5, 0};
  for_each_isa([&] {
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
      for (const std::int64_t size : {1, 16, 21}) {
        const Tensor nan = Tensor::full({size}, std::numeric_limits<double>::quiet_NaN(), {.dtype = dtype});
        const Tensor g = Tensor::full({size}, 3, {.dtype = dtype});
        const auto all = [&](MapOp op, const auto& condition) {
          const std::vector<double> got = run(op, {nan, g}, slope).to(DType::f64).to_vector<double>();
          return std::all_of(got.begin(), got.end(), condition);
        };
        CAPTURE(dtype);
        CAPTURE(size);
        CHECK(all(MapOp::relu_grad, [](double value) { return value == 3; }));
        CHECK(all(MapOp::leaky_relu_grad, [](double value) { return value == 1.5; }));
        for (const MapOp op : {MapOp::elu_grad, MapOp::gelu_grad, MapOp::gelu_tanh_grad, MapOp::silu_grad, MapOp::tanh_grad,
                               MapOp::sigmoid_grad, MapOp::softplus_grad})
          CHECK(all(op, [](double value) { return std::isnan(value); }));
      }
  });
}

TEST_CASE("powers with an operation of their own") {
  const Tensor x = Tensor::from_vector<double>({0.25, 4, 9});
  const std::vector<std::pair<double, std::vector<double>>> cases = {
      {2, {0.0625, 16, 81}}, {0.5, {0.5, 2, 3}}, {-0.5, {2, 0.5, 1.0 / 3}}, {-1, {4, 0.25, 1.0 / 9}}, {1, {0.25, 4, 9}}};
  for (const auto& [p, y] : cases) CHECK(run(MapOp::pow_scalar, {x}, {p, 0}).to_vector<double>() == y);
}

TEST_CASE("integers: arithmetic and comparisons, nothing else") {
  using Ints = std::vector<std::int64_t>;
  const std::int64_t smallest = std::numeric_limits<std::int64_t>::min();
  const Tensor a = Tensor::from_vector<std::int64_t>({7, -7, 0, smallest}),
               b = Tensor::from_vector<std::int64_t>({2, 2, 0, -1});
  CHECK(run(MapOp::add, {a, b}).to_vector<std::int64_t>() == Ints{9, -5, 0, std::numeric_limits<std::int64_t>::max()});
  CHECK(run(MapOp::mul, {a, b}).to_vector<std::int64_t>() == Ints{14, -14, 0, smallest});
  CHECK(run(MapOp::div, {a, b}).to_vector<std::int64_t>() == Ints{3, -3, 0, smallest});
  CHECK(run(MapOp::maximum, {a, b}).to_vector<std::int64_t>() == Ints{7, 2, 0, -1});
  CHECK(run(MapOp::affine, {a}, {3, 1}).to_vector<std::int64_t>() == Ints{22, -20, 1, smallest + 1});
  CHECK(run(MapOp::clamp, {a}, {-1, 5}).to_vector<std::int64_t>() == Ints{5, -1, 0, -1});
  CHECK(run(MapOp::greater, {a, b}).to_vector<std::int64_t>() == Ints{1, 0, 0, 0});
  CHECK(run(MapOp::less_equal, {a, b}).to_vector<std::int64_t>() == Ints{0, 1, 1, 1});
  CHECK(run(MapOp::equal, {a, a}).to_vector<std::int64_t>() == Ints{1, 1, 1, 1});
  CHECK(run(MapOp::where, {a, b, a}).to_vector<std::int64_t>() == Ints{2, 2, 0, -1});
  CHECK(run(MapOp::abs, {b}).to_vector<std::int64_t>() == Ints{2, 2, 0, 1});
  CHECK(error_of<DTypeError>([&] { return run(MapOp::exp, {a}); }) ==
        "map: expected a floating-point dtype for this function, got i64");
}

TEST_CASE("empty and single-element tensors") {
  CHECK(run(MapOp::exp, {Tensor::zeros({3, 0, 2})}).numel() == 0);
  CHECK(run(MapOp::add, {Tensor::full({}, 2), Tensor::full({}, 3)}).item() == 5);
}
