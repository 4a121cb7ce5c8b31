#include "tensor/event.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <thread>
#include <utility>

#include "device/backend.hpp"
#include "support/helpers.hpp"
#include "support/skip.hpp"
#include "tensor/error.hpp"

namespace pp = polyphase;
using pp::Event;

TEST_CASE("the time between two events is what a clock says") {
  Event begin, end;
  const auto before = std::chrono::steady_clock::now();
  begin.record();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  end.record();
  const double time = begin.elapsed_ms(end);
  const std::chrono::duration<double, std::milli> around = std::chrono::steady_clock::now() - before;
  CHECK(begin.is_done());
  CHECK(end.is_done());
  CHECK(time >= 30);
  CHECK(time <= around.count());
  CHECK(end.elapsed_ms(begin) == -time);
  CHECK(begin.elapsed_ms(begin) == 0);
  begin.synchronize();
}

TEST_CASE("an event that is recorded again forgets the moment before") {
  Event first, again, last;
  first.record();
  again.record();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  last.record();
  CHECK(first.elapsed_ms(last) >= 20);
  again.record();
  CHECK(first.elapsed_ms(again) >= 20);
  Event moved = std::move(again);
  CHECK(first.elapsed_ms(moved) >= 20);
  CHECK(moved.device() == pp::default_device());
}

TEST_CASE("what an event cannot tell is refused") {
  Event never, other;
  other.record();
  const char* text = "Event::elapsed_ms: expected an event after its record(), got one before";
  CHECK_THROWS_WITH_AS((void)never.elapsed_ms(other), text, pp::Error);
  CHECK_THROWS_WITH_AS((void)other.elapsed_ms(never), text, pp::Error);
  CHECK_THROWS_WITH_AS((void)never.is_done(), "Event::is_done: expected an event after its record(), got one before",
                       pp::Error);
  CHECK_THROWS_WITH_AS(never.synchronize(), "Event::synchronize: expected an event after its record(), got one before",
                       pp::Error);
  const Event moved = std::move(other);
  CHECK_THROWS_WITH_AS(other.record(), "Event::record: expected an event, got one that was moved from", pp::Error);
  CHECK_THROWS_AS((void)other.is_done(), pp::Error);
  CHECK(moved.is_done());
  CHECK_THROWS_AS(Event(pp::Device::cuda(99)), pp::DeviceError);
}

TEST_CASE("on a GPU an event waits for the work before it, and events of two devices have no time between them") {
  if (pp::device_count(pp::DeviceType::cuda) == 0) SKIP_TEST("no CUDA device");
  const pp::Device gpu = pp::Device::cuda();
  Event begin(gpu), end(gpu), host(pp::Device::cpu());
  begin.record();
  const pp::Tensor x = pp::Tensor::zeros({1 << 26}, {.device = gpu});
  end.record();
  host.record();
  CHECK(begin.elapsed_ms(end) > 0);
  CHECK(end.is_done());
  CHECK(pp::testing::error_of<pp::DeviceError>([&] { return host.elapsed_ms(end); }) ==
        "Event::elapsed_ms: expected events of one device, got cpu and cuda:0");
}
