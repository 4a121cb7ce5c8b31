// Memory runs out at each allocation of a training step in turn. Nothing is half done, nothing leaks, and the next attempt
// computes the same step.
#include <doctest/doctest.h>

#include <functional>
#include <limits>

#include "cpu/memory/allocator.hpp"
#include "cuda/memory/allocator.hpp"
#include "device/backend.hpp"
#include "support/helpers.hpp"
#include "support/small_training.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

void set_failure_hook(std::function<bool(std::size_t)> hook) {
  const Device device = default_device();
  if (device.is_cpu()) return cpu::host_allocator().set_failure_hook(std::move(hook));
  dynamic_cast<cuda::DeviceAllocator&>(backend_of(device).allocator()).set_failure_hook(std::move(hook));
}

/// Fails one allocation, counted from 0, during its lifetime.
class FailAt {
 public:
  explicit FailAt(std::int64_t at) : left_(std::make_shared<std::int64_t>(at)) {
    set_failure_hook([left = left_](std::size_t) { return (*left)-- == 0; });
  }
  ~FailAt() { set_failure_hook({}); }
  FailAt(const FailAt&) = delete;
  FailAt& operator=(const FailAt&) = delete;
  [[nodiscard]] bool reached() const { return *left_ < 0; }

 private:
  std::shared_ptr<std::int64_t> left_;
};

using Bits = std::vector<std::vector<double>>;

Bits bits_of(SmallTraining& training) {
  Bits bits;
  for (const Tensor& parameter : training.net.parameters())
    bits.push_back(parameter.detach().to(DType::f64).to_vector<double>());
  for (const auto& [name, tensor] : training.optimizer->state().tensors)
    if (tensor.defined()) bits.push_back(tensor.to(DType::f64).to_vector<double>());
  return bits;
}

std::size_t live_blocks() { return backend_of(default_device()).allocator().stats().live_blocks; }

constexpr std::int64_t kFarMore = 20000;  // far more allocations than a step has

/// Repeats a step until it succeeds; attempt i fails at allocation i. Returns how many attempts failed. `check` runs after
/// each.
std::int64_t fail_until_done(SmallTraining& training, const std::function<void()>& check) {
  const GeneratorState generator = default_generator().state();
  for (std::int64_t at = 0; at < kFarMore; ++at) {
    default_generator().set_state(generator);
    bool failed = false;
    {
      const FailAt hook(at);
      try {
        (void)training.step();
      } catch (const OutOfMemory&) {
        failed = true;
      }
      CHECK(failed == hook.reached());  // every failed allocation is reported as an error
    }
    if (!failed) return at;
    check();
  }
  return kFarMore;
}

}  // namespace

TEST_CASE("a step after the first: parameters, moments and memory as before, and the next try gives the same bits") {
  manual_seed(1);
  SmallTraining training, twin;
  const GeneratorState start = default_generator().state();
  for (SmallTraining* one : {&training, &twin}) {
    default_generator().set_state(start);
    (void)one->step();
    one->optimizer->zero_grad();
  }
  const Bits before = bits_of(training);
  CHECK(before == bits_of(twin));
  const GeneratorState generator = default_generator().state();
  const std::size_t live = live_blocks();
  const std::int64_t failures = fail_until_done(training, [&] {
    CHECK(bits_of(training) == before);
    training.optimizer->zero_grad();
    CHECK(live_blocks() == live);
  });
  CHECK(failures > 100);
  CHECK(failures < kFarMore);
  default_generator().set_state(generator);
  (void)twin.step();
  const Bits after = bits_of(training);
  CHECK(after == bits_of(twin));
  CHECK(after != before);
}

TEST_CASE("the first step, which makes the moments") {
  manual_seed(2);
  SmallTraining training, twin;
  const GeneratorState generator = default_generator().state();
  std::vector<std::vector<double>> weights;
  for (const Tensor& parameter : training.net.parameters())
    weights.push_back(parameter.detach().to(DType::f64).to_vector<double>());
  const std::int64_t failures = fail_until_done(training, [&] {
    std::size_t i = 0;
    for (const Tensor& parameter : training.net.parameters())
      CHECK(parameter.detach().to(DType::f64).to_vector<double>() == weights[i++]);
  });
  CHECK(failures > 100);
  default_generator().set_state(generator);
  (void)twin.step();
  CHECK(bits_of(training) == bits_of(twin));
}

TEST_CASE("a finished training leaks no block") {
  const std::size_t live = [] {
    SmallTraining warm;  // constants and plans stay cached
    (void)warm.step();
    return std::size_t{0};
  }() + live_blocks();
  {
    SmallTraining training;
    for (int i = 0; i < 3; ++i) (void)training.step();
  }
  CHECK(live_blocks() == live);
}
