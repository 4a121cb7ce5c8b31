#include "tensor/device.hpp"

#include <doctest/doctest.h>

#include <thread>

#include "device/backend.hpp"
#include "tensor/error.hpp"

namespace pp = polyphase;
using pp::Device;

TEST_CASE("names go both ways") {
  CHECK(Device::parse("cpu") == Device::cpu());
  CHECK(Device::parse("cuda") == Device::cuda(0));
  CHECK(Device::parse("cuda:12") == Device::cuda(12));
  CHECK(pp::to_string(Device::cpu()) == "cpu");
  CHECK(pp::to_string(Device::cuda(3)) == "cuda:3");
  CHECK(pp::concat(Device::cuda()) == "cuda:0");
}

TEST_CASE("other names are refused") {
  CHECK_THROWS_WITH_AS((void)Device::parse("gpu"), "device: expected \"cpu\", \"cuda\" or \"cuda:N\", got \"gpu\"",
                       pp::DeviceError);
  for (const char* text : {"", "CPU", "cpu:1", "cuda:", "cuda:-1", "cuda:1x", "cuda: 1", "cuda:99999999999"}) {
    CHECK_THROWS_AS((void)Device::parse(text), pp::DeviceError);
  }
}

TEST_CASE("best is a GPU where there is one") {
  CHECK(Device::best() == (pp::device_count(pp::DeviceType::cuda) > 0 ? Device::cuda(0) : Device::cpu()));
}

TEST_CASE("the default device: cpu, guarded by scope, one per thread") {
  CHECK(pp::default_device() == Device::cpu());
  CHECK_THROWS_AS(pp::DeviceGuard{Device::cuda(1000)}, pp::DeviceError);
  CHECK_THROWS_AS((pp::DeviceGuard{Device{pp::DeviceType::cpu, 1}}), pp::DeviceError);
  CHECK(pp::default_device() == Device::cpu());
  const pp::DeviceGuard guard(Device::best());
  CHECK(pp::default_device() == Device::best());
  std::thread([] { CHECK(pp::default_device() == Device::cpu()); }).join();
}
