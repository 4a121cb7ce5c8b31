#include "training/transport.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <thread>

#include "cuda/cuda.hpp"
#include "device/backend.hpp"
#include "sound.hpp"
#include "support/helpers.hpp"
#include "support/skip.hpp"
#include "tensor/error.hpp"

using namespace training;
using namespace training::testing;

namespace {

Batch batch_of(std::int64_t step, std::int64_t rows, std::int64_t low, std::int64_t high) {
  return {step, rows, noise(rows * low, static_cast<std::uint64_t>(2 * step)),
          noise(rows * high, static_cast<std::uint64_t>(2 * step + 1))};
}

void check_same(const TensorBatch& got, const Batch& sent) {
  CHECK(got.step == sent.step);
  CHECK(got.low.shape() == pp::Shape{sent.rows, 1, static_cast<std::int64_t>(sent.low.size()) / sent.rows});
  CHECK(got.high.shape() == pp::Shape{sent.rows, 1, static_cast<std::int64_t>(sent.high.size()) / sent.rows});
  CHECK(got.low.to_vector<float>() == sent.low);
  CHECK(got.high.to_vector<float>() == sent.high);
}

// A simulated GPU: an upload reads its buffer as late as a real GPU may.
struct LateMemory {
  struct Copy {
    const std::vector<float>* from;
    pp::Tensor to;
    bool done = false;
    void run() {
      if (!done) std::copy_n(from->begin(), to.numel(), to.data<float>());
      done = true;
    }
  };
  class Buffer {
   public:
    explicit Buffer(std::size_t bytes) : values_(std::make_unique<std::vector<float>>(bytes / sizeof(float))) {}
    ~Buffer() {
      if (last) last->run();
    }
    Buffer(Buffer&&) = default;
    template <class T>
    T* as() {
      if (last) last->run();
      return values_->data();
    }
    std::size_t bytes() const { return values_->size() * sizeof(float); }
    std::vector<float>* values() const { return values_.get(); }
    std::shared_ptr<Copy> last;

   private:
    std::unique_ptr<std::vector<float>> values_;
  };
  struct Upload {
    std::shared_ptr<Copy> copy;
    pp::Tensor get() const { return copy->run(), copy->to; }
  };
  std::shared_ptr<int> made = std::make_shared<int>(0);

  Buffer make(std::size_t bytes) const { return ++*made, Buffer(bytes); }
  Upload upload(Buffer& from, const pp::Shape& shape) const {
    from.last =
        std::make_shared<Copy>(Copy{from.values(), pp::Tensor::full(shape, std::nan(""), {.device = pp::Device::cpu()})});
    return {from.last};
  }
};

}  // namespace

TEST_CASE("batches in flight stay whole while the buffers are used again") {
  const LateMemory memory;
  RingTransport<LateMemory> ring(memory);
  std::vector<Batch> sent;
  std::vector<Arrival> arrivals;
  for (std::int64_t step = 0; step < 9; ++step) {
    sent.push_back(batch_of(step, 3, 37, 128));
    arrivals.push_back(ring.send(sent.back()));
  }
  for (std::size_t i = 0; i < sent.size(); ++i) check_same(arrivals[i](), sent[i]);
  CHECK(*memory.made == 2);
}

TEST_CASE("a larger batch gets larger buffers") {
  const LateMemory memory;
  RingTransport<LateMemory> ring(memory);
  for (const std::int64_t rows : {1, 2, 5, 3}) {
    const Batch batch = batch_of(rows, rows, 40, 160);
    check_same(ring.send(batch)(), batch);
  }
  CHECK(*memory.made == 4);  // for 1, 2 and 5 rows, and one more when the buffer of 2 rows grows to 3
}

TEST_CASE("to the host: the tensors themselves") {
  const Transport transport = transport_to(pp::Device::cpu());
  const Batch batch = batch_of(4, 2, 10, 40);
  const Arrival arrival = transport(batch);
  check_same(arrival(), batch);
  CHECK(arrival().low.device() == pp::Device::cpu());
}

TEST_CASE("a device that is not there is refused before a thread is started") {
  CHECK_THROWS_AS((void)transport_to(pp::Device::cuda(pp::cuda::device_count())), pp::DeviceError);
}

TEST_CASE("to a GPU: whole, from another thread's point of view too") {
  if (pp::cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const Transport transport = transport_to(pp::Device::cuda());
  std::vector<Batch> sent;
  std::vector<Arrival> arrivals;
  std::thread([&] {
    for (std::int64_t step = 0; step < 6; ++step) {
      sent.push_back(batch_of(step, 8, 1500, 4096));
      arrivals.push_back(transport(sent.back()));
    }
  }).join();
  for (std::size_t i = 0; i < sent.size(); ++i) check_same(arrivals[i](), sent[i]);
}
