#include "device/backend.hpp"

#include <doctest/doctest.h>

namespace pp = polyphase;

TEST_CASE("there is one cpu") {
  CHECK(pp::device_count(pp::DeviceType::cpu) == 1);
  CHECK(&pp::backend_of(pp::Device::cpu()) == &pp::backend_of(pp::Device::cpu()));
  CHECK_THROWS_WITH_AS((void)pp::backend_of({pp::DeviceType::cpu, 1}), "cpu:1: expected cpu, which is a single device",
                       pp::DeviceError);
}

TEST_CASE("a CUDA device that is not there is named") {
  const int count = pp::device_count(pp::DeviceType::cuda);
  CHECK(count >= 0);
  CHECK_THROWS_WITH_AS((void)pp::backend_of(pp::Device::cuda(count)), doctest::Contains(pp::concat("cuda:", count).c_str()),
                       pp::DeviceError);
}
