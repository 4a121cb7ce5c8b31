#include "cuda/linear/few_rows.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "ops/elementwise.hpp"
#include "ops/linear.hpp"
#include "ops/norm.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("few rows of whole vectors are one kernel") {
  const auto fits = [](std::int64_t M, std::int64_t K, std::int64_t N, DType dtype = DType::f32) {
    const TensorOptions like{dtype, Device::cpu()};
    return cuda::few_rows_fit({.x = Tensor::empty({M, K}, like), .weight = Tensor::empty({N, K}, like)});
  };
  CHECK(fits(1, 4, 1));
  CHECK(fits(8, 2048, 512));
  CHECK(fits(8, 2048, 512, DType::bf16));
  CHECK_FALSE(fits(9, 2048, 512));
  CHECK_FALSE(fits(2, 6, 5));
  CHECK_FALSE(fits(2, 4, 5, DType::f16));
  CHECK_FALSE(fits(2, 8, 5, DType::f64));
  CHECK_FALSE(fits(8, 4096, 512));
  CHECK_FALSE(fits(1, 4096, 4097));
  const Tensor odd = Tensor::empty({17}, {DType::f32, Device::cpu()}).narrow(0, 1, 16).reshape({2, 8});
  CHECK_FALSE(cuda::few_rows_fit({.x = odd, .weight = Tensor::empty({3, 8}, {DType::f32, Device::cpu()})}));
}

TEST_CASE("few rows: the outputs and nothing else is written, with the bits of every call") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const std::int64_t M : {1, 2, 3, 5, 8})
      for (const std::int64_t K : {8, 264, 512, 2048}) {
        CAPTURE(name_of(dtype));
        CAPTURE(M);
        CAPTURE(K);
        constexpr std::int64_t N = 37;
        const auto tensor = [&](const Shape& shape, std::uint64_t seed) { return random_f64(shape, seed).to(dtype); };
        const Tensor x = tensor({M, K}, 1), weight = (random_f64({N, K}, 2) / std::sqrt(static_cast<double>(K))).to(dtype);
        const LinearInputs in{.x = mirrored(x), .weight = mirrored(weight), .normalizes = true, .norm_epsilon = 1e-5};
        const Tensor out = mirrored(poisoned({M, N}, dtype)), again = mirrored(poisoned({M, N}, dtype));
        REQUIRE(gpu().linear(out, in));
        REQUIRE(gpu().linear(again, in));
        CHECK(max_difference(out.cpu(), again.cpu()) == 0);
        const Tensor expected = linear(layer_norm(x.to(DType::f64)), weight.to(DType::f64));
        const double unit = dtype == DType::f32 ? kFloatSum : dtype == DType::f16 ? 4 * kHalfUnit : 4 * kBFloat16Unit;
        CHECK(worst_difference(expected, out) <= unit);
        const Tensor behind = Tensor::over(out.storage(), {3}, {1}, M * N, dtype);
        for (const double value : behind.cpu().to(DType::f64).to_vector<double>()) CHECK(std::isnan(value));
      }
}
