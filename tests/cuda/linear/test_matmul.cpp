#include "cuda/linear/matmul.hpp"

#include <doctest/doctest.h>

#include <array>

#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

// Runs both backends on the same layouts. With small integers the sums are exact, so results must be equal.
double product_differs(const Tensor& a, const Tensor& b) {
  const Tensor expected = poisoned({a.size(0), a.size(1), b.size(2)}, a.dtype()), got = mirrored(expected);
  host().matmul(expected, a, b);
  gpu().matmul(got, mirrored(a), mirrored(b));
  return worst_difference(expected, got);
}

Tensor integers(const Shape& shape, DType dtype, std::uint64_t seed) {
  return Tensor::from_vector(
             [&] {
               Generator generator(seed);
               std::vector<double> values;
               for (std::int64_t i = 0; i < shape.numel(); ++i) values.push_back(static_cast<double>(generator.integer(5) - 2));
               return values;
             }(),
             shape, Device::cpu())
      .to(dtype);
}

}  // namespace

TEST_CASE("small integers, every dtype and size, exactly") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : kFloatTypes)
    for (const std::int64_t B : {1, 3})
      for (const std::int64_t M : {1, 2, 33, 128})
        for (const std::int64_t N : {1, 5, 64, 130})
          for (const std::int64_t K : {1, 3, 100}) {
            CAPTURE(dtype);
            CAPTURE(M);
            CAPTURE(N);
            CAPTURE(K);
            CHECK(product_differs(integers({B, M, K}, dtype, 1), integers({B, K, N}, dtype, 2)) == 0);
            CHECK(product_differs(integers({B, K, M}, dtype, 1).transpose(1, 2),
                                  integers({B, N, K}, dtype, 2).transpose(1, 2)) == 0);
          }
}

TEST_CASE("strides of every kind") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : {DType::f32, DType::f16}) {
    const Tensor a = integers({3, 10, 40}, dtype, 1), b = integers({3, 40, 12}, dtype, 2);
    CHECK(product_differs(a.slice(2, 1, 21), b.slice(1, 3, 23)) == 0);      // rows further apart
    CHECK(product_differs(a.slice(2, 0, 40, 2), b.slice(1, 0, 20)) == 0);   // no stride of 1
    CHECK(product_differs(a.narrow(0, 1, 1).expand({3, 10, 40}), b) == 0);  // one for the whole batch
    CHECK(product_differs(a.narrow(0, 1, 1).slice(2, 0, 40, 2).expand({3, 10, 20}), b.slice(1, 0, 20)) == 0);
    CHECK(product_differs(a.narrow(1, 0, 1).expand({3, 7, 40}), b) == 0);  // one for all rows
    CHECK(product_differs(a.permute({1, 0, 2}), b.permute({2, 1, 0}).narrow(0, 0, 10)) == 0);
    CHECK(product_differs(a.narrow(2, 5, 1), b.narrow(1, 7, 1)) == 0);  // K = 1
  }
}

TEST_CASE("long sums of few results, which are added in parts") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const auto& [M, K, N] :
       {std::array{100, 512, 512}, {250, 2048, 512}, {65, 1024, 70}, {1, 4096, 300}, {130, 1056, 190}}) {
    CAPTURE(M);
    CAPTURE(K);
    const Tensor a = integers({1, M, K}, DType::f32, 1), b = integers({1, K, N}, DType::f32, 2);
    CHECK(product_differs(a, b) == 0);
    CHECK(product_differs(integers({1, K, M}, DType::f32, 3).transpose(1, 2),
                          integers({1, N, K}, DType::f32, 4).transpose(1, 2)) == 0);
    const Tensor wide = integers({1, M, 2 * K}, DType::f32, 5), tall = integers({1, 2 * K, N}, DType::f32, 6);
    CHECK(product_differs(wide.narrow(2, 3, K), tall.narrow(1, 5, K)) == 0);              // rows further apart
    CHECK(product_differs(wide.slice(2, 0, 2 * K, 2), tall.slice(1, 0, 2 * K, 2)) == 0);  // copied
    const Tensor x = random_f64({1, M, K}, 7).to(DType::f32), y = random_f64({1, K, N}, 8).to(DType::f32);
    CHECK(product_differs(x, y) <= kLongFloatSum);
    const PrecisionGuard ieee(Precision::ieee);
    CHECK(product_differs(x, y) <= kLongFloatSum);
  }
}

TEST_CASE("f32 is not rounded to tf32 unless asked for") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor a = random_f64({1, 256, 512}, 1).to(DType::f32), b = random_f64({1, 512, 256}, 2).to(DType::f32);
  CHECK(product_differs(a, b) <= kLongFloatSum);
  {
    const PrecisionGuard ieee(Precision::ieee);
    CHECK(product_differs(a, b) <= kLongFloatSum);
  }
  const PrecisionGuard tf32(Precision::tf32);
  CHECK(product_differs(a, b) > kLongFloatSum);
  CHECK(product_differs(a, b) < 0.1);
}

TEST_CASE("empty, more than one grid of batches, integers, determinism") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor none = Tensor::zeros({2, 3, 0}, {.device = Device::cuda()});
  const Tensor out = mirrored(poisoned({2, 3, 4}, DType::f32));
  gpu().matmul(out, none, Tensor::zeros({2, 0, 4}, {.device = Device::cuda()}));
  CHECK(out.to_vector<float>() == std::vector<float>(24, 0));
  CHECK(product_differs(integers({70000, 2, 3}, DType::f32, 1), integers({70000, 3, 2}, DType::f32, 2)) == 0);
  const Tensor whole = Tensor::zeros({1, 2, 2}, {.dtype = DType::i64, .device = Device::cuda()});
  CHECK(error_of<DTypeError>([&] {
          gpu().matmul(whole, whole, whole);
          return 0;
        }) == "matmul: expected a floating-point dtype, got i64");
  const Tensor a = mirrored(random_f64({2, 65, 4099}).to(DType::f32)),
               b = mirrored(random_f64({2, 4099, 33}, 2).to(DType::f32));
  std::vector<float> first;
  for (int run = 0; run < 20; ++run) {
    const Tensor y = Tensor::empty({2, 65, 33}, {.device = Device::cuda()});
    gpu().matmul(y, a, b);
    if (run == 0) first = y.to_vector<float>();
    CHECK(y.to_vector<float>() == first);
  }
}
