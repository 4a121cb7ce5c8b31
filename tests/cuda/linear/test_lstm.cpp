#include "cuda/linear/lstm.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "autograd/no_grad.hpp"
#include "cuda/cuda.hpp"
#include "support/device.hpp"
#include "support/reduced.hpp"
#include "support/skip.hpp"
#include "tensor/error.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Stack = std::vector<LstmSteps>;

/// A layer on the CPU. The gates of a layer after the first hold NaN on input.
LstmSteps layer_of(std::int64_t T, std::int64_t N, std::int64_t H, std::int64_t below = 0, DType dtype = DType::f32) {
  const double bound = 1 / std::sqrt(static_cast<double>(H));
  const TensorOptions options{.dtype = dtype};
  const auto uniform = [&](const Shape& shape) { return Tensor::uniform(shape, -bound, bound).to(dtype); };
  LstmSteps layer{.gates = Tensor::randn({T, N, 4 * H}).to(dtype),
                  .weight = uniform({4 * H, H}),
                  .input_bias = uniform({4 * H}),
                  .hidden_bias = uniform({4 * H}),
                  .h = Tensor::uniform({N, H}, -1, 1).to(dtype),
                  .c = Tensor::randn({N, H}).to(dtype),
                  .hidden = Tensor::zeros({T, N, H}, options),
                  .cells = Tensor::zeros({T, N, H}, options)};
  if (below > 0) layer.input_weight = uniform({4 * H, below}), layer.gates.fill_(NAN);
  return layer;
}

Stack pair_of(std::int64_t T, std::int64_t N, std::int64_t H) { return {layer_of(T, N, H), layer_of(T, N, H, H)}; }

Stack changed(const Stack& stack, const std::function<Tensor(const Tensor&)>& change) {
  Stack result = stack;
  for (LstmSteps& layer : result)
    for (Tensor* tensor : {&layer.gates, &layer.weight, &layer.input_weight, &layer.input_bias, &layer.hidden_bias, &layer.h,
                           &layer.c, &layer.hidden, &layer.cells})
      if (tensor->defined()) *tensor = change(*tensor);
  return result;
}
Stack on(Device device, const Stack& stack) {
  return changed(stack, [&](const Tensor& tensor) { return tensor.clone().to(device); });
}
Stack in(DType dtype, const Stack& stack) {
  return changed(stack, [&](const Tensor& tensor) { return tensor.clone().to(dtype); });
}
const Stack& run(const Stack& stack) {
  backend_of(stack[0].gates.device()).lstm(stack);
  return stack;
}
std::vector<double> results(const Stack& stack) {
  std::vector<double> all;
  for (const LstmSteps& layer : stack)
    for (const Tensor& tensor : {layer.gates, layer.hidden, layer.cells})
      for (const double value : tensor.cpu().to(DType::f64).to_vector<double>()) all.push_back(value);
  return all;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    largest = std::max(largest, std::isnan(difference) ? INFINITY : difference);
  }
  return largest;
}

/// The steps from `begin` on, and the state that they leave for the next ones.
Stack piece_of(const Stack& stack, const Stack& states, std::int64_t begin, std::int64_t steps) {
  Stack piece = stack;
  for (std::size_t k = 0; k < stack.size(); ++k) {
    for (Tensor* tensor : {&piece[k].gates, &piece[k].hidden, &piece[k].cells}) *tensor = tensor->narrow(0, begin, steps);
    if (begin == 0) continue;
    piece[k].h = states[k].hidden.select(0, states[k].hidden.size(0) - 1);
    piece[k].c = states[k].cells.select(0, states[k].cells.size(0) - 1);
  }
  return piece;
}

Stack sample_of(const Stack& stack, std::int64_t n) {
  Stack one = on(stack[0].gates.device(), stack);
  for (LstmSteps& layer : one) {
    for (Tensor* tensor : {&layer.gates, &layer.hidden, &layer.cells}) *tensor = tensor->narrow(1, n, 1).contiguous();
    for (Tensor* tensor : {&layer.h, &layer.c}) *tensor = tensor->narrow(0, n, 1).contiguous();
  }
  return one;
}

}  // namespace

TEST_CASE("all sizes agree with the CPU in f64") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  manual_seed(1);
  struct Size {
    std::int64_t H, N, T;
    std::size_t layers;
  };
  std::vector<Size> sizes;
  for (const std::int64_t H : {1, 2, 7, 64, 133, 257, 300, 511, 512, 513, 1024, 1100})
    for (const std::int64_t N : {1, 3, 8, 9, 33})
      for (const std::int64_t T : {1, 2, 9})
        for (const std::size_t layers : {1, 2}) sizes.push_back({H, N, T, layers});
  for (const Size& size : thinned(sizes)) {
    CAPTURE(size.H);
    CAPTURE(size.N);
    CAPTURE(size.T);
    CAPTURE(size.layers);
    Stack stack = pair_of(size.T, size.N, size.H);
    stack.resize(size.layers);
    CHECK(largest_difference(results(run(on(Device::cuda(), stack))), results(run(in(DType::f64, stack)))) < 6e-6);
  }
}

TEST_CASE("weights of 16 bits, layers of two sizes, no state and no biases") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  manual_seed(4);
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const std::int64_t H : {5, 200, 512, 700}) {
      CAPTURE(H);
      Stack stack{layer_of(6, 2, H), layer_of(6, 2, H, H), layer_of(6, 2, 33, H)};
      for (LstmSteps& layer : stack)
        for (Tensor* tensor : {&layer.weight, &layer.input_weight, &layer.input_bias, &layer.hidden_bias})
          if (tensor->defined()) *tensor = tensor->to(dtype);
      stack[1].input_bias = stack[2].hidden_bias = {};
      stack[0].h = stack[1].c = stack[2].h = stack[2].c = {};
      const std::vector<double> exact = results(run(in(DType::f64, stack)));
      CHECK(largest_difference(results(run(on(Device::cuda(), stack))), exact) < 6e-6);
      CHECK(largest_difference(results(run(on(Device::cpu(), stack))), exact) < 6e-6);
    }
}

TEST_CASE("f64 takes the way of single steps") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Stack stack = in(DType::f64, pair_of(5, 2, 64));
  CHECK_FALSE(cuda::lstm_fits(stack[0], 0));
  CHECK_FALSE(cuda::lstm_fits(layer_of(1, 1, 2000), 0));
  CHECK_FALSE(cuda::lstm_pair_fits(layer_of(1, 1, 600), layer_of(1, 1, 600, 600), 0));
  CHECK_FALSE(cuda::lstm_pair_fits(layer_of(1, 1, 60), layer_of(1, 1, 61, 60), 0));
  CHECK(largest_difference(results(run(on(Device::cuda(), stack))), results(run(on(Device::cpu(), stack)))) < 1e-13);
}

TEST_CASE("the bits do not depend on the steps of a call, on the batch or on the run") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  manual_seed(2);
  constexpr std::int64_t kSteps = 60, kBatch = 19, kUnits = 200;
  for (const std::size_t layers : {1, 2}) {
    CAPTURE(layers);
    Stack stack = on(Device::cuda(), pair_of(kSteps, kBatch, kUnits));
    stack.resize(layers);
    const std::vector<double> whole = results(run(on(Device::cuda(), stack)));
    for (int repeat = 0; repeat < (is_reduced() ? 1 : 20); ++repeat) CHECK(results(run(on(Device::cuda(), stack))) == whole);

    const Stack pieces = on(Device::cuda(), stack);
    Stack states;
    std::int64_t begin = 0;
    for (const std::int64_t steps : {1, 2, 1, 30, 26}) {
      states = run(piece_of(pieces, states, begin, steps));
      begin += steps;
    }
    REQUIRE(begin == kSteps);
    CHECK(results(pieces) == whole);

    const Stack all = run(on(Device::cuda(), stack));
    for (std::int64_t n = 0; n < kBatch; n += is_reduced() ? 6 : 1)
      CHECK(run(sample_of(stack, n)).back().hidden.to_vector<float>() ==
            all.back().hidden.narrow(1, n, 1).contiguous().to_vector<float>());
  }
}

TEST_CASE("a graph of it can be replayed, and NaN stays in its sample") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  manual_seed(3);
  const Stack stack = on(Device::cuda(), pair_of(40, 3, 512));
  const std::vector<double> expected = results(run(on(Device::cuda(), stack)));
  Stack recorded = on(Device::cuda(), stack);
  Tensor gates = recorded[0].gates.clone();
  cuda::Graph graph = cuda::capture([&] {
    recorded[0].gates.copy_(gates);
    run(recorded);
  });
  for (int replay = 0; replay < 3; ++replay) {
    graph.replay();
    CHECK(results(recorded) == expected);
  }
  gates.narrow(1, 1, 1).fill_(NAN);
  graph.replay();
  const std::vector<float> bad = recorded[1].hidden.narrow(1, 1, 1).contiguous().to_vector<float>();
  CHECK(std::all_of(bad.begin(), bad.end(), [](float value) { return std::isnan(value); }));
  CHECK(recorded[1].hidden.narrow(1, 0, 1).contiguous().to_vector<float>() ==
        run(on(Device::cuda(), stack))[1].hidden.narrow(1, 0, 1).contiguous().to_vector<float>());
}
