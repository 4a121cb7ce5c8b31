#include "cuda/runtime/graph.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <polyphase/polyphase.hpp>
#include <stdexcept>
#include <string>

#include "cuda/delay.hpp"
#include "cuda/memory/allocator.hpp"
#include "cuda/memory/block_pool.hpp"
#include "cuda/runtime/runtime.hpp"
#include "support/skip.hpp"
#include "tensor/repeated_numbers.hpp"

namespace pp = polyphase;
namespace cuda = polyphase::cuda;

namespace {

/// One training run of `steps` steps, eager or replayed after two eager ones. Returns every loss after those.
std::vector<double> losses(bool graph, int steps) {
  pp::manual_seed(3);
  pp::Sequential net(pp::Conv1d({.in_channels = 1, .out_channels = 8, .kernel_size = 5, .padding = 2}), pp::LeakyReLU(0.1),
                     pp::Dropout(0.25),
                     pp::ConvTranspose1d({.in_channels = 8, .out_channels = 1, .kernel_size = 4, .stride = 2, .padding = 1}));
  net.to(pp::Device::cuda());
  pp::Adam optimizer(net.parameters(), {.learning_rate = 1e-2});
  const pp::Tensor x = pp::Tensor::randn({4, 1, 50}).to(pp::Device::cuda());
  const pp::Tensor y = pp::Tensor::randn({4, 1, 100}).to(pp::Device::cuda());
  pp::Tensor loss;
  auto step = [&] {
    loss = pp::mse_loss(net(x), y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  };
  step();
  step();
  std::vector<double> result;
  if (graph) {
    cuda::Graph captured = cuda::capture(step);
    for (int i = 0; i < steps; ++i) {
      captured.replay();
      result.push_back(loss.item());
    }
    CHECK(captured.replays() == static_cast<std::uint64_t>(steps));
    CHECK(captured.steps() > 10);
  } else {
    for (int i = 0; i < steps; ++i) {
      step();
      result.push_back(loss.item());
    }
  }
  return result;
}

}  // namespace

TEST_CASE("outside a capture nothing is refused, and there is no replay state") {
  cuda::refuse_capture("item");
  cuda::refuse_other_device(1);
  CHECK(cuda::replay_state(0) == nullptr);
  CHECK_FALSE(cuda::capturing());
  cuda::on_replay([] { FAIL("nothing replays"); });
}

TEST_CASE("a residual block's gradients are computed by the kernels that store the next gradients") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const pp::AlgorithmGuard direct(pp::Algorithm::direct);
  pp::Residual block(pp::LeakyReLU(0.1), pp::Conv1d({.in_channels = 8, .out_channels = 8, .kernel_size = 3, .padding = 1}),
                     pp::LeakyReLU(0.1), pp::Conv1d({.in_channels = 8, .out_channels = 8, .kernel_size = 3, .padding = 1}));
  pp::Conv1d before({.in_channels = 8, .out_channels = 8, .kernel_size = 1});
  block.to(pp::Device::cuda());
  before.to(pp::Device::cuda());
  pp::Tensor x = pp::Tensor::randn({2, 8, 500}).to(pp::Device::cuda());
  const pp::Tensor gradient = pp::Tensor::randn({2, 8, 500}).to(pp::Device::cuda());
  // `aside`: the block's input and its activations' results are each used by one more operation.
  const auto steps = [&](bool aside) {
    const auto step = [&] {
      before.zero_grad();  // memory allocated in a capture has no values before a replay
      block.zero_grad();
      std::vector<pp::Tensor> others;
      const auto seen = [&](const pp::Tensor& y) {
        if (aside) others.push_back(y * 2.0);
        return y;
      };
      const auto& modules = block.block();
      const pp::Tensor in = before(x), first = seen((modules[0])(in));
      pp::Sequential pair;
      pair.push_back(modules.modules()[1]).push_back(modules.modules()[2]);
      const pp::Tensor second = seen(pair(first));
      (in + (modules[3])(second)).backward(gradient);
    };
    step();
    return cuda::capture(step).steps();
  };
  const std::size_t launches = 2, saved = 2;  // a launch for the derivative, and one for the sum of two gradients
  CHECK(steps(true) == steps(false) + launches + saved);
}

TEST_CASE("recorded work runs only when replayed, and again with each replay") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const cuda::Buffer target(4, 0);
  auto read = [](const cuda::Buffer& buffer) {
    unsigned value = 0;
    CHECK_CUDA(cudaMemcpyAsync(&value, buffer.as<void>(), 4, cudaMemcpyDeviceToHost, cuda::current_stream(0)));
    CHECK_CUDA(cudaStreamSynchronize(cuda::current_stream(0)));
    return value;
  };
  auto set = [&](int byte) { CHECK_CUDA(cudaMemsetAsync(target.as<void>(), byte, 4, cuda::current_stream(0))); };
  set(1);
  int updates = 0;
  cuda::Graph graph = cuda::capture([&] {
    CHECK(cuda::capturing());
    cuda::on_replay([&] { ++updates; });
    const cuda::Buffer scratch(4, 0);
    CHECK_CUDA(cudaMemsetAsync(scratch.as<void>(), 2, 4, cuda::current_stream(0)));
    CHECK_CUDA(cudaMemcpyAsync(target.as<void>(), scratch.as<void>(), 4, cudaMemcpyDeviceToDevice, cuda::current_stream(0)));
  });
  CHECK_FALSE(cuda::capturing());
  CHECK(read(target) == 0x01010101);
  cuda::allocator(0).trim();  // memory that remains allocated belongs to the graph
  for (int i = 0; i < 3; ++i) {
    set(7);
    const cuda::Buffer other(4, 0);
    CHECK_CUDA(cudaMemsetAsync(other.as<void>(), 9, 4, cuda::current_stream(0)));
    graph.replay();
    CHECK(read(target) == 0x02020202);
    CHECK(read(other) == 0x09090909);
  }
  CHECK(graph.replays() == 3);
  CHECK(updates == 2);
}

TEST_CASE("a replay waits for the one before on another stream, and who destroys a graph for the last") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  pp::Tensor x = pp::Tensor::ones({1}, {.device = pp::Device::cuda()});
  std::optional<cuda::Graph> graph = cuda::capture([&] { x.fill_(2.0); });
  const cuda::Stream stream;
  const pp::testing::Delay first(stream.get());
  {
    const cuda::StreamGuard guard(stream);
    graph->replay();
  }
  graph->replay();
  cuda::wait_for(cuda::current_stream(0));
  CHECK(first.over());
  const pp::testing::Delay second(cuda::current_stream(0));
  graph->replay();
  graph.reset();
  CHECK(second.over());
}

TEST_CASE("who waits for the device on another thread waits for a capture, and spoils nothing") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  pp::Tensor x = pp::Tensor::ones({1}, {.device = pp::Device::cuda()});
  std::future<void> other;
  cuda::Graph graph = cuda::capture([&] {
    other = std::async(std::launch::async, [] { cuda::synchronize(); });
    CHECK(other.wait_for(std::chrono::milliseconds(20)) == std::future_status::timeout);
    x.fill_(2.0);
  });
  other.get();  // rethrows its exception
  graph.replay();
  CHECK(x.item() == 2.0);
}

TEST_CASE("the replay state continues the generator's") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  pp::manual_seed(11);
  (void)pp::default_generator().take(5);
  const cuda::Buffer copy(sizeof(cuda::ReplayState), 0);
  cuda::Graph graph = cuda::capture([&] {
    const pp::GeneratorState state = pp::default_generator().take(10);
    CHECK(state.offset == 5);
    const void* values = cuda::replay_state(0, state);
    CHECK_CUDA(
        cudaMemcpyAsync(copy.as<void>(), values, sizeof(cuda::ReplayState), cudaMemcpyDeviceToDevice, cuda::current_stream(0)));
  });
  CHECK(pp::default_generator().state().offset == 5);
  (void)pp::default_generator().take(100);
  for (std::uint64_t i = 0; i < 2; ++i) {
    graph.replay();
    cuda::ReplayState values{};
    CHECK_CUDA(cudaMemcpyAsync(&values, copy.as<void>(), sizeof values, cudaMemcpyDeviceToHost, cuda::current_stream(0)));
    CHECK_CUDA(cudaStreamSynchronize(cuda::current_stream(0)));
    CHECK(values.seed == 11);
    CHECK(values.offset == 100 + 10 * i);
  }
  CHECK(pp::default_generator().state().offset == 125);
}

TEST_CASE("numbers of another generator are recorded under a RepeatedNumbersGuard alone, and every replay draws them") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const pp::TensorOptions on_gpu{.device = pp::Device::cuda()};
  const auto draw = [&] {
    pp::Generator own(7);
    return pp::Tensor::randn({100}, on_gpu, &own);
  };
  const std::vector<float> expected = draw().to_vector<float>();
  pp::Tensor out = pp::Tensor::zeros({100}, on_gpu);
  CHECK_THROWS_AS((void)cuda::capture([&] { out.copy_(draw()); }), pp::DeviceError);
  cuda::Graph graph = cuda::capture([&] {
    const pp::RepeatedNumbersGuard repeated;
    out.copy_(draw());
  });
  for (int replay = 0; replay < 2; ++replay) {
    out.fill_(0);
    graph.replay();
    CHECK(out.to_vector<float>() == expected);
  }
  CHECK_FALSE(pp::RepeatedNumbersGuard::is_active());
}

TEST_CASE("what cannot be recorded is named, and nothing has changed") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const pp::MemoryStats before = cuda::memory_stats();
  const pp::GeneratorState generator = pp::default_generator().state();
  auto refused = [](const char* operation) {
    return std::string(operation) +
           ": cannot be recorded in a CUDA graph, as it waits for the device or for another graph; call it outside "
           "cuda::capture";
  };
  CHECK_THROWS_WITH_AS((void)cuda::capture([] { cuda::synchronize(); }), refused("cuda::synchronize").c_str(), pp::DeviceError);
  CHECK_THROWS_WITH_AS((void)cuda::capture([] { (void)cuda::capture([] {}); }), refused("cuda::capture").c_str(),
                       pp::DeviceError);
  CHECK_THROWS_WITH_AS((void)cuda::capture([] {
                         (void)pp::default_generator().take(3);
                         throw std::runtime_error("the work's own");
                       }),
                       "the work's own", std::runtime_error);
  pp::Generator other(99);
  CHECK_THROWS_AS((void)cuda::capture([&] { (void)cuda::replay_state(0, other.take(1)); }), pp::DeviceError);
  CHECK_FALSE(cuda::capturing());
  CHECK(pp::default_generator().state() == generator);
  CHECK(cuda::memory_stats().live_bytes == before.live_bytes);
}

TEST_CASE("a capture is of one device: another is refused") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  CHECK_THROWS_WITH_AS((void)cuda::capture([] {
                         cuda::refuse_other_device(0);
                         cuda::refuse_other_device(1);
                       }),
                       "cuda::capture: expected work on cuda:0 alone, got some on cuda:1", pp::DeviceError);
}

TEST_CASE("a capture leaks nothing on another device: work there is refused, and memory that is freed there is returned") {
  if (cuda::device_count() < 2) SKIP_TEST("fewer than two CUDA devices");
  const pp::TensorOptions there{.device = pp::Device::cuda(1)};
  pp::Tensor x = pp::Tensor::ones({1000}, there);
  const pp::MemoryStats before = cuda::memory_stats(1);
  CHECK_THROWS_AS((void)cuda::capture([&] { x.fill_(2.0); }), pp::DeviceError);
  CHECK_THROWS_AS((void)cuda::capture([&] { (void)pp::Tensor::empty({1000}, there); }), pp::DeviceError);
  CHECK(cuda::memory_stats(1).live_bytes == before.live_bytes);
  const pp::Tensor here = pp::Tensor::ones({1}, {.device = pp::Device::cuda(0)});
  const cuda::Graph graph = cuda::capture([&] {
    x = {};
    (void)(here + 1.0);
  });
  CHECK(cuda::allocator(1).pool_stats().pending_bytes == 0);
}

TEST_CASE("every call that waits or copies is refused in a capture by its name, and the device works on") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const pp::TensorOptions on_gpu{.device = pp::Device::cuda()};
  const pp::Tensor x = pp::Tensor::ones({1}, on_gpu), image = pp::Tensor::ones({4}, {.device = pp::Device::cpu()});
  const cuda::Stream stream;
  const cuda::PinnedBuffer buffer(64);
  const cuda::Upload upload = cuda::upload_async(buffer, {4});
  cuda::Graph graph = cuda::capture([&] { (void)(x + 1.0); });
  const auto refused = [](const char* name, const std::function<void()>& work) {
    const std::string start = std::string(name) + " cannot be recorded in a CUDA graph";
    try {
      (void)cuda::capture(work);
      FAIL_CHECK(name << ": not refused");
    } catch (const pp::DeviceError& error) {
      CHECK_MESSAGE(std::string(error.what()).starts_with(start), error.what());
    }
    CHECK_FALSE(cuda::capturing());
  };
  refused("item: a copy to the host", [&] { (void)x.item(); });
  refused("to: a copy to the host", [&] { (void)x.to_vector<float>(); });
  refused("to: a copy to the host", [&] { (void)x.cpu(); });
  refused("allclose: a copy to the host", [&] { (void)pp::allclose(x, x); });
  refused("to: a copy from the host", [&] { (void)image.to(pp::Device::cuda()); });
  refused("to: a copy from the host", [&] { (void)pp::Tensor::from_vector<float>({1, 2}, {2}, pp::Device::cuda()); });
  refused("copy_: a copy from the host", [&] { pp::Tensor::empty({4}, on_gpu).copy_(image); });
  refused("power_spectrogram: a copy from the host", [&] {
    (void)pp::power_spectrogram(pp::Tensor::ones({1, 400}, on_gpu), {.n_fft = 166, .hop_length = 50, .win_length = 166});
  });
  refused("rfft: the first transform of a length:", [&] { (void)pp::rfft(pp::Tensor::ones({2, 334}, on_gpu)); });
  refused("synchronize:", [&] { (void)pp::to_dlpack(x); });
  refused("cuda::synchronize:", [] { cuda::synchronize(); });
  refused("cuda::retire_stream:", [&] { cuda::retire_stream(0, stream.get()); });
  refused("Stream::synchronize:", [&] { stream.synchronize(); });
  refused("PinnedBuffer:", [] { (void)cuda::PinnedBuffer(64); });
  refused("upload_async:", [&] { (void)cuda::upload_async(buffer, {4}); });
  refused("Upload::get:", [&] { (void)upload.get(); });
  refused("Graph::replay:", [&] { graph.replay(); });
  refused("cuda::capture:", [] { (void)cuda::capture([] {}); });
  graph.replay();
  CHECK(x.item() == 1.0);
}

TEST_CASE("a replayed training step gives the eager one's losses, bit for bit") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const std::vector<double> eager = losses(false, 6), replayed = losses(true, 6);
  CHECK(eager == replayed);
  CHECK(eager.back() != eager.front());
}
