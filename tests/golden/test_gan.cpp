// Ten training steps of a vocoder against its discriminators, as PyTorch computed them in f64 (make_gan.py).

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "autograd/no_grad.hpp"
#include "io/safetensors.hpp"
#include "layers/weight_norm.hpp"
#include "networks/gan/training.hpp"
#include "networks/registry.hpp"
#include "support/helpers.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

// The note's number(name, first), number(name, first + 1), ...
std::vector<double> numbers(const std::string& name, std::int64_t count, std::int64_t first = 0) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t z = hash + static_cast<std::uint64_t>(first + i + 1) * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    z = z ^ (z >> 31);
    values[static_cast<std::size_t>(i)] = 2 * (static_cast<double>(z >> 11) * 0x1p-53) - 1;
  }
  return values;
}

void fill(const std::string& prefix, Module& module, const Tensor& filter = {}) {
  const NoGradGuard no_grad;
  for (auto& [name, tensor] : module.state_dict()) {
    const std::string last = name.substr(name.rfind('.') + 1);
    if (last == "filter") {
      tensor.copy_(filter);
      continue;
    }
    double shift = 0, scale = 0.1;
    if (last == "weight_g")
      shift = 0.75, scale = 0.25;
    else if (last == "alpha" || last == "beta")
      scale = 0.3;
    else if (tensor.rank() > 1)
      scale = 1 / std::sqrt(static_cast<double>(tensor.numel() / tensor.size(0)));
    std::vector<double> values = numbers(prefix + name, tensor.numel());
    for (double& value : values) value = shift + scale * value;
    tensor.copy_(Tensor::from_vector(values, tensor.shape(), default_device()));
  }
}

Tensor sound(std::int64_t step, std::int64_t rows, std::int64_t length) {
  std::vector<double> values = numbers("audio", rows * length, step * rows * length);
  for (std::int64_t n = 0; n < rows; ++n)
    for (std::int64_t t = 0; t < length; ++t) {
      double& value = values[static_cast<std::size_t>(n * length + t)];
      value = 0.4 * std::sin(0.05 * static_cast<double>(n + 1) * static_cast<double>(t + 100 * step)) + 0.1 * value;
    }
  return Tensor::from_vector(values, {rows, 1, length}, default_device());
}

// The largest relative error of `count` losses and norms of all steps.
double worst_of_run(const std::string& name, const GanStepOptions& options = {}, std::int64_t steps = 10) {
  const SafetensorsFile file = load_safetensors(std::string(GAN_GOLDEN) + "/gan_" + name + ".safetensors");
  const std::vector<double> losses = file.at("losses").to_vector<double>(), norms = file.at("norms").to_vector<double>();
  const std::int64_t rows = std::stoll(file.metadata.at("rows"));
  const GanRecipe recipe = GanRecipe::parse(file.metadata.at("config"));
  const std::unique_ptr<Network> generator = make_network(recipe.network, recipe.config);
  weight_norm(*generator);
  generator->to(DType::f64);
  GanTraining training(*generator, recipe);
  fill("generator.", *generator, file.find("filter") != nullptr ? file.at("filter") : Tensor());
  for (auto& [part, discriminator] : training.discriminators()) fill(part + ".", *discriminator);
  double worst = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const GanNumbers got = training.step(sound(step, rows, recipe.segment_size), options).read();
    if (recipe.network == "bigvgan") training.set_decays(step + 1);
    const auto at = [&](const std::vector<double>& list, std::int64_t width, std::int64_t i) {
      return list[static_cast<std::size_t>(step * width + i)];
    };
    const auto compare = [&](double value, double expected) { worst = worse(worst, relative(value - expected, expected)); };
    const std::vector<double> values{got.discriminator, got.adversarial, got.features, got.mel};
    for (std::size_t i = 0; i < values.size(); ++i) compare(values[i], at(losses, 4, static_cast<std::int64_t>(i)));
    compare(got.generator_norm, at(norms, 3, 0));
    for (std::size_t i = 0; i < 2; ++i) compare(got.discriminator_norms[i], at(norms, 3, static_cast<std::int64_t>(i) + 1));
  }
  return worst;
}

}  // namespace

TEST_CASE("HiFi-GAN's structure with fewer channels: ten steps as PyTorch's") {
  CHECK(worst_of_run("hifigan_small") <= kGanTraining);
  CHECK(worst_of_run("hifigan_small", {.recomputes = true}, 2) <= kGanTraining);
}

TEST_CASE("BigVGAN's structure with fewer channels: ten steps as PyTorch's") {
  CHECK(worst_of_run("bigvgan_small") <= kGanTraining);
}

// Takes a minute or more and 5 GB: POLYPHASE_LONG_TESTS=1 build/tests/golden/test_golden_gan
TEST_CASE("HiFi-GAN V1 in full size: ten steps as PyTorch's") {
  if (std::getenv("POLYPHASE_LONG_TESTS") == nullptr) SKIP_TEST("takes minutes: set POLYPHASE_LONG_TESTS=1");
  CHECK(worst_of_run("hifigan_v1") <= kGanTraining);
}
