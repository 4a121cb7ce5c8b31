#include "cuda/linear/fixed_order.hpp"

#include <doctest/doctest.h>

#include "conv/length_invariant.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("products of every size agree with the CPU") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  manual_seed(1);
  const LengthInvariantGuard guard;
  for (const DType dtype : {DType::f32, DType::f64})
    for (const std::int64_t M : {1, 17, 64})
      for (const std::int64_t N : {1, 16, 33})
        for (const std::int64_t K : {1, 15, 100}) {
          CAPTURE(M);
          CAPTURE(N);
          CAPTURE(K);
          const Tensor a = Tensor::randn({3, M, K}).to(dtype), b = Tensor::randn({3, N, K}).to(dtype).transpose(1, 2);
          const Tensor expected = poisoned({3, M, N}, dtype), got = mirrored(expected);
          host().matmul(expected, a, b);
          gpu().matmul(got, mirrored(a), mirrored(b));
          CHECK(worst_difference(expected, got) < (dtype == DType::f32 ? 2e-5 : 1e-13));
        }
}

TEST_CASE("the bits of a row do not depend on the other rows") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  manual_seed(2);
  const LengthInvariantGuard guard;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const Tensor a = Tensor::randn({1, 100, 300}).to(dtype).to(Device::cuda());
    const Tensor b = Tensor::randn({1, 300, 50}).to(dtype).to(Device::cuda());
    const auto product = [&](std::int64_t begin, std::int64_t rows) {
      const Tensor out = Tensor::empty({1, rows, 50}, {dtype, Device::cuda()});
      gpu().matmul(out, a.narrow(1, begin, rows), b);
      return out.to(DType::f32).to_vector<float>();
    };
    const std::vector<float> whole = product(0, 100);
    for (const std::int64_t begin : {0, 1, 63}) {
      const std::vector<float> part = product(begin, 30);
      CHECK(std::equal(part.begin(), part.end(), whole.begin() + begin * 50));
    }
  }
}
