#include "cuda/linear/lstm.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "autograd/no_grad.hpp"
#include "cuda/cuda.hpp"
#include "ops/lstm.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "tensor/error.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

struct Layer {
  Tensor gates, weight, hidden, cells;  // on the CPU

  Layer(std::int64_t T, std::int64_t N, std::int64_t H, DType dtype = DType::f32) {
    const double bound = 1 / std::sqrt(static_cast<double>(H));
    gates = Tensor::randn({T, N, 4 * H}).to(dtype);
    weight = Tensor::uniform({4 * H, H}, -bound, bound).to(dtype);
    hidden = Tensor::zeros({T + 1, N, H}, {.dtype = dtype}), cells = Tensor::zeros({T + 1, N, H}, {.dtype = dtype});
    hidden.select(0, 0).copy_(Tensor::uniform({N, H}, -1, 1).to(dtype));
    cells.select(0, 0).copy_(Tensor::randn({N, H}).to(dtype));
  }
  [[nodiscard]] Layer on(Device device) const {
    Layer moved = *this;
    for (Tensor* tensor : {&moved.gates, &moved.weight, &moved.hidden, &moved.cells}) *tensor = tensor->clone().to(device);
    return moved;
  }
  [[nodiscard]] Layer run() const {
    backend_of(gates.device()).lstm(gates, weight, hidden, cells);
    return *this;
  }
  [[nodiscard]] std::vector<double> results() const {
    std::vector<double> all;
    for (const Tensor& tensor : {gates, hidden, cells})
      for (const double value : tensor.cpu().to(DType::f64).to_vector<double>()) all.push_back(value);
    return all;
  }
};

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::isnan(a[i]) ? INFINITY : std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

TEST_CASE("all sizes agree with the CPU in f64") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  manual_seed(1);
  for (const std::int64_t H : {1, 2, 7, 64, 133, 300, 512, 513, 1024, 1100})
    for (const std::int64_t N : {1, 3, 33})
      for (const std::int64_t T : {1, 2, 9}) {
        CAPTURE(H);
        CAPTURE(N);
        CAPTURE(T);
        const Layer layer(T, N, H);
        Layer exact = layer;
        for (Tensor* tensor : {&exact.gates, &exact.weight, &exact.hidden, &exact.cells}) *tensor = tensor->to(DType::f64);
        CHECK(largest_difference(layer.on(Device::cuda()).run().results(), exact.run().results()) < 4e-6);
      }
}

TEST_CASE("f64 takes the way of single steps") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  CHECK_FALSE(cuda::lstm_fits(DType::f64, 64, 0));
  CHECK_FALSE(cuda::lstm_fits(DType::f32, 1 << 20, 0));
  const Layer layer(5, 2, 64, DType::f64);
  CHECK(largest_difference(layer.on(Device::cuda()).run().results(), layer.on(Device::cpu()).run().results()) < 1e-13);
}

TEST_CASE("the bits do not depend on the steps of a call, on the batch or on the run") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  manual_seed(2);
  constexpr std::int64_t kSteps = 60, kBatch = 5, kUnits = 200;
  const Layer layer = Layer(kSteps, kBatch, kUnits).on(Device::cuda());
  const std::vector<double> whole = layer.on(Device::cuda()).run().results();
  for (int run = 0; run < 20; ++run) CHECK(layer.on(Device::cuda()).run().results() == whole);

  const Layer pieces = layer.on(Device::cuda());
  std::int64_t begin = 0;
  for (const std::int64_t steps : {1, 2, 1, 30, 26}) {
    backend_of(Device::cuda())
        .lstm(pieces.gates.narrow(0, begin, steps), pieces.weight, pieces.hidden.narrow(0, begin, steps + 1),
              pieces.cells.narrow(0, begin, steps + 1));
    begin += steps;
  }
  REQUIRE(begin == kSteps);
  CHECK(pieces.results() == whole);

  const Layer all = layer.on(Device::cuda()).run();
  for (std::int64_t n = 0; n < kBatch; ++n) {
    Layer one = layer;
    for (Tensor* tensor : {&one.gates, &one.hidden, &one.cells}) *tensor = tensor->narrow(1, n, 1).contiguous().clone();
    CHECK(one.run().hidden.to_vector<float>() == all.hidden.narrow(1, n, 1).contiguous().to_vector<float>());
  }
}

TEST_CASE("a graph of it can be replayed, and NaN stays in its sample") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  manual_seed(3);
  const Layer layer = Layer(40, 3, 512).on(Device::cuda());
  const std::vector<double> expected = layer.on(Device::cuda()).run().results();
  Layer recorded = layer.on(Device::cuda());
  const Tensor gates = recorded.gates.clone();
  cuda::Graph graph = cuda::capture([&] {
    recorded.gates.copy_(gates);
    (void)recorded.run();
  });
  for (int replay = 0; replay < 3; ++replay) {
    graph.replay();
    CHECK(recorded.results() == expected);
  }
  gates.narrow(1, 1, 1).fill_(NAN);
  graph.replay();
  const std::vector<float> bad = recorded.hidden.narrow(0, 1, 40).narrow(1, 1, 1).contiguous().to_vector<float>();
  CHECK(std::all_of(bad.begin(), bad.end(), [](float value) { return std::isnan(value); }));
  CHECK(recorded.hidden.narrow(1, 0, 1).contiguous().to_vector<float>() ==
        layer.on(Device::cuda()).run().hidden.narrow(1, 0, 1).contiguous().to_vector<float>());
}
