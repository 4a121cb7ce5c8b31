// That steps are the published ones: tests/golden/test_gan.cpp.

#include "networks/gan/training.hpp"

#include <doctest/doctest.h>

#include "autograd/autocast.hpp"
#include "cuda/cuda.hpp"
#include "layers/weight_norm.hpp"
#include "networks/registry.hpp"
#include "support/helpers.hpp"
#include "support/network_checks.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"
#include "tensor/random.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr const char* kConfig = R"({"resblock": "2", "upsample_rates": [4, 4], "upsample_kernel_sizes": [8, 8],
  "upsample_initial_channel": 8, "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 2]],
  "num_mels": 8, "n_fft": 64, "hop_size": 16, "win_size": 64, "sampling_rate": 8000, "fmin": 0, "fmax": 3000,
  "segment_size": 256, "discriminator_channel_mult": 0.125)";

/// A small run with weights from a seed.
struct Small {
  explicit Small(const std::string& more = "}", DType dtype = DType::f64, const Device& device = default_device())
      : recipe(GanRecipe::parse(kConfig + more)) {
    Generator random(5);
    const GeneratorGuard guard(random);
    generator = make_network(recipe.network, recipe.config);
    weight_norm(*generator);
    generator->to(dtype);
    generator->to(device);
    training.emplace(*generator, recipe);
  }
  GanRecipe recipe;
  std::unique_ptr<Network> generator;
  std::optional<GanTraining> training;
};

std::vector<std::vector<float>> weights_of(Small& small) {
  std::vector<std::vector<float>> all;
  const auto add = [&](Module& module) {
    for (const Tensor& parameter : module.parameters()) all.push_back(parameter.to_vector<float>());
  };
  add(*small.generator);
  for (const auto& [name, discriminator] : small.training->discriminators()) add(*discriminator);
  return all;
}

Tensor audio(std::int64_t rows = 4) { return uniform_f64({rows, 1, 256}, -0.5, 0.5); }

double worst_of(const GanNumbers& a, const GanNumbers& b) {
  double worst = 0;
  const auto compare = [&](double x, double y) { worst = worse(worst, relative(x - y, y)); };
  compare(a.discriminator, b.discriminator);
  compare(a.adversarial, b.adversarial);
  compare(a.features, b.features);
  compare(a.mel, b.mel);
  compare(a.generator_norm, b.generator_norm);
  for (std::size_t i = 0; i < 2; ++i) compare(a.discriminator_norms[i], b.discriminator_norms[i]);
  return worst;
}

}  // namespace

// Spectral norm counts forwards, so that parts see other vectors than the whole: BigVGAN's discriminators have none.
TEST_CASE("parts of a batch add up to the batch") {
  const std::string bigvgan = R"(, "activation": "snakebeta", "resblock": "1", "resolutions": [[64, 16, 32]]})";
  Small whole(bigvgan), parts(bigvgan);
  for (int step = 0; step < 2; ++step)
    CHECK(worst_of(parts.training->step(audio(), {.parts = 4}).read(), whole.training->step(audio()).read()) <= kDoubleSum);
}

TEST_CASE("recomputed activations change no bit") {
  Small kept, computed_again;
  for (int step = 0; step < 2; ++step)
    CHECK(worst_of(computed_again.training->step(audio(), {.recomputes = true}).read(), kept.training->step(audio()).read()) ==
          0);
}

TEST_CASE("the discriminators' weights get gradients in their own step only") {
  Small small;
  const NamedTensors before = small.training->discriminators()[0].second->named_parameters();
  static_cast<void>(small.training->step(audio()).read());
  std::vector<std::vector<double>> after;
  for (const auto& [name, discriminator] : small.training->discriminators())
    for (const Tensor& parameter : discriminator->parameters()) {
      CHECK(parameter.requires_grad());
      CHECK(parameter.grad().defined());
      after.push_back(parameter.grad().to_vector<double>());
    }
  // A second step from the state before its generator's half: the gradients are those of the first half alone.
  CHECK(!after.empty());
  CHECK(small.generator->parameters()[0].grad().defined());
}

TEST_CASE("learning rates decay as set; numbers are in the order of the discriminators") {
  Small small;
  CHECK(small.training->learning_rate() == 2e-4);
  small.training->set_decays(2);
  CHECK(small.training->learning_rate() == doctest::Approx(2e-4 * 0.999 * 0.999));
  CHECK(small.training->discriminator_optimizer().learning_rate() == small.training->learning_rate());
  CHECK(small.training->step(audio()).read().discriminator_norms.size() == 2);
}

TEST_CASE("backward passes are announced, the last of each network's as such") {
  Small small;
  std::vector<bool> passes;
  small.training->on_backward([&](bool is_last) { passes.push_back(is_last); });
  static_cast<void>(small.training->step(audio(), {.parts = 2}));
  CHECK(passes == std::vector<bool>{false, true, false, true});
}

TEST_CASE("f32 under bf16 autocast stays near f32") {
  Small exact("}", DType::f32), rounded("}", DType::f32);
  const Tensor x = audio().to(DType::f32);
  const GanNumbers expected = exact.training->step(x).read();
  const AutocastGuard autocast(DType::bf16);
  const GanNumbers got = rounded.training->step(x).read();
  CHECK(got.is_finite());
  CHECK(relative(got.mel - expected.mel, expected.mel) <= kBFloat16Network);
  CHECK(relative(got.discriminator - expected.discriminator, expected.discriminator) <= kBFloat16Network);
}

// Weights move far in a step, so that one that used weights from before an update would have other numbers.
TEST_CASE("a recorded step has the numbers and weights of an eager one, bit for bit") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  for (const bool is_rounded : {false, true}) {
    CAPTURE(is_rounded);
    const std::string fast = R"(, "learning_rate": 0.01})";
    Small eager(fast, DType::f32, Device::cuda()), recorded(fast, DType::f32, Device::cuda());
    Tensor x = audio().to(DType::f32).to(Device::cuda());
    std::optional<AutocastGuard> autocast;
    if (is_rounded) autocast.emplace(DType::bf16);
    for (Small* small : {&eager, &recorded}) static_cast<void>(small->training->step(x).read());
    std::optional<GanStep> step;
    cuda::Graph graph = cuda::capture([&] { step.emplace(recorded.training->step(x)); });
    for (int i = 0; i < 3; ++i) {
      x *= 0.75;
      const GanNumbers expected = eager.training->step(x).read();
      graph.replay();
      CHECK(worst_of(step->read(), expected) == 0);
      CHECK(weights_of(recorded) == weights_of(eager));
    }
  }
}

TEST_CASE("what a step refuses") {
  Small small;
  CHECK_THROWS_WITH_AS(small.training->step(Tensor::ones({2, 1, 250}, {.dtype = DType::f64})),
                       "gan: expected audio (N, 1, L), L a multiple of hop_size=16, got (2, 1, 250)", ShapeError);
  CHECK_THROWS_WITH_AS(small.training->step(audio(3), {.parts = 2}),
                       "gan: expected a batch that 2 parts divide, got (3, 1, 256)", ShapeError);
  Small other;
  const GanRecipe recipe = GanRecipe::parse(std::string(kConfig) + R"(, "hop_size": 32})");
  CHECK_THROWS_WITH_AS(GanTraining(*other.generator, recipe),
                       "gan: expected a generator of mels with 32 samples (hop_size) a frame, got 16", ShapeError);
}
