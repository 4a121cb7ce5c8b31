#include "cuda/conv/tensor_core/pipeline/tensor_map.hpp"

#include <doctest/doctest.h>

#include <cstdint>

#include "cuda/cuda.hpp"
#include "support/skip.hpp"
#include "tensor/error.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

TEST_CASE("a map of what TMA can copy is made, of anything else refused with its sizes") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  tensor_core::TensorMapOf of{.address = 4096,
                              .numbers = 100,
                              .rows = 7,
                              .samples = 2,
                              .row_bytes = 400,
                              .sample_bytes = 2800,
                              .box_numbers = 32,
                              .box_rows = 4,
                              .bytes = 4,
                              .offset = 0,
                              .swizzled = true};
  cuda::synchronize();  // the driver makes no tensor map without a context
  CHECK_NOTHROW((void)tensor_core::encode_tensor_map(of));
  of.address = 4097;
  CHECK_THROWS_WITH_AS((void)tensor_core::encode_tensor_map(of), doctest::Contains("2 x 7 x 100"), DeviceError);
  of.address = 4096;
  of.box_numbers = 512;
  CHECK_THROWS_AS((void)tensor_core::encode_tensor_map(of), DeviceError);
}

TEST_CASE("maps of classes begin at a boundary before their rows and hold all of them") {
  float numbers[64] = {};
  for (const std::int64_t length : {8, 12, 10, 7}) {
    for (int own = 0; own < 8; ++own) {
      const tensor_core::TensorMapOf of = tensor_core::class_map_of({numbers + 3, 48, length, 4}, own, 8, 32, 120, 16);
      CHECK(of.address % 32 == 0);
      CHECK(of.address + static_cast<std::uint64_t>(of.offset) * 4 ==
            reinterpret_cast<std::uint64_t>(numbers + 3 + own * length));
      CHECK(of.numbers == static_cast<std::uint64_t>(length + of.offset));
      CHECK(of.rows == 6);
      CHECK(of.row_bytes == static_cast<std::uint64_t>(8 * length * 4));
      CHECK(of.sample_bytes == 6 * of.row_bytes);
      CHECK(of.box_rows == 2);
    }
  }
}

TEST_CASE("of rows that are no multiple of the classes the first classes have one more, and none is empty") {
  const float numbers[4] = {};
  const auto rows_of = [&](std::int64_t rows, int own) {
    return tensor_core::class_map_of({numbers, rows, 7, 4}, own, 4, 16, 8, 4).rows;
  };
  CHECK(rows_of(10, 0) == 3);
  CHECK(rows_of(10, 1) == 3);
  CHECK(rows_of(10, 2) == 2);
  CHECK(rows_of(10, 3) == 2);
  CHECK(rows_of(2, 3) == 1);
}
