// In a recorded graph, gradients of parameters are computed next to the chain of gradients (autograd/aside.hpp), and parts of a
// forward pass next to each other.

#include "autograd/aside.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "autograd/autocast.hpp"
#include "cuda/cuda.hpp"
#include "device/backend.hpp"
#include "layers/weight_norm.hpp"
#include "networks/gan/discriminators.hpp"
#include "networks/gan/training.hpp"
#include "polyphase.hpp"
#include "support/reduced.hpp"
#include "support/skip.hpp"

using namespace polyphase;

namespace {

const Device kGpu = Device::cuda(0);

/// Tensors that get gradients, and a loss of them.
struct Example {
  std::vector<Tensor> leaves;
  std::function<Tensor()> loss;
};

Tensor leaf(const Shape& shape, double size = 1) {
  Tensor x = mul(Tensor::randn(shape), size).to(kGpu);
  return x.set_requires_grad(true);
}

/// Residual blocks one after another, with weight norm.
Example chain(std::optional<DType> autocast) {
  auto net = std::make_shared<Sequential>();
  for (int i = 0; i < 6; ++i)
    net->push_back(Residual(LeakyReLU(0.1), Conv1d({.in_channels = 64, .out_channels = 64, .kernel_size = 7, .padding = 3}),
                            LeakyReLU(0.1), Conv1d({.in_channels = 64, .out_channels = 64, .kernel_size = 3, .padding = 1})));
  weight_norm(*net);
  net->to(kGpu);
  const Tensor x = Tensor::randn({4, 64, 2048}).to(kGpu);
  return {net->parameters(), [net, x, autocast] {
            std::optional<AutocastGuard> guard;
            if (autocast) guard.emplace(*autocast);
            const Tensor y = (*net)(x);
            guard.reset();
            return mean(square(y.to(DType::f32)));
          }};
}

/// Two networks that hold their weights, which are packed next to the forward pass. The first one is used three times.
Example held_chain(std::optional<DType> autocast) {
  std::vector<std::shared_ptr<Sequential>> nets;
  std::vector<Tensor> leaves;
  for (const std::int64_t channels : {64, 24}) {
    const auto net = nets.emplace_back(std::make_shared<Sequential>());
    for (int i = 0; i < 4; ++i)
      net->push_back(Residual(LeakyReLU(0.1),
                              Conv1d({.in_channels = channels, .out_channels = channels, .kernel_size = 7, .padding = 3})));
    net->push_back(
        ConvTranspose1d({.in_channels = channels, .out_channels = channels, .kernel_size = 4, .stride = 2, .padding = 1}));
    weight_norm(*net);
    net->to(kGpu);
    for (const Tensor& parameter : net->parameters()) leaves.push_back(parameter);
  }
  const Tensor x = Tensor::randn({2, 64, 1024}).to(kGpu);
  return {leaves, [nets, x, autocast] {
            std::optional<AutocastGuard> guard;
            if (autocast) guard.emplace(*autocast);
            Tensor y = x;
            {
              const HeldWeights held(*nets[0]);
              for (int i = 0; i < 3; ++i) y = (*nets[0])(y);
            }
            const HeldWeights held(*nets[1]);
            y = (*nets[1])(y.narrow(1, 0, 24));
            guard.reset();
            return mean(square(y.to(DType::f32)));
          }};
}

/// Branches that run at the same time, two of which share a convolution, of a leaf. The first reaches it last.
Example branches() {
  const auto shared =
      std::make_shared<Conv1d>(Conv1d::Options{.in_channels = 32, .out_channels = 32, .kernel_size = 7, .padding = 3});
  auto net = std::make_shared<MeanOfBranches>();
  for (int i = 0; i < 3; ++i) {
    Sequential branch;
    branch.push_back(LeakyReLU(0.1));
    for (int k = 0; i == 0 && k < 6; ++k)
      branch.push_back(Conv1d({.in_channels = 32, .out_channels = 32, .kernel_size = 7, .padding = 3}));
    i == 1 ? branch.push_back(Conv1d({.in_channels = 32, .out_channels = 32, .kernel_size = 3, .padding = 1}))
           : branch.push_back(std::shared_ptr<Module>(shared));
    net->push_back(std::move(branch));
  }
  net->to(kGpu);
  const Tensor x = leaf({2, 32, 3000});
  std::vector<Tensor> leaves = net->parameters();
  leaves.push_back(x);
  return {leaves, [net, x] {
            const AutocastGuard guard(DType::bf16);
            return mean(square((*net)(x).to(DType::f32)));
          }};
}

/// Discriminators of the audio that a convolution makes, with losses of their feature maps and of scores. The audio is used by
/// an operation of its own, too.
Example discriminators() {
  const std::vector<std::shared_ptr<Discriminator>> both{
      std::make_shared<MultiPeriodDiscriminator>(MultiPeriodDiscriminator::Options{.channel_mult = 0.0625}),
      std::make_shared<MultiScaleDiscriminator>(MultiScaleDiscriminator::Options{.channel_mult = 0.125})};
  std::vector<Tensor> leaves;
  for (const auto& one : both) {
    one->to(kGpu);
    one->eval();
    for (const Tensor& parameter : one->parameters()) leaves.push_back(parameter);
  }
  const Tensor source = leaf({2, 8, 4096}), w = leaf({1, 8, 7}, 0.1), real = Tensor::randn({2, 1, 4096}).to(kGpu);
  leaves.push_back(w);
  leaves.push_back(source);
  return {leaves, [=] {
            const Tensor fake = tanh(conv1d(source, w, {}, {.padding = 3})), other = square(fake);
            std::vector<Tensor> terms{mean(abs(other))};
            for (const auto& one : both) {
              const FeaturesOfTwo maps = one->features_of_two(real, fake);
              terms.push_back(add(feature_matching_loss(maps.first, maps.second), lsgan_generator_loss(maps.second)));
            }
            return add(terms[0], add(terms[1], terms[2]));
          }};
}

/// A weight that three convolutions and a penalty share, and one that is computed from activations.
Example shared_weights() {
  const Tensor w = leaf({32, 32, 5}, 0.1), bias = leaf({32}), source = leaf({2, 32, 3000}), seed = leaf({32, 32}, 0.1);
  return {{w, bias, source, seed}, [=] {
            Tensor y = source;
            for (int i = 0; i < 3; ++i) y = tanh(conv1d(y, w, bias, {.padding = 2}));
            const Tensor made = matmul(seed, mean(y, {0, 2}, true).reshape({32, 1})).reshape({32, 1, 1});
            y = conv1d(y, mul(w, made), {}, {.padding = 2});
            return add(mean(square(y)), mul(sum(square(w)), 1e-3));
          }};
}

std::vector<Tensor> gradients(const Example& example) {
  std::vector<Tensor> all;
  for (const Tensor& tensor : example.leaves) all.push_back(tensor.grad());
  return all;
}

std::vector<std::vector<float>> numbers(const std::vector<Tensor>& tensors) {
  std::vector<std::vector<float>> all;
  for (const Tensor& tensor : tensors) all.push_back(tensor.to_vector<float>());
  return all;
}

/// Checks that recorded gradients are the eager ones in every replay, each of other numbers.
void check_recorded(const Example& example) {
  const auto pass = [&] {
    for (const Tensor& tensor : example.leaves) tensor.set_grad({});
    example.loss().backward();
  };
  pass();
  for (const auto& gradient : numbers(gradients(example)))
    CHECK(std::any_of(gradient.begin(), gradient.end(), [](float g) { return g != 0; }));
  cuda::Graph graph = cuda::capture(pass);
  const std::vector<Tensor> recorded = gradients(example);
  for (int i = 0; i < (testing::is_reduced() ? 3 : 20); ++i) {
    for (Tensor tensor : example.leaves) {
      const NoGradGuard no_grad;
      tensor *= i % 2 == 0 ? 0.75 : 1.25;
    }
    pass();
    const auto eager = numbers(gradients(example));
    graph.replay();
    CHECK(numbers(recorded) == eager);
  }
}

}  // namespace

TEST_CASE("aside: where the device offers no second stream, work runs where it is issued") {
  autograd::Aside aside(Device::cpu());
  CHECK(!aside.exists());
  int runs = 0;
  aside.begin({}, [&] { ++runs; });
  aside.run([&] { ++runs; });
  aside.join();
  CHECK(runs == 2);
}

TEST_CASE("aside: recorded gradients are the eager ones, bit for bit") {
  if (cuda::device_count() == 0) SKIP_TEST("no GPU");
  manual_seed(5);
  check_recorded(chain(std::nullopt));
  check_recorded(chain(DType::bf16));
  for (const std::optional<DType> autocast : {std::optional<DType>(), std::optional(DType::bf16)})
    check_recorded(held_chain(autocast));
  check_recorded(shared_weights());
  check_recorded(branches());
  check_recorded(discriminators());
}

TEST_CASE("aside: tensors that wait for it stay within their bytes") {
  if (cuda::device_count() == 0) SKIP_TEST("no GPU");
  // 64 layers of 16 MiB: without a limit all of their gradients would wait for the end.
  std::vector<Tensor> weights;
  for (int i = 0; i < 64; ++i) weights.push_back(leaf({64, 64, 3}, 0.1));
  const Tensor x = Tensor::randn({1, 64, 65536}).to(kGpu);
  const auto pass = [&] {
    for (const Tensor& w : weights) w.set_grad({});
    Tensor y = x;
    for (const Tensor& w : weights) y = conv1d(y, w, {}, {.padding = 1});
    mean(square(y)).backward();
  };
  Allocator& allocator = backend_of(kGpu).allocator();
  pass();
  allocator.trim();
  allocator.reset_peak();
  pass();
  const std::size_t eager = allocator.stats().peak_bytes;
  allocator.trim();
  allocator.reset_peak();
  const cuda::Graph graph = cuda::capture(pass);
  CHECK(allocator.stats().peak_bytes < eager + (std::size_t{256} << 20));
}
