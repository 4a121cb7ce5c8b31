#include "cuda/runtime/fork.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <vector>

#include "autograd/no_grad.hpp"
#include "cuda/cuda.hpp"
#include "device/backend.hpp"
#include "layers/activations.hpp"
#include "layers/containers/branches.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "ops/elementwise.hpp"
#include "support/helpers.hpp"
#include "support/reduced.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr std::size_t kParts = 3;

/// (x + 1) + 2*(x + 1) + 3*(x + 1) in parts, each of which computes and frees tensors; the second one takes longest. Wrong if a
/// part begins too early, or if the sum does, or if memory is used again too early.
Tensor sum_of_parts(const Tensor& x) {
  const auto fork = backend_of(x.device()).make_fork(kParts);
  REQUIRE(fork);
  std::vector<Tensor> results(kParts);
  for (std::size_t i = 0; i < kParts; ++i)
    fork->run(i, [&] {
      Tensor one = add(x, Tensor::full({}, 1, {x.dtype(), x.device()}));
      for (int k = 0; i == 1 && k < 30; ++k) one = add(one, Tensor::zeros(one.shape(), {x.dtype(), x.device()}));
      results[i] = mul(one, static_cast<double>(i + 1));
    });
  fork->join();
  Tensor sum = results[0];
  for (std::size_t i = 1; i < kParts; ++i) sum = add(sum, results[i]);
  for (std::size_t i = 0; i < kParts; ++i) fork->run(i, [&] { results[i] = {}; });
  return sum;
}

Tensor input(double value) { return Tensor::full({1 << 18}, value, {DType::f32, Device::cuda(0)}); }

/// The smallest and the largest value of y.
std::vector<float> range_of(const Tensor& y) {
  const std::vector<float> values = y.cpu().to_vector<float>();
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {*least, *most};
}

}  // namespace

TEST_CASE("fork: none on the CPU, outside of a capture, or for one part") {
  CHECK(backend_of(Device::cpu()).make_fork(2) == nullptr);
  if (cuda::device_count() == 0) SKIP_TEST("no GPU");
  Backend& backend = backend_of(Device::cuda(0));
  CHECK(backend.make_fork(2) == nullptr);
  const cuda::Graph graph = cuda::capture(
      [&] {
        CHECK(backend.make_fork(1) == nullptr);
        const auto fork = backend.make_fork(2);
        REQUIRE(fork);
        for (std::size_t i = 0; i < 2; ++i) {
          CHECK_FALSE(backend.is_in_part());
          fork->run(i, [&] {
            CHECK(backend.is_in_part());
            CHECK(backend.make_fork(1) == nullptr);
          });
        }
        CHECK(error_of<Error>([&] { return fork->run(2, [] {}), 0; }) == "fork: expected a part up to 1, got 2");
      },
      0);
}

TEST_CASE("fork: parts begin after what was issued before, and what follows the join begins after all parts") {
  if (cuda::device_count() == 0) SKIP_TEST("no GPU");
  const NoGradGuard no_grad;
  Tensor x = input(1), y;
  constexpr int kForks = 4;
  // x*6 + 6, again and again: every fork begins with the sum of the one before.
  cuda::Graph graph = cuda::capture(
      [&] {
        y = x;
        for (int i = 0; i < kForks; ++i) y = sum_of_parts(y);
      },
      0);
  const int runs = is_reduced() ? 5 : 200;
  for (int run = 0; run < runs; ++run) {
    x.copy_(input(run % 7));
    graph.replay();
    double expected = run % 7;
    for (int i = 0; i < kForks; ++i) expected = 6 * (expected + 1);
    REQUIRE(range_of(y) == std::vector<float>(2, static_cast<float>(expected)));
  }
}

TEST_CASE("fork: forks inside the parts of a fork") {
  if (cuda::device_count() == 0) SKIP_TEST("no GPU");
  const NoGradGuard no_grad;
  Tensor x = input(1), y;
  constexpr int kForks = 3;
  // x -> 6*(x + 1) + 2*6*(6*(2*x + 1) + 1), again and again.
  cuda::Graph graph = cuda::capture(
      [&] {
        y = x;
        for (int i = 0; i < kForks; ++i) {
          const auto fork = backend_of(x.device()).make_fork(2);
          REQUIRE(fork);
          Tensor first, second;
          fork->run(0, [&] { first = sum_of_parts(y); });
          fork->run(1, [&] { second = mul(sum_of_parts(sum_of_parts(mul(y, 2.0))), 2.0); });
          fork->join();
          y = mul(add(first, second), 1.0 / 64);
          fork->run(0, [&] { first = {}; });
          fork->run(1, [&] { second = {}; });
        }
      },
      0);
  for (int run = 0; run < (is_reduced() ? 5 : 200); ++run) {
    x.copy_(input(run % 7));
    graph.replay();
    float expected = static_cast<float>(run % 7);
    for (int i = 0; i < kForks; ++i) expected = (6 * (expected + 1) + 2 * (6 * (6 * (2 * expected + 1) + 1))) / 64;
    const std::vector<float> got = range_of(y);
    REQUIRE(got.front() == got.back());
    REQUIRE(std::abs(got.front() - expected) <= 1e-5F * expected);
  }
}

TEST_CASE("fork: a part follows the current stream, which waits for a moment of it") {
  if (cuda::device_count() == 0) SKIP_TEST("no GPU");
  const NoGradGuard no_grad;
  Tensor x = input(1);
  std::vector<Tensor> doubled(4), sums(4);
  cuda::Graph graph = cuda::capture(
      [&] {
        const auto fork = backend_of(x.device()).make_fork(2);
        REQUIRE(fork);
        Tensor y = x;
        std::vector<std::size_t> moments;
        for (Tensor& twice : doubled) {
          for (int k = 0; k < 20; ++k) y = add(y, Tensor::zeros(y.shape(), {y.dtype(), y.device()}));
          y = add(y, Tensor::full({}, 1, {y.dtype(), y.device()}));
          fork->follow(1);
          fork->run(1, [&] {
            twice = mul(y, 2);
            for (int k = 0; k < 20; ++k) twice = add(twice, Tensor::zeros(y.shape(), {y.dtype(), y.device()}));
          });
          moments.push_back(fork->moment(1));
        }
        for (std::size_t i = 0; i < sums.size(); ++i) {
          fork->wait_for(moments[i]);
          sums[i] = add(doubled[i], Tensor::full({}, 1, {y.dtype(), y.device()}));
        }
        fork->join();
        fork->run(1, [&] { doubled.clear(); });
      },
      0);
  for (int run = 0; run < 50; ++run) {
    x.copy_(input(run));
    graph.replay();
    for (std::size_t i = 0; i < sums.size(); ++i)
      REQUIRE(range_of(sums[i]) == std::vector<float>(2, static_cast<float>(2 * (run + static_cast<int>(i) + 1) + 1)));
  }
}

TEST_CASE("fork: a graph with forks keeps no more memory when it is made again, and an error passes through") {
  if (cuda::device_count() == 0) SKIP_TEST("no GPU");
  const NoGradGuard no_grad;
  const Tensor x = input(1);
  const auto record = [&] { (void)cuda::capture([&] { (void)sum_of_parts(sum_of_parts(x)); }, 0); };
  for (int i = 0; i < 3; ++i) record();
  cuda::synchronize();
  const MemoryStats before = cuda::memory_stats();
  for (int i = 0; i < 10; ++i) record();
  cuda::synchronize();
  CHECK(cuda::memory_stats().live_bytes == before.live_bytes);
  CHECK(cuda::memory_stats().cached_bytes == before.cached_bytes);
  CHECK_THROWS_AS((void)cuda::capture(
                      [&] {
                        const auto fork = backend_of(x.device()).make_fork(2);
                        fork->run(1, [&] {
                          const Tensor y = add(x, x);
                          throw std::runtime_error("part");
                        });
                      },
                      0),
                  std::runtime_error);
  record();
}

TEST_CASE("fork: concurrent branches have the bits of a run without a graph") {
  if (cuda::device_count() == 0) SKIP_TEST("no GPU");
  const NoGradGuard no_grad;
  std::vector<std::shared_ptr<Module>> modules;
  for (const std::int64_t kernel_size : {3, 7, 11}) {
    const Conv1d::Options options{
        .in_channels = 32, .out_channels = 32, .kernel_size = kernel_size, .padding = kernel_size / 2};
    modules.push_back(std::make_shared<Conv1d>(options));
    modules.back()->to(Device::cuda(0));
  }
  const Tensor x = random_f64({2, 32, 4000}).to(DType::f32).to(Device::cuda(0));
  const auto run = [&] { return layers::forward_branches("branches", modules, x, layers::BranchSum::mean); };
  const std::vector<float> expected = run().cpu().to_vector<float>();
  Tensor y;
  cuda::Graph graph = cuda::capture([&] { y = run(); }, 0);
  for (int i = 0; i < 50; ++i) {
    graph.replay();
    CHECK(y.cpu().to_vector<float>() == expected);
  }
}

TEST_CASE(
    "fork: concurrent branches of units have the bits of a run without a graph, where each is added in the next one's kernel") {
  if (cuda::device_count() == 0) SKIP_TEST("no GPU");
  const NoGradGuard no_grad;
  const DeviceGuard on_gpu(Device::cuda(0));
  manual_seed(1);
  const auto branch = [](std::int64_t kernel) {
    const auto conv = [&](std::int64_t dilation) {
      return Conv1d({.in_channels = 32,
                     .out_channels = 32,
                     .kernel_size = kernel,
                     .padding = kernel / 2 * dilation,
                     .dilation = dilation});
    };
    const auto unit = [&](std::int64_t d) { return Residual(LeakyReLU(0.1), conv(d), LeakyReLU(0.1), conv(1)); };
    return std::make_shared<Sequential>(unit(1), unit(3), unit(5));
  };
  const std::vector<std::shared_ptr<Module>> modules{branch(3), branch(7), branch(11)};
  for (const std::int64_t length : {4000, 40000}) {
    // With an odd length no kernel computes a unit.
    for (const std::int64_t more : {0, 1})
      for (const auto& [kind, output] : {std::pair{layers::BranchSum::mean, ConvOutputOptions{Activation::leaky_relu, 0.1}},
                                         std::pair{layers::BranchSum::plain, ConvOutputOptions{}}}) {
        CAPTURE(length);
        CAPTURE(more);
        const Tensor x = Tensor::randn({4, 32, length + more});
        const auto run = [&] { return layers::forward_branches("branches", modules, x, kind, output); };
        const std::vector<float> expected = run().cpu().to_vector<float>();
        Tensor y;
        cuda::Graph graph = cuda::capture([&] { y = run(); }, 0);
        for (int i = 0; i < (is_reduced() ? 2 : 20); ++i) {
          graph.replay();
          CHECK(y.cpu().to_vector<float>() == expected);
        }
      }
  }
}
