#include "cuda/elementwise/elementwise.hpp"

#include <doctest/doctest.h>

#include <functional>

#include "cuda/elementwise/elementwise_functions.cuh"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr int kOps = static_cast<int>(MapOp::smooth_l1_grad) + 1;
constexpr MapScalars kScalars{0.7, 1.3};

double bound_of(DType dtype) {
  if (dtype == DType::f64) return kDoubleRounding;
  if (dtype == DType::f32) return 2 * kFloatFunction;
  return dtype == DType::f16 ? kHalfRounding : dtype == DType::bf16 ? kBFloat16Rounding : 0;
}

// The inputs of an operation: the first of any sign, the others away from 0, since small divisors would magnify rounding
// errors.
std::vector<Tensor> inputs_for(MapOp op, const Shape& shape, DType dtype) {
  std::vector<Tensor> inputs;
  for (int k = 0; k < cuda::inputs_of(op); ++k)
    inputs.push_back(uniform_f64(shape, k == 0 ? -4 : 0.5, k == 0 ? 4 : 2, static_cast<std::uint64_t>(k + 1)).to(dtype));
  return inputs;
}

// Compares both results; the device's bits outside of the view must be unchanged.
double map_differs(MapOp op, const Tensor& out, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> device_inputs;
  for (const Tensor& input : inputs) device_inputs.push_back(mirrored(input));
  const Tensor device = mirrored(out);
  host().map(op, out, inputs, kScalars);
  gpu().map(op, device, device_inputs, kScalars);
  const double worst = worst_difference(out, device);
  const Tensor result = device.cpu();
  gpu().copy(device, mirrored(out));
  return different(out, device) == 0 ? worst : std::numeric_limits<double>::infinity();
}

bool takes_integers(MapOp op) {
  const Tensor one = Tensor::zeros({1}, {.dtype = DType::i64});
  const std::vector<Tensor> inputs(static_cast<std::size_t>(cuda::inputs_of(op)), one);
  return error_of<DTypeError>([&] {
           host().map(op, one, inputs, kScalars);
           return 0;
         }) == "no error";
}

}  // namespace

TEST_CASE("every function of every dtype agrees with the host's") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (int i = 0; i < kOps; ++i)
    for (const DType dtype : kFloatTypes)
      for (const std::int64_t size : {1, 3, 4, 7, 8, 255, 1023, 1024, 1025, 5000})
        for (const std::int64_t misalignment : {0, 1}) {
          const auto op = static_cast<MapOp>(i);
          CAPTURE(i);
          CAPTURE(dtype);
          CAPTURE(size);
          std::vector<Tensor> inputs = inputs_for(op, {size + misalignment}, dtype);
          for (Tensor& input : inputs) input = input.slice(0, misalignment, size + misalignment);
          CHECK(map_differs(op, poisoned({size}, dtype, misalignment), inputs) <= bound_of(dtype));
        }
}

TEST_CASE("every layout of operands, with rows that begin anywhere") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const MapOp op : {MapOp::mul, MapOp::snake, MapOp::snake_grad_x, MapOp::silu})
    for (const DType dtype : kFloatTypes)
      for (const std::int64_t length : {1, 2, 5, 37, 128, 1001}) {
        CAPTURE(dtype);
        CAPTURE(length);
        const Shape shape{3, 4, length};
        std::vector<Tensor> inputs = inputs_for(op, shape, dtype);
        if (inputs.size() > 1) inputs[1] = uniform_f64({4, 1}, 0.5, 2, 2).to(dtype).expand(shape);
        if (inputs.size() > 2) inputs[2] = uniform_f64({}, 0.5, 2, 3).to(dtype).expand(shape);
        CHECK(map_differs(op, poisoned(shape, dtype), inputs) <= bound_of(dtype));
        CHECK(map_differs(op, poisoned({3, 4, length + 3}, dtype).slice(2, 2, length + 2), inputs) <= bound_of(dtype));
        inputs[0] = uniform_f64({length, 4, 3}, -4, 4, 7).to(dtype).transpose(0, 2);
        CHECK(map_differs(op, poisoned(shape, dtype), inputs) <= bound_of(dtype));
        inputs[0] = uniform_f64({3, 4, 2 * length}, -4, 4, 8).to(dtype).slice(2, 0, 2 * length, 2);
        CHECK(map_differs(op, poisoned({length, 4, 3}, dtype).transpose(0, 2), inputs) <= bound_of(dtype));
        // One row for all, and rows within longer ones, from aligned elements on and from others.
        if (inputs.size() > 1) inputs[1] = uniform_f64({length}, 0.5, 2, 9).to(dtype).expand(shape);
        for (const std::int64_t first : {8, 3}) {
          inputs[0] = uniform_f64({3, 4, length + 8}, -4, 4, 10).to(dtype).slice(2, first, first + length);
          CHECK(map_differs(op, poisoned(shape, dtype), inputs) <= bound_of(dtype));
          CHECK(map_differs(op, poisoned({3, 4, length + 8}, dtype).slice(2, first, first + length), inputs) <=
                bound_of(dtype));
        }
      }
}

TEST_CASE("a result has the same bits in every layout") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (int i = 0; i < kOps; ++i)
    for (const DType dtype : kFloatTypes)
      for (const std::int64_t length : {7, 4096, 5003}) {
        const auto op = static_cast<MapOp>(i);
        CAPTURE(i);
        CAPTURE(dtype);
        CAPTURE(length);
        std::vector<Tensor> inputs, spread_inputs;
        for (const Tensor& input : inputs_for(op, {length}, dtype)) {
          inputs.push_back(mirrored(input));
          spread_inputs.push_back(mirrored(poisoned({length, 2}, dtype)).select(1, 0));
          spread_inputs.back().copy_(inputs.back());
        }
        const Tensor expected = poisoned({length}, dtype), y = mirrored(expected), from_spread = mirrored(expected);
        gpu().map(op, y, inputs, kScalars);
        gpu().map(op, from_spread, spread_inputs, kScalars);
        gpu().copy_to_host(expected.storage().data(), from_spread.storage().data(), expected.storage().bytes());
        CHECK(different(expected, y) == 0);
      }
}

TEST_CASE("in place") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor x = random_f64({1000}).to(DType::f32), device = mirrored(x);
  const std::vector<Tensor> inputs{x, x}, device_inputs{device, device};
  host().map(MapOp::mul, x, inputs, {});
  gpu().map(MapOp::mul, device, device_inputs, {});
  CHECK(different(x, device) == 0);
}

TEST_CASE("zeros of both signs, infinities and NaN come out as on the host") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> special = {0.0, -0.0, 1.0, -1.0, infinity, -infinity, NAN};
  std::vector<double> a, b;
  for (const double x : special)
    for (const double y : special) a.push_back(x), b.push_back(y);
  const auto count = static_cast<std::int64_t>(a.size());
  for (int i = 0; i < kOps; ++i)
    for (const DType dtype : kFloatTypes) {
      const auto op = static_cast<MapOp>(i);
      std::vector<Tensor> inputs;
      for (int k = 0; k < cuda::inputs_of(op); ++k)
        inputs.push_back(Tensor::from_vector(k % 2 == 0 ? a : b, {count}, Device::cpu()).to(dtype));
      CAPTURE(i);
      CAPTURE(dtype);
      CHECK(map_differs(op, poisoned({count}, dtype), inputs) <= bound_of(dtype));
    }
}

TEST_CASE("integers, bit for bit; what they have no function for is refused") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  const Tensor a =
      Tensor::from_vector(std::vector<std::int64_t>{0, 1, -1, 7, -7, kLeast, kLeast, -(kLeast + 1), 5}, {9}, Device::cpu());
  const Tensor b = Tensor::from_vector(std::vector<std::int64_t>{0, 3, -1, 2, 2, -1, 0, 1, -5}, {9}, Device::cpu());
  for (int i = 0; i < kOps; ++i) {
    const auto op = static_cast<MapOp>(i);
    std::vector<Tensor> inputs{a, b, b, b};
    inputs.resize(static_cast<std::size_t>(cuda::inputs_of(op)));
    CAPTURE(i);
    if (takes_integers(op)) {
      CHECK(map_differs(op, poisoned({9}, DType::i64), inputs) == 0);
    } else {
      const Tensor one = Tensor::zeros({1}, {.dtype = DType::i64, .device = Device::cuda()});
      const std::vector<Tensor> ones(inputs.size(), one);
      CHECK(error_of<DTypeError>([&] {
              gpu().map(op, one, ones, kScalars);
              return 0;
            }) == "map: expected a floating-point dtype for this function, got i64");
    }
  }
}

TEST_CASE("powers that have a function of their own are exact") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor x = mirrored(uniform_f64({1000}, 0.1, 9, 1).to(DType::f32));
  const std::array<Tensor, 1> inputs{x};
  const auto result = [&](MapOp op, double p) {
    const Tensor out = Tensor::empty_like(x);
    gpu().map(op, out, inputs, {p, 0});
    return out.to_vector<float>();
  };
  std::vector<float> squares = x.to_vector<float>();
  for (float& value : squares) value *= value;
  CHECK(result(MapOp::square, 0) == squares);
  CHECK(result(MapOp::pow_scalar, 2) == squares);
  CHECK(result(MapOp::pow_scalar, 0.5) == result(MapOp::sqrt, 0));
  CHECK(result(MapOp::pow_scalar, -0.5) == result(MapOp::rsqrt, 0));
  CHECK(result(MapOp::pow_scalar, -1) == result(MapOp::reciprocal, 0));
}
