#include "cpu/reduce/reduce.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/elementwise/elementwise.hpp"
#include "cpu/threads.hpp"
#include "support/conv.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::sum_of_squares, ReduceOp::sum_of_abs, ReduceOp::max, ReduceOp::min};

Shape reduced_shape(const Shape& shape, unsigned dims) {
  Shape out = shape;
  for (int d = 0; d < shape.rank(); ++d)
    if ((dims >> static_cast<unsigned>(d) & 1U) != 0) out[d] = 1;
  return out;
}

Tensor run(ReduceOp op, const Tensor& in, unsigned dims) {
  Tensor out = Tensor::full(reduced_shape(in.shape(), dims), 7, {.dtype = in.dtype()});
  cpu::reduce(op, out, in);
  return out;
}

long double step(ReduceOp op, long double sum, long double x) {
  switch (op) {
    case ReduceOp::sum:
      return sum + x;
    case ReduceOp::sum_of_squares:
      return sum + x * x;
    case ReduceOp::sum_of_abs:
      return sum + std::abs(x);
    case ReduceOp::max:
      return std::max(sum, x);
    case ReduceOp::min:
      break;
  }
  return std::min(sum, x);
}

// One element at a time in long double.
std::vector<double> plain(ReduceOp op, const Tensor& in, unsigned dims) {
  const Shape shape = in.shape(), out = reduced_shape(shape, dims), strides = contiguous_strides(out);
  const long double infinity = std::numeric_limits<long double>::infinity();
  const long double start = op == ReduceOp::max ? -infinity : op == ReduceOp::min ? infinity : 0;
  std::vector<long double> sums(static_cast<std::size_t>(out.numel()), start);
  const std::vector<double> values = in.to(DType::f64).to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::int64_t left = static_cast<std::int64_t>(i), place = 0;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      if (out[d] != 1) place += left % shape[d] * strides[d];
      left /= shape[d];
    }
    sums[static_cast<std::size_t>(place)] = step(op, sums[static_cast<std::size_t>(place)], values[i]);
  }
  return {sums.begin(), sums.end()};
}

// The largest difference from plain() over the sum of magnitudes, which bounds the rounding error; at least 2^-14, below which
// f16 is subnormal.
double worst_error(ReduceOp op, const Tensor& in, unsigned dims) {
  const std::vector<double> got = run(op, in, dims).to(DType::f64).to_vector<double>();
  const std::vector<double> want = plain(op, in, dims);
  const std::vector<double> scale = op == ReduceOp::sum ? plain(ReduceOp::sum_of_abs, in, dims) : want;
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - want[i]) / std::max(0x1p-14, std::abs(scale[i]));
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  return worst;
}

bool same(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.numel()) * size_of(a.dtype())) == 0;
}

// Half a unit in the last place, plus the rounding of the f64 sum.
double tolerance_of(DType dtype) {
  const double rounding = dtype == DType::f16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f32 ? 0x1p-24 : 0;
  return rounding + kDoubleRounding;
}

std::vector<Tensor> layouts(DType dtype) {
  const auto values = [&](const Shape& shape) { return random_f64(shape).to(dtype); };
  return {values({5, 4, 67}),
          values({67, 4, 5}).transpose(0, 2),
          values({5, 8, 134}).slice(1, 0, 8, 2).slice(2, 1, 134, 2),
          values({5, 1, 67}).expand({5, 4, 67}),
          values({4, 5, 67}).transpose(0, 1),
          values({70, 3, 2})};
}

}  // namespace

TEST_CASE("every reduction over every set of dimensions, layout and dtype") {
  for_each_isa([] {
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
      for (const Tensor& in : layouts(dtype))
        for (const ReduceOp op : kOps)
          for (unsigned dims = 0; dims < 8; ++dims) {
            CAPTURE(dtype);
            CAPTURE(in.strides());
            CAPTURE(static_cast<int>(op));
            CAPTURE(dims);
            CHECK(worst_error(op, in, dims) <= tolerance_of(dtype));
          }
  });
}

TEST_CASE("integers") {
  const Tensor in = Tensor::from_vector<std::int64_t>({1, -2, 3, 4, 5, -6}, {2, 3});
  using Ints = std::vector<std::int64_t>;
  CHECK(run(ReduceOp::sum, in, 1).to_vector<std::int64_t>() == Ints{5, 3, -3});
  CHECK(run(ReduceOp::sum, in, 2).to_vector<std::int64_t>() == Ints{2, 3});
  CHECK(run(ReduceOp::sum_of_squares, in, 3).to_vector<std::int64_t>() == Ints{91});
  CHECK(run(ReduceOp::sum_of_abs, in.transpose(0, 1), 2).to_vector<std::int64_t>() == Ints{5, 7, 9});
  CHECK(run(ReduceOp::max, in, 2).to_vector<std::int64_t>() == Ints{3, 5});
  CHECK(run(ReduceOp::min, in, 2).to_vector<std::int64_t>() == Ints{-2, -6});
}

TEST_CASE("long sums keep their digits") {
  const Tensor x = random_f64({1 << 18});
  CHECK(worst_error(ReduceOp::sum, x, 1) <= kLongDoubleSum);
  CHECK(worst_error(ReduceOp::sum_of_squares, x, 1) <= kLongDoubleSum);
  const Tensor tall = random_f64({1 << 15, 8});
  CHECK(worst_error(ReduceOp::sum, tall, 1) <= kLongDoubleSum);
  const Tensor short_rows = random_f64({3000, 2, 50});
  for (unsigned dims = 1; dims < 8U; ++dims) CHECK(worst_error(ReduceOp::sum, short_rows, dims) <= kLongDoubleSum);
  const Tensor tenths = Tensor::full({1 << 20}, 0.1);  // a running f32 sum would be off by 1e-3
  CHECK(run(ReduceOp::sum, tenths, 1).item<double>() == doctest::Approx(0.1F * (1 << 20)).epsilon(0x1p-24));
}

TEST_CASE("neither threads nor instruction sets change a bit") {
  const int before = num_threads();
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
    for (const Tensor& in :
         {random_f64({8, 16, 2048}).to(dtype), random_f64({300000}).to(dtype), random_f64({3000, 2, 50}).to(dtype)})
      for (unsigned dims = 1; dims < 8U; ++dims) {
        CAPTURE(in.shape());
        CAPTURE(dims);
        set_num_threads(1);
        const Tensor one = run(ReduceOp::sum, in, dims);
        for (const int threads : {2, 3}) {
          set_num_threads(threads);
          for_each_isa([&] { CHECK(same(run(ReduceOp::sum, in, dims), one)); });
        }
      }
  set_num_threads(before);
}

TEST_CASE("NaN wins a maximum, wherever it is") {
  for (std::int64_t place = 0; place < 40; ++place) {
    Tensor x = Tensor::ones({40});
    x.narrow(0, place, 1).fill_(std::numeric_limits<double>::quiet_NaN());
    CHECK(std::isnan(run(ReduceOp::max, x, 1).item()));
    CHECK(std::isnan(run(ReduceOp::min, x, 1).item()));
    CHECK(std::isnan(run(ReduceOp::max, x.reshape({4, 10}), 1).to_vector<float>()[static_cast<std::size_t>(place % 10)]));
  }
}

TEST_CASE("nothing to reduce") {
  CHECK(run(ReduceOp::sum, Tensor::zeros({2, 0, 3}), 2).to_vector<float>() == std::vector<float>(6, 0));
  CHECK(run(ReduceOp::sum, Tensor::zeros({0, 3}), 2).numel() == 0);
  CHECK(run(ReduceOp::sum, Tensor::full({}, 3), 0).item() == 3);
  CHECK(error_of<ShapeError>([] {
          return run(ReduceOp::max, Tensor::zeros({2, 0}), 2);
        }) == "reduce: expected at least one element for max and min, got (2, 0)");
}

TEST_CASE("reduce_map is the scaled sum of what map gives") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const MapOp op : {MapOp::squared_difference, MapOp::smooth_l1})
      for (const std::int64_t size : {1, 5, 4096, 10001}) {
        CAPTURE(dtype);
        CAPTURE(size);
        const std::vector<Tensor> inputs{random_f64({size + 1}).to(dtype).slice(0, 1, size + 1),
                                         uniform_f64({size}, -1, 1, 3).to(dtype)};
        const Tensor values = Tensor::empty({size}, {.dtype = dtype}), out = Tensor::full({}, NAN, {.dtype = dtype});
        cpu::map(op, values, inputs, {0.7, 0});
        cpu::reduce_map(op, out, inputs[0], inputs[1], {0.7, 0.25});
        CHECK(out.item() == run(ReduceOp::sum, values, 1).item() * 0.25);
      }
}
