#include "cuda/elementwise/rope.hpp"

#include <doctest/doctest.h>

#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("pairs are turned as on the host") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : kFloatTypes)
    for (const bool interleaved : {true, false})
      for (const bool reversed : {true, false})
        for (const bool is_listed : {true, false}) {
          const Tensor x = random_f64({2, 70, 3, 64}).to(dtype).transpose(1, 2);
          Rotation rotation{.offset = 1000, .interleaved = interleaved, .reversed = reversed}, device_rotation = rotation;
          if (is_listed) {
            rotation.positions = Tensor::arange(1000, 1070, 1, {DType::i64, Device::cpu()});
            rotation.frequencies = uniform_f64({32}, 0, 1);
            device_rotation.positions = mirrored(rotation.positions);
            device_rotation.frequencies = mirrored(rotation.frequencies);
          }
          const Tensor out = poisoned(x.shape(), dtype), device_out = mirrored(out);
          host().rope(out, x, rotation);
          gpu().rope(device_out, mirrored(x), device_rotation);
          const double bound = dtype == DType::f64   ? 1e-11
                               : dtype == DType::f32 ? 8 * kFloatRounding
                               : dtype == DType::f16 ? 2 * kHalfUnit
                                                     : 2 * kBFloat16Unit;
          CHECK(worst_difference(out, device_out) <= bound);
        }
}
