#include "cuda/linear/attention.hpp"

#include <doctest/doctest.h>

#include "autograd/no_grad.hpp"
#include "ops/attention.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("few queries are one kernel, and wide heads or many products are not") {
  const auto fits = [](std::int64_t H, std::int64_t Lq, std::int64_t Lk, std::int64_t D, std::int64_t window = 0) {
    const auto tensor = [&](std::int64_t L) { return Tensor::empty({1, H, L, D}, {.device = Device::cpu()}); };
    const AttentionInputs in{tensor(Lq), tensor(Lk), tensor(Lk), 1, window > 0, window};
    return cuda::attention_can(in) && cuda::attention_is_fast(in);
  };
  CHECK(fits(8, 2, 251, 64, 250));
  CHECK(fits(8, 250, 250, 64, 250));
  CHECK(fits(1, 1, 1, 128));
  CHECK_FALSE(fits(1, 1, 1, 129));
  CHECK_FALSE(fits(16, 4000, 4000, 64));
  CHECK(fits(16, 4000, 4000, 64, 16));
}

TEST_CASE("a query's bits do not depend on the other queries, nor on keys that it does not see") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto tensor = [&](std::uint64_t seed) { return random_f64({2, 4, 130, 64}, seed).to(dtype).to(Device::cuda()); };
    const Tensor q = tensor(1), k = tensor(2), v = tensor(3);
    const Tensor all = scaled_dot_product_attention(q, k, v, {.causal = true, .window = 50});
    for (const std::int64_t at : {0, 49, 50, 129}) {
      const std::int64_t first = std::max<std::int64_t>(0, at - 49);
      const Tensor one = scaled_dot_product_attention(q.narrow(2, at, 1), k.narrow(2, first, at + 1 - first),
                                                      v.narrow(2, first, at + 1 - first), {.causal = true, .window = 50});
      CHECK(max_difference(one, all.narrow(2, at, 1)) == 0);
    }
    const Tensor wide = scaled_dot_product_attention(q.to(Device::cpu()), k.to(Device::cpu()), v.to(Device::cpu()),
                                                     {.causal = true, .window = 50});
    CHECK(max_difference(all.to(Device::cpu()), wide) <= (dtype == DType::f32 ? kFloatSum : kDoubleSum));
  }
}

TEST_CASE("many queries of more keys than a block has lanes have the bits of single ones") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const bool causal : {false, true}) {
    const auto tensor = [&](std::uint64_t seed) { return random_f64({1, 2, 700, 40}, seed).to(DType::f32).to(Device::cuda()); };
    const Tensor q = tensor(1), k = tensor(2), v = tensor(3);
    const Tensor all = scaled_dot_product_attention(q, k, v, {.causal = causal});
    for (const std::int64_t at : {0, 255, 256, 699}) {
      const std::int64_t keys = causal ? at + 1 : 700;
      const Tensor one =
          scaled_dot_product_attention(q.narrow(2, at, 1), k.narrow(2, 0, keys), v.narrow(2, 0, keys), {.causal = causal});
      CHECK(max_difference(one, all.narrow(2, at, 1)) == 0);
    }
    const Device cpu = Device::cpu();
    CHECK(max_difference(all.to(cpu), scaled_dot_product_attention(q.to(cpu), k.to(cpu), v.to(cpu), {.causal = causal})) <=
          kFloatSum);
  }
}

TEST_CASE("queries of 16 bits agree with the f32 result, rounded once") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const NoGradGuard no_grad;
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const std::int64_t D : {5, 7, 64, 128}) {
      CAPTURE(name_of(dtype));
      CAPTURE(D);
      const auto tensor = [&](std::uint64_t seed) {
        return random_f64({2, 90, 3, D}, seed).to(dtype).to(Device::cuda()).transpose(1, 2);
      };
      const Tensor q = tensor(1), k = tensor(2), v = tensor(3);
      const AttentionOptions options{.causal = true, .window = 40};
      const auto wide = [](const Tensor& narrow) { return narrow.to(DType::f32); };
      const Tensor rounded = scaled_dot_product_attention(wide(q), wide(k), wide(v), options).to(dtype);
      const Tensor y = scaled_dot_product_attention(q, k, v, options);
      CHECK(max_difference(y, rounded) <= (dtype == DType::f16 ? kHalfUnit : kBFloat16Unit));
    }
}
