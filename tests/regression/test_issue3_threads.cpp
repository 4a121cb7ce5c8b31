// Threads that train at the same time, each on its own stream if the device has streams, get the same numbers as alone.
#include <doctest/doctest.h>

#include <optional>
#include <thread>

#include "cuda/cuda.hpp"
#include "support/small_training.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Bits = std::vector<std::vector<float>>;

/// A training of some steps from the same start, by the calling thread.
Bits train(Device device, bool own_stream) {
  const DeviceGuard guard(device);
  std::optional<cuda::Stream> stream;
  std::optional<cuda::StreamGuard> on_stream;
  if (own_stream && device.is_cuda()) {
    stream.emplace(device.index);
    on_stream.emplace(*stream);
  }
  manual_seed(3);
  SmallTraining training;
  for (int i = 0; i < 6; ++i) (void)training.step();
  Bits bits;
  for (const Tensor& parameter : training.net.parameters()) bits.push_back(parameter.detach().to_vector<float>());
  return bits;
}

}  // namespace

TEST_CASE("four threads at the same time get the results of one, with tables that the first of them makes") {
  const Device device = default_device();
  std::vector<Bits> results(4);
  std::vector<std::thread> threads;
  for (std::size_t id = 0; id < results.size(); ++id)
    threads.emplace_back([&, id] { results[id] = train(device, id > 0); });  // one of them on the default stream
  for (std::thread& thread : threads) thread.join();
  const Bits alone = train(device, false);
  for (const Bits& result : results) CHECK(result == alone);
}

TEST_CASE("twenty runs of one training give the same bits") {
  const Bits first = train(default_device(), false);
  for (int turn = 1; turn < 20; ++turn) CHECK(train(default_device(), turn % 2 == 0) == first);
}
