// State that a recorded step updates at each replay: the same as that of the eager step.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <polyphase/polyphase.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/skip.hpp"

namespace pp = polyphase;
namespace cuda = polyphase::cuda;

namespace {

constexpr int kWarm = 2, kReplays = 5;

using State = std::vector<std::pair<std::string, std::vector<double>>>;

void append(State& state, const std::string& owner, const pp::OptimizerState& part) {
  for (const auto& [name, value] : part.numbers) state.push_back({owner + name, {value}});
  for (const auto& [name, tensor] : part.tensors)
    state.emplace_back(owner + name, tensor.to(pp::DType::f64).to_vector<double>());
}

pp::Sequential make_net() {
  pp::manual_seed(3);
  pp::Sequential net(pp::Conv1d({.in_channels = 1, .out_channels = 64, .kernel_size = 7, .padding = 3}), pp::LeakyReLU(0.1),
                     pp::ConvTranspose1d({.in_channels = 64, .out_channels = 64, .kernel_size = 8, .stride = 4, .padding = 2}),
                     pp::LeakyReLU(0.1),
                     pp::ConvTranspose1d({.in_channels = 64, .out_channels = 32, .kernel_size = 8, .stride = 4, .padding = 2}),
                     pp::LeakyReLU(0.1), pp::Conv1d({.in_channels = 32, .out_channels = 1, .kernel_size = 7, .padding = 3}));
  net.to(pp::Device::cuda());
  return net;
}

pp::Tensor signal(const pp::Shape& shape, std::uint64_t seed) {
  pp::Generator generator(seed);
  return pp::Tensor::randn(shape, {.device = pp::Device::cpu()}, &generator).to(pp::Device::cuda());
}

/// A whole training step, plain or in mixed precision. The scale is about sixteen times too high for f16 at first, so that
/// steps are skipped. The gradient's norm is about 0.03, so that it is clipped.
struct Training {
  explicit Training(std::optional<pp::DType> autocast) : cast(autocast) {}

  std::optional<pp::DType> cast;
  pp::Sequential net = make_net();
  pp::Adam optimizer{net.parameters(), {.learning_rate = 1e-3}};
  pp::ExponentialMovingAverage average{net.parameters(), {.decay = 0.99, .ramp = true}};
  pp::GradScaler scaler{{.initial_scale = 0x1p24, .growth_interval = 2}};
  pp::Tensor x = signal({4, 1, 64}, 0), y = signal({4, 1, 1024}, 100);
  pp::Tensor loss, norm;

  pp::Tensor forward() {
    std::optional<pp::AutocastGuard> guard;
    if (cast) guard.emplace(*cast);
    return pp::mse_loss(net(x), y);
  }
  void step() {
    optimizer.zero_grad();
    loss = forward();
    (cast ? scaler.scale(loss) : loss).backward();
    if (cast) scaler.unscale(optimizer);
    norm = pp::clip_grad_norm(net.parameters(), 0.02);
    if (cast) {
      scaler.step(optimizer);
      scaler.update();
    } else {
      optimizer.step();
    }
    average.update();
  }
  [[nodiscard]] State state() {
    State all;
    for (const auto& [name, tensor] : net.state_dict()) append(all, "net.", {{{name, tensor}}, {}});
    append(all, "optimizer.", optimizer.state());
    append(all, "average.", average.state());
    append(all, "scaler.", scaler.state());
    return all;
  }
};

void check_same(const State& expected, const State& got) {
  REQUIRE(expected.size() == got.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(expected[i].first);
    CHECK(expected[i].first == got[i].first);
    CHECK(expected[i].second == got[i].second);
  }
}

/// Compares two runs with the same inputs and learning rates: all steps eager, and all but the first two and the last replayed.
void check_replays(std::optional<pp::DType> cast) {
  Training eager(cast), recorded(cast);
  for (int i = 0; i < kWarm; ++i) eager.step(), recorded.step();
  check_same(eager.state(), recorded.state());
  cuda::Graph graph = cuda::capture([&] { recorded.step(); });
  check_same(eager.state(), recorded.state());  // nothing has run yet
  for (int i = 1; i <= kReplays; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    for (Training* training : {&eager, &recorded}) {
      training->x.copy_(signal({4, 1, 64}, seed));
      training->y.copy_(signal({4, 1, 1024}, 100 + seed));
      training->optimizer.set_learning_rate(1e-3 / i);
    }
    eager.step();
    graph.replay();
    CAPTURE(i);
    CHECK(eager.loss.item() == recorded.loss.item());
    const double expected = eager.norm.item(), got = recorded.norm.item();
    CHECK((expected == got || (std::isnan(expected) && std::isnan(got))));  // after an overflow the norm may be NaN
    check_same(eager.state(), recorded.state());
  }
  CHECK(recorded.average.updates() == kWarm + kReplays);
  pp::OptimizerState middle = eager.optimizer.state();
  for (auto& [name, tensor] : middle.tensors) tensor = tensor.clone();
  // Eager steps and replays can be mixed.
  eager.step(), recorded.step();
  check_same(eager.state(), recorded.state());
  eager.step();
  graph.replay();
  check_same(eager.state(), recorded.state());
  CHECK(recorded.optimizer.steps() + recorded.scaler.skipped() == kWarm + kReplays + 2);
  // Loading writes to the memory that replays read.
  for (Training* training : {&eager, &recorded}) {
    training->average.apply();
    training->average.restore();
    training->optimizer.load_state(middle);
  }
  eager.step();
  graph.replay();
  check_same(eager.state(), recorded.state());
  CHECK(recorded.optimizer.steps() > 0);
}

}  // namespace

TEST_CASE("a recorded training step is the eager one, bit for bit: losses, weights, moments, averages, counts") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  check_replays(std::nullopt);
}

TEST_CASE("so it is in mixed precision, with steps left out and the scale going down and up") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  check_replays(pp::DType::f16);
  check_replays(pp::DType::bf16);
}

TEST_CASE("a loss scale that overflows f16 is found out by replays alone") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  Training training(pp::DType::f16);
  for (int i = 0; i < kWarm; ++i) training.step();
  CHECK(training.scaler.skipped() == kWarm);
  CHECK(training.optimizer.steps() == 0);
  cuda::Graph graph = cuda::capture([&] { training.step(); });
  for (int i = 0; i < 20; ++i) graph.replay();
  CHECK(training.scaler.skipped() > kWarm);
  CHECK(training.optimizer.steps() > 0);
  CHECK(training.optimizer.steps() + training.scaler.skipped() == kWarm + 20);
}

TEST_CASE("recorded inference is the eager one, bit for bit, in f32 and in bf16") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  for (const bool cast : {false, true}) {
    CAPTURE(cast);
    pp::Sequential net = make_net();
    net.eval();
    pp::Tensor x = signal({2, 1, 100}, 0), y;
    const auto infer = [&] {
      const pp::NoGradGuard no_grad;
      std::optional<pp::AutocastGuard> guard;
      if (cast) guard.emplace(pp::DType::bf16);
      return net(x).to(pp::DType::f32);
    };
    (void)infer();
    cuda::Graph graph = cuda::capture([&] { y = infer(); });
    std::vector<float> before;
    for (std::uint64_t i = 1; i <= kReplays; ++i) {
      x.copy_(signal({2, 1, 100}, i));
      graph.replay();
      const std::vector<float> got = y.to_vector<float>();
      CHECK(got == infer().to_vector<float>());
      CHECK(got != before);
      before = got;
    }
  }
}

TEST_CASE("a guard around a capture has no part in its casts: replays see new weights") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const pp::TensorOptions on_gpu{.device = pp::Device::cuda()};
  pp::Tensor w = pp::Tensor::ones({1, 1}, on_gpu).set_requires_grad(true), y;
  const pp::Tensor x = pp::Tensor::ones({1, 1}, on_gpu);
  const pp::AutocastGuard autocast(pp::DType::bf16);
  const auto work = [&] { y = pp::linear(x, w); };
  work();
  cuda::Graph graph = cuda::capture(work);
  const pp::NoGradGuard no_grad;
  w.fill_(3);
  graph.replay();
  CHECK(y.item() == 3);
  work();
  CHECK(y.item() == 3);
}

TEST_CASE("state that every replay would create again is refused by name") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  pp::Tensor w = pp::Tensor::ones({2}, {.device = pp::Device::cuda()}).set_requires_grad(true);
  w.set_grad(pp::Tensor::ones({2}, {.device = pp::Device::cuda()}));
  pp::Adam adam({w});
  pp::SGD sgd({w});
  pp::GradScaler scaler;
  const auto refused = [](const std::function<void()>& work, const char* text) {
    CHECK_THROWS_WITH_AS((void)cuda::capture(work), text, pp::DeviceError);
  };
  refused([&] { adam.step(); },
          "Adam::step: moments would be created again by every replay; call step() once before cuda::capture");
  refused([&] { sgd.step(); },
          "SGD::step: step counts would be created again by every replay; call step() once before cuda::capture");
  refused([&] { (void)scaler.scale(w.detach()); },
          "GradScaler: every replay would create its state again; run one step before cuda::capture");
  refused([&] { adam.set_learning_rate(0.5); },
          "Adam::set_learning_rate: a rate set in cuda::capture would be set again by every replay; set it, or call "
          "Scheduler::step, after Graph::replay");
  adam.step();
  CHECK(adam.steps() == 1);
  CHECK(adam.learning_rate() == 1e-3);
}

TEST_CASE("BatchNorm1d counts the batches of replays") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  pp::Sequential net(pp::BatchNorm1d({.num_features = 2}));
  net.to(pp::Device::cuda());
  const pp::Tensor x = signal({4, 2, 8}, 1);
  (void)net(x);
  cuda::Graph graph = cuda::capture([&] { (void)net(x); });
  for (int i = 0; i < 3; ++i) graph.replay();
  for (const auto& [name, tensor] : net.state_dict())
    if (name == "0.num_batches_tracked") CHECK(tensor.item<std::int64_t>() == 4);
}
