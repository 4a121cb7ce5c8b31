#include "cuda/backend.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "cuda/cuda.hpp"
#include "cuda/delay.hpp"
#include "cuda/runtime/runtime.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/small_training.hpp"
#include "tensor/event.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("a device that is not there is refused, with the reason") {
  const int count = cuda_device_count();
  const std::string text = error_of<DeviceError>([&] { return &cuda_backend(count); });
  CHECK(text.find("cuda: expected a device below " + std::to_string(count) + ", got cuda:" + std::to_string(count)) == 0);
  CHECK(text.find(cuda::unavailable_reason()) != std::string::npos);
}

TEST_CASE("one backend a device, with an allocator of its own") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  CHECK(&gpu() == &cuda_backend(0));
  const std::uint64_t before = gpu().allocator().stats().allocations;
  const Tensor x = Tensor::ones({10}, {.device = Device::cuda()});
  CHECK(gpu().allocator().stats().allocations == before + 1);
  gpu().synchronize();
  CHECK(x.to_vector<float>() == std::vector<float>(10, 1));
}

TEST_CASE("elements are copied to the GPU and back in every dtype") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : kAllTypes) {
    const Tensor x = counting({3, 7}, dtype), there = x.to(Device::cuda());
    CHECK(there.device() == Device::cuda(0));
    CHECK(different(x, there) == 0);
    CHECK(worst_difference(x.transpose(0, 1), there.transpose(0, 1)) == 0);
    CHECK(there.select(0, 1).select(0, 2).item() == x.select(0, 1).select(0, 2).item());
  }
}

TEST_CASE("values derived of a parameter are kept until it is written, and replays of a graph see what was written") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const NoGradGuard no_grad;
  const std::vector<MapStep> steps{{MapOp::exp}, {MapOp::affine, {2, 1}}};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    Tensor parameter = counting({5}, dtype).to(Device::cuda());
    const auto expected = [&] { return host().derived(parameter.to(Device::cpu()), steps); };
    const Tensor first = gpu().derived(parameter, steps), second = gpu().derived(parameter, steps);
    CHECK(first.raw() == second.raw());
    CHECK(worst_difference(expected(), first) <= 0.01);
    CHECK(gpu().derived(parameter, std::array{steps[0]}).raw() != first.raw());
    parameter.fill_(-1);
    CHECK(worst_difference(expected(), gpu().derived(parameter, steps)) <= 0.01);
    const Tensor out = Tensor::empty_like(parameter);
    cuda::Graph graph = cuda::capture([&] { gpu().copy(out, gpu().derived(parameter, steps)); });
    for (const double value : {0.5, 0.25}) {
      parameter.fill_(value);
      graph.replay();
      CHECK(worst_difference(expected(), out) <= 0.01);
    }
  }
}

TEST_CASE("convolutions of both layers reach the GPU") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const ConvProblem p{
      .N = 2, .C_in = 3, .C_out = 4, .L_in = 9, .L_out = 18, .K = 4, .S = 2, .P_l = 1, .P_r = 1, .dtype = DType::f64};
  const Tensor x = counting({2, 3, 9}, DType::f64), w = counting({3, 4, 4}, DType::f64), bias = counting({4}, DType::f64);
  const Tensor y = poisoned({2, 4, 18}, DType::f64), there = mirrored(y);
  host().conv_forward(p, x, w, bias, y, Algorithm::automatic, Precision::fp32);
  gpu().conv_forward(p, mirrored(x), mirrored(w), mirrored(bias), there, Algorithm::automatic, Precision::fp32);
  CHECK(different(y, there) == 0);
  CHECK_FALSE(gpu().can_implement(p, ConvDirection::forward, Algorithm::automatic, Precision::fp32).has_value());
}

TEST_CASE("a training step over every layer, activation and loss never waits for the GPU") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const DeviceGuard device(Device::cuda());
  manual_seed(4);
  SmallTraining training;
  (void)training.step();  // creates the tables that are cached
  (void)training.step();
  const std::uint64_t before = cuda::host_waits();
  for (int i = 0; i < 3; ++i) (void)training.step();
  CHECK(cuda::host_waits() == before);
  // The counter works.
  (void)training.step().item();
  CHECK(cuda::host_waits() == before + 1);
  CHECK(std::isfinite(training.step().item()));
}

TEST_CASE("new tensors, copies to the GPU and positions to select never wait for it") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const TensorOptions on_gpu{.device = Device::cuda()};
  const Tensor image = Tensor::randn({3, 100}, {.device = Device::cpu()});
  Tensor kept = Tensor::zeros({3, 100}, on_gpu);
  (void)image.to(Device::cuda());
  (void)index_select(kept, Tensor::arange(0, 10, 1, {.dtype = DType::i64, .device = Device::cuda()}));
  const std::uint64_t before = cuda::host_waits();
  for (int i = 0; i < 3; ++i) {
    (void)Tensor::randn({100}, on_gpu);
    (void)Tensor::rand({100}, on_gpu);
    (void)Tensor::full({100}, 3, on_gpu);
    (void)Tensor::from_vector<float>({1, 2, 3}, {3}, Device::cuda());
    (void)image.to(Device::cuda());
    kept.copy_(image);
    (void)index_select(kept, Tensor::arange(0, 10, 1, {.dtype = DType::i64, .device = Device::cuda()}));
    (void)hann_window(32, on_gpu);
  }
  CHECK(cuda::host_waits() == before);
  CHECK(max_difference(kept, image) == 0);
}

TEST_CASE("an event is reached after the work of the thread's stream, and is refused in a graph") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  cuda::Stream stream;
  Event begin(Device::cuda()), end(Device::cuda());
  const cuda::StreamGuard guard(stream);
  begin.record();
  const Delay delay(stream.get());
  end.record();
  const bool done = end.is_done();
  CHECK((!done || delay.over()));
  CHECK(begin.elapsed_ms(end) > 10);
  CHECK(delay.over());
  CHECK(end.is_done());
  for (const std::function<void()>& work :
       std::vector<std::function<void()>>{[&] { begin.record(); }, [&] { end.synchronize(); }, [&] { (void)end.is_done(); },
                                          [&] { (void)begin.elapsed_ms(end); }})
    CHECK_THROWS_AS((void)cuda::capture(work), DeviceError);
  CHECK(begin.elapsed_ms(end) > 10);
}
