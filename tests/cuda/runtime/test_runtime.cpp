#include "cuda/runtime/runtime.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "cuda/delay.hpp"
#include "device/backend.hpp"
#include "ops/elementwise.hpp"
#include "support/reduced.hpp"
#include "support/skip.hpp"
#include "tensor/device.hpp"

namespace pp = polyphase;
namespace cuda = polyphase::cuda;

TEST_CASE("a machine without a GPU has no devices and the library says why") {
  CHECK(pp::cuda_device_count() == cuda::device_count());
  if (cuda::device_count() > 0) {
    CHECK(cuda::unavailable_reason().empty());
    CHECK(pp::Device::best() == pp::Device::cuda(0));
    return;
  }
  CHECK_FALSE(cuda::unavailable_reason().empty());
  CHECK(pp::Device::best() == pp::Device::cpu());
  const std::string text = "cuda: expected a device below 0, got cuda:0; " + cuda::unavailable_reason();
  CHECK_THROWS_WITH_AS((void)cuda::properties(0), text.c_str(), pp::DeviceError);
}

TEST_CASE("a child forked after CUDA was used has no devices and says why") {
  (void)cuda::device_count();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    bool refused = cuda::device_count() == 0 && cuda::unavailable_reason().find("forked") != std::string::npos;
    try {
      (void)pp::cuda_backend(0);
      refused = false;
    } catch (const pp::DeviceError& error) {
      refused = refused && std::string(error.what()).find("forked") != std::string::npos;
    }
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a failed call reports its name, its error and its place, and clears the error") {
  const int line = __LINE__ + 2;
  try {
    CHECK_CUDA(cudaErrorInvalidValue);
    FAIL("nothing thrown");
  } catch (const pp::DeviceError& error) {
    const std::string text =
        "cuda: cudaErrorInvalidValue failed: cudaErrorInvalidValue (invalid argument) at test_runtime.cpp:" +
        std::to_string(line);
    CHECK(error.what() == text);
  }
  // Without a driver every call fails again.
  if (cuda::device_count() > 0) CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("properties and device scope") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const cuda::DeviceProperties& properties = cuda::properties(0);
  CHECK(properties.arch() >= 80);
  CHECK(properties.sm_count > 0);
  CHECK(properties.total_bytes > 0);
  CHECK_THROWS_AS((void)cuda::properties(cuda::device_count()), pp::DeviceError);
  CHECK_THROWS_AS((void)cuda::properties(-1), pp::DeviceError);
  const cuda::DeviceScope scope(0);
  int current = -1;
  CHECK_CUDA(cudaGetDevice(&current));
  CHECK(current == 0);
}

TEST_CASE("streams are the thread's own choice; events order them") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const cudaStream_t shared = cuda::current_stream(0);
  cuda::Stream stream(0);
  {
    const cuda::StreamScope scope(stream);
    CHECK(cuda::current_stream(0) == stream.get());
    std::thread([&] { CHECK(cuda::current_stream(0) == shared); }).join();
  }
  CHECK(cuda::current_stream(0) == shared);

  cuda::Event begin(true), end(true);
  const pp::testing::Delay delay(shared);
  begin.record(shared);
  const bool done = begin.done();
  CHECK((!done || delay.over()));
  begin.wait_on(stream.get());
  end.record(stream.get());
  end.synchronize();
  CHECK(delay.over());
  CHECK(begin.done());
  CHECK(cuda::Event::elapsed_ms(begin, end) >= 0.0F);
}

TEST_CASE("a stream waits for another; the host waits for a stream, for one that goes too, and for the device") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  cuda::Stream first, second;
  const pp::testing::Delay ahead(first.get());
  second.wait_for(first);
  second.synchronize();
  CHECK(ahead.over());

  const pp::testing::Delay device(first.get());
  cuda::synchronize();
  CHECK(device.over());

  const pp::testing::Delay gone = [] {
    const cuda::Stream stream;
    return pp::testing::Delay(stream.get());
  }();
  CHECK(gone.over());
}

namespace {

/// The output of the test case `name` in a separate process, because a fault makes the GPU unusable for its process. `setting`:
/// environment.
std::string printed_by_child(const std::string& name, const std::string& setting) {
  const std::string command = setting + " /proc/" + std::to_string(::getpid()) + "/exe --no-skip -tc='" + name + "' 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  char part[256];
  while (std::fgets(part, sizeof part, pipe) != nullptr) text += part;
  (void)pclose(pipe);
  return text;
}

/// A tensor on the GPU at an address without memory.
pp::Tensor nowhere() {
  void* const address = reinterpret_cast<void*>(std::uintptr_t{0x1000});
  return pp::Tensor::over(pp::Storage(address, 4096, pp::Device::cuda(), {}), {1024}, {1}, 0, pp::DType::f32);
}

/// Runs `use` and prints what it threw, after the name `call`.
template <class Use>
void print_error(const char* call, const Use& use) {
  try {
    use();
    std::printf("%s: went through\n", call);
  } catch (const pp::DeviceError& error) {
    std::printf("%s: %s\n", call, error.what());
  }
  std::fflush(stdout);
}

}  // namespace

TEST_CASE("child: a kernel that faults" * doctest::skip()) {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const pp::Tensor one = pp::Tensor::ones({1024}, {.device = pp::Device::cuda()});
  cuda::synchronize();
  print_error("first", [&] { (void)pp::sub(one, nowhere()); });
  print_error("second", [] { cuda::synchronize(); });
  std::_Exit(0);  // a lost GPU cannot free anything
}

TEST_CASE("a fault names the operation with POLYPHASE_LAUNCH_BLOCKING=1, else the next call tells of it and of that setting") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  if (pp::testing::is_reduced()) SKIP_TEST("the faults are made on purpose");
  const std::string fault = "cudaErrorIllegalAddress (an illegal memory access was encountered)";
  const std::string blocking = printed_by_child("child: a kernel that faults", "POLYPHASE_LAUNCH_BLOCKING=1");
  CHECK_MESSAGE(blocking.find("first: sub: cuda: map: " + fault + "\n") != std::string::npos, blocking);
  const std::string later = printed_by_child("child: a kernel that faults", "POLYPHASE_LAUNCH_BLOCKING=0");
  CHECK_MESSAGE(later.find("second: cuda: ") != std::string::npos, later);
  CHECK_MESSAGE(later.find(fault) != std::string::npos, later);
  CHECK_MESSAGE(
      later.find("; it may come from an earlier operation: POLYPHASE_LAUNCH_BLOCKING=1 names it\n") != std::string::npos,
      later);
}
