#include "cuda/conv/tensor_core/pipeline/tensor_map.hpp"

#include <doctest/doctest.h>

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
  cuda::synchronize();  // the driver makes no map without a context
  CHECK_NOTHROW((void)tensor_core::encode_tensor_map(of));
  of.address = 4097;
  CHECK_THROWS_WITH_AS((void)tensor_core::encode_tensor_map(of), doctest::Contains("2 x 7 x 100"), DeviceError);
  of.address = 4096;
  of.box_numbers = 512;
  CHECK_THROWS_AS((void)tensor_core::encode_tensor_map(of), DeviceError);
}
