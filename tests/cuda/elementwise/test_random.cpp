#include "cuda/elementwise/random.hpp"

#include <doctest/doctest.h>

#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("uniform numbers are the host's, bit for bit") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : kFloatTypes)
    for (const std::int64_t count : {0, 1, 2, 3, 4, 5, 1023, 100001})
      for (const GeneratorState state : {GeneratorState{0, 0}, GeneratorState{0x123456789abcdef0, 0xfffffffe}}) {
        CAPTURE(dtype);
        CAPTURE(count);
        const Tensor expected = poisoned({count}, dtype), got = mirrored(expected);
        host().uniform(expected, state, -1.5, 2.25);
        gpu().uniform(got, state, -1.5, 2.25);
        CHECK(different(expected, got) == 0);
      }
}

TEST_CASE("normal numbers are the host's but for the last bit of a logarithm") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : kFloatTypes)
    for (const std::int64_t count : {1, 2, 3, 4, 5, 100001}) {
      CAPTURE(dtype);
      CAPTURE(count);
      const Tensor expected = poisoned({count}, dtype), got = mirrored(expected);
      host().normal(expected, {7, 11}, 0.5, 2);
      gpu().normal(got, {7, 11}, 0.5, 2);
      const double bound = dtype == DType::f64   ? kDoubleRounding
                           : dtype == DType::f32 ? kFloatRounding
                           : dtype == DType::f16 ? kHalfRounding
                                                 : kBFloat16Rounding;
      CHECK(worst_difference(expected, got) <= bound);
    }
}

TEST_CASE("integers are refused") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor out = Tensor::zeros({4}, {.dtype = DType::i64, .device = Device::cuda()});
  CHECK(error_of<DTypeError>([&] {
          gpu().uniform(out, {}, 0, 1);
          return 0;
        }) == "uniform: expected a floating-point dtype, got i64");
  CHECK(error_of<DTypeError>([&] {
          gpu().normal(out, {}, 0, 1);
          return 0;
        }) == "normal: expected a floating-point dtype, got i64");
}

TEST_CASE("factories draw the same tensors on both devices") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  manual_seed(5);
  const Tensor on_host = Tensor::randn({3, 7});
  manual_seed(5);
  const Tensor on_gpu = Tensor::randn({3, 7}, {.device = Device::cuda()});
  CHECK(worst_difference(on_host, on_gpu) <= kFloatRounding);
}
