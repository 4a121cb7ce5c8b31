#include "ops/constants.hpp"

#include <doctest/doctest.h>

using namespace polyphase;

namespace {

int made = 0;

Tensor ramp(std::int64_t length, DType dtype = DType::f32) {
  return ops::constant("ramp", {length, 0, 0}, dtype, default_device(), [&] {
    ++made;
    return Tensor::arange(static_cast<double>(length), {.dtype = DType::f64, .device = Device::cpu()});
  });
}

}  // namespace

TEST_CASE("a table is made once for its numbers, dtype and device") {
  made = 0;
  const Tensor first = ramp(3);
  CHECK(first.to_vector<float>() == std::vector<float>{0, 1, 2});
  CHECK(first.device() == default_device());
  CHECK(ramp(3).is_same(first));
  CHECK(made == 1);
  CHECK(ramp(4).numel() == 4);
  CHECK(ramp(3, DType::f64).dtype() == DType::f64);
  CHECK(made == 3);
}

TEST_CASE("large tables are not kept, and none past the first 256") {
  made = 0;
  (void)ramp(1 << 19);
  (void)ramp(1 << 19);
  CHECK(made == 2);
  for (std::int64_t i = 0; i < 256; ++i) (void)ramp(1000 + i);
  CHECK(made == 258);
  (void)ramp(1000);
  CHECK(made == 258);
  (void)ramp(5000);
  (void)ramp(5000);
  CHECK(made == 260);
}
