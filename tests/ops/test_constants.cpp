#include "ops/constants.hpp"

#include <doctest/doctest.h>

#include "tensor/error.hpp"

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

TEST_CASE("a host table holds its formula's values, and refuses what memory cannot hold") {
  const auto square = [](std::int64_t j) { return j * j; };
  CHECK(ops::host_table<std::int64_t>(4, square).to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 1, 4, 9});
  CHECK(ops::host_table<std::int64_t>(0, square).shape() == Shape{0});
  CHECK_THROWS_AS((void)ops::host_table<std::int64_t>(std::int64_t{1} << 45, square), OutOfMemory);
  CHECK_THROWS_AS((void)ops::host_table<std::int64_t>(std::int64_t{1} << 61, square), ShapeError);
}
