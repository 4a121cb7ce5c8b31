#include "cuda/elementwise/index_check.hpp"

#include <doctest/doctest.h>

#include "cuda/cuda.hpp"
#include "cuda/runtime/runtime.hpp"
#include "ops/length.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

Tensor on_gpu(const std::vector<std::int64_t>& values) {
  return Tensor::from_vector(values, {static_cast<std::int64_t>(values.size())}, Device::cuda());
}

const std::string kText = "index_select: expected positions in [0, 5), got 7 (on cuda:0, in an earlier call)";

}  // namespace

TEST_CASE("where nothing was checked there is nothing to report") { cuda::report_bad_index(0); }

TEST_CASE("recorded in a graph, before any other check: every replay checks") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor x = Tensor::arange(1, 6, 1, {.device = Device::cuda()});
  Tensor index = on_gpu({4, 2});
  Tensor y;
  cuda::Graph graph = cuda::capture([&] { y = index_select(x, index); });
  graph.replay();
  CHECK(y.to_vector<float>() == std::vector<float>{5, 3});
  index.copy_(on_gpu({7, 2}));
  graph.replay();
  CHECK(error_of<ShapeError>([&] { return y.to_vector<float>(); }) == kText);
  index.copy_(on_gpu({0, 1}));
  graph.replay();
  CHECK(y.to_vector<float>() == std::vector<float>{1, 2});
}

TEST_CASE("good positions: no error, and no wait") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor x = Tensor::arange(5, {.device = Device::cuda()}), index = on_gpu({4, 0, 2});
  const std::uint64_t before = cuda::host_waits();
  const Tensor y = index_select(x, index);
  CHECK(cuda::host_waits() == before);
  CHECK(y.to_vector<float>() == std::vector<float>{4, 0, 2});
}

TEST_CASE("a bad position is reported once, by the next call that waits; it reads 0") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor x = Tensor::arange(1, 6, 1, {.device = Device::cuda()});
  const Tensor y = index_select(x, on_gpu({4, 7, 2}));
  CHECK(error_of<ShapeError>([&] { return y.to_vector<float>(); }) == kText);
  CHECK(y.to_vector<float>() == std::vector<float>{5, 0, 3});
  (void)index_select(x, on_gpu({7}));
  CHECK(error_of<ShapeError>([] { return cuda::synchronize(), 0; }) == kText);
  (void)index_select(x, on_gpu({7}));
  CHECK(error_of<ShapeError>([] { return gpu().synchronize(), 0; }) == kText);
  gpu().synchronize();
}

TEST_CASE("the gradient of a bad position is written nowhere") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  Tensor x = Tensor::ones({2, 5}, {.device = Device::cuda()});
  x.set_requires_grad(true);
  const Tensor y = index_select(x, on_gpu({-1, 3, std::int64_t{1} << 40, 3}));
  y.backward(Tensor::ones_like(y));
  CHECK_THROWS_AS(gpu().synchronize(), ShapeError);
  CHECK(x.grad().shape() == x.shape());
}

TEST_CASE("among many positions one bad one is found") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  std::vector<std::int64_t> positions(1000000, 1);
  positions[777777] = 7;
  (void)index_select(Tensor::ones({5}, {.device = Device::cuda()}), on_gpu(positions));
  CHECK(error_of<ShapeError>([] { return gpu().synchronize(), 0; }) == kText);
}
