#include "trainer.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>

#include "autograd/no_grad.hpp"
#include "conv/algorithm.hpp"
#include "cpu/threads.hpp"
#include "device/backend.hpp"
#include "evaluation.hpp"
#include "ops/elementwise.hpp"
#include "sound.hpp"
#include "support/helpers.hpp"
#include "support/skip.hpp"
#include "support/temporary_directory.hpp"
#include "support/tolerance.hpp"
#include "tensor/memory.hpp"

using namespace superres;
using namespace superres::testing;
using polyphase::testing::error_of;
using polyphase::testing::kCurveOverRounding;
using polyphase::testing::kFloatSum;
using polyphase::testing::TemporaryDirectory;

namespace {

const ModelOptions kModel{.factor = 4, .rate = 16000, .channels = 8, .high_channels = 4, .blocks = 1, .kernel = 3};
const TrainSettings kSettings{.steps = 12, .batch = 2, .window = 2048, .learning_rate = 3e-3, .seed = 7};

// Sound whose high band follows from its low band: harmonics of a tone of rising frequency.
ClipSet harmonic_clips(const TemporaryDirectory& folder) {
  std::vector<float> sound(24000, 0.0F);
  for (int k = 1; k < 20; ++k) {
    const std::vector<float> part = sine(331.0 * k, 16000, 24000, 0.3 / k);
    for (std::size_t i = 0; i < sound.size(); ++i)
      sound[i] += part[i] * static_cast<float>(1.2 + std::sin(static_cast<double>(i) / 3000));
  }
  write_sound(folder.file("a.wav"), 16000, {sound});
  return open_clips({folder.file("a.wav")}, {.shortest = 2048, .cache_bytes = 1 << 30}, [](const std::string&) {});
}

bool same_bits(const pp::NamedTensors& a, const pp::NamedTensors& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].first != b[i].first || a[i].second.to_vector<float>() != b[i].second.to_vector<float>()) return false;
  }
  return true;
}

/// Loss and gradient norm of the first steps, alternating.
std::vector<double> curve_of(const ClipSet& clips, const TrainSettings& settings, double perturbation = 0,
                             std::uint64_t seed = 0) {
  constexpr std::int64_t kSteps = 3;
  Trainer trainer(kModel, settings);
  pp::Generator generator(seed);
  for (pp::Tensor parameter : trainer.network().parameters()) {
    if (perturbation == 0) break;
    const pp::NoGradGuard no_grad;
    const pp::Tensor noise = pp::Tensor::randn(parameter.shape(), {.device = parameter.device()}, &generator);
    parameter.copy_(parameter * (noise * perturbation + 1.0));
  }
  std::vector<double> curve;
  for (std::int64_t i = 0; i < kSteps; ++i) {
    const StepResult result = trainer.step(make_batch(clips, trainer.loader_options(), trainer.steps()));
    curve.push_back(result.loss);
    curve.push_back(result.gradient_norm);
  }
  return curve;
}

/// The largest distance of `got` from the CPU's curve, in units of the change that follows when the initial weights change by
/// half of their last bit.
double deviation(const ClipSet& clips, const TrainSettings& settings, const std::vector<double>& got) {
  const pp::DeviceGuard cpu(pp::Device::cpu());
  const std::vector<double> exact = curve_of(clips, settings);
  std::vector<double> unit(exact.size());
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const std::vector<double> near = curve_of(clips, settings, 0x1p-24, seed);
    for (std::size_t i = 0; i < unit.size(); ++i) unit[i] = std::max(unit[i], std::abs(near[i] - exact[i]));
  }
  double worst = 0;
  for (std::size_t i = 0; i < unit.size(); ++i)
    worst = polyphase::testing::worse(worst, std::abs(got[i] - exact[i]) / (unit[i] + std::abs(exact[i]) * 0x1p-24));
  return worst;
}

void advance(Trainer& trainer, const ClipSet& clips, std::int64_t steps) {
  const LoaderOptions options = trainer.loader_options();
  for (std::int64_t i = 0; i < steps; ++i) trainer.step(make_batch(clips, options, trainer.steps()));
}

}  // namespace

TEST_CASE("2N steps are N steps, a checkpoint and N steps, bit by bit") {
  const TemporaryDirectory folder;
  const ClipSet clips = harmonic_clips(folder);
  Trainer straight(kModel, kSettings);
  advance(straight, clips, 12);

  Trainer before(kModel, kSettings);
  advance(before, clips, 6);
  pp::save_checkpoint(folder.file("run.safetensors"), before.checkpoint());
  Trainer after(pp::load_checkpoint(folder.file("run.safetensors")));
  CHECK(after.steps() == 6);
  advance(after, clips, 6);

  CHECK(same_bits(straight.network().state_dict(), after.network().state_dict()));
  CHECK(same_bits(straight.averaged().model, after.averaged().model));
  CHECK(straight.learning_rate() == after.learning_rate());
  Trainer other(kModel, {.steps = 12, .batch = 2, .window = 2048, .seed = 8});
  CHECK_FALSE(same_bits(Trainer(kModel, kSettings).network().state_dict(), other.network().state_dict()));
}

TEST_CASE("training helps, and the averaged network is what load_network gives, from either checkpoint") {
  const TemporaryDirectory folder;
  const ClipSet clips = harmonic_clips(folder);
  Trainer trainer(kModel, {.steps = 60, .batch = 2, .window = 2048, .learning_rate = 5e-3, .seed = 1});
  const ClipScores before = mean_of(evaluate(trainer.network(), clips));
  advance(trainer, clips, 60);
  const ClipScores after = trainer.with_average([&] { return mean_of(evaluate(trainer.network(), clips)); });
  CHECK(after.network.lsd < 0.8 * before.sinc.lsd);
  CHECK(after.sinc.lsd == before.sinc.lsd);

  pp::save_checkpoint(folder.file("last"), trainer.checkpoint());
  pp::save_checkpoint(folder.file("best"), trainer.averaged());
  for (const char* name : {"last", "best"}) {
    UpsamplingNetwork loaded = load_network(folder.file(name));
    CHECK(mean_of(evaluate(loaded, clips)).network.lsd == after.network.lsd);
  }
}

TEST_CASE("the loss is the log of the error's amplitude, every window counting alike") {
  const pp::Tensor target = pp::Tensor::zeros({2, 1, 2048});
  pp::Tensor output = pp::Tensor::full({2, 1, 2048}, 0.1);
  output.narrow(0, 1, 1).fill_(0.001);
  const double wanted = 0.25 * (std::log(0.01 + 1e-8) + std::log(1e-6 + 1e-8));
  CHECK(training_loss(output, target, 0).item() == doctest::Approx(wanted).epsilon(kFloatSum));
  CHECK(training_loss(output, target, 1).item() > wanted);
}

TEST_CASE("learning rate: a ramp, then a cosine down to nothing; a longer run stretches it") {
  const TemporaryDirectory folder;
  const ClipSet clips = harmonic_clips(folder);
  Trainer trainer(kModel, kSettings);
  CHECK(trainer.learning_rate() == doctest::Approx(kSettings.learning_rate / 50));
  advance(trainer, clips, 2);
  trainer.set_total_steps(1000);
  CHECK(trainer.settings().steps == 1000);
  CHECK(trainer.steps() == 2);
  CHECK(trainer.learning_rate() == doctest::Approx(kSettings.learning_rate * 3 / 50));
}

TEST_CASE("settings out of range are refused in words") {
  const auto refused = [](TrainSettings settings) {
    return error_of<pp::Error>([&] { return validate(settings, kModel), 0; });
  };
  CHECK(refused({.steps = 0}) == "train: expected --steps of at least 1, got 0");
  CHECK(refused({.batch = 0}) == "train: expected --batch in 1..4096, got 0");
  CHECK(refused({.window = 2050}) == "train: expected --window in 2048..16777216 that 4 divides, got 2050");
  CHECK(refused({.learning_rate = 0}) == "train: expected --lr above 0, got 0");
  CHECK(refused({.spectral_weight = -1}) == "train: expected --spectral-weight of at least 0, got -1");
  const TrainSettings back = train_settings_from(to_texts(kSettings));
  CHECK(to_texts(back) == to_texts(kSettings));
  CHECK(back.learning_rate == kSettings.learning_rate);
}

TEST_CASE("a loss that is no number stops the run") {
  const TemporaryDirectory folder;
  const ClipSet clips = harmonic_clips(folder);
  Trainer trainer(kModel, kSettings);
  Batch batch = make_batch(clips, trainer.loader_options(), 0);
  batch.high[5] = std::nanf("");
  CHECK(error_of<pp::Error>([&] { return trainer.step(batch).loss; }).find("train: at step 1 the loss is nan") == 0);
  CHECK(trainer.steps() == 0);
}

TEST_CASE("a checkpoint of another program is refused in words") {
  pp::Checkpoint checkpoint;
  CHECK(error_of<pp::Error>([&] { return Trainer(checkpoint).steps(); }) ==
        "model: the checkpoint does not say 'factor': not one of this program's");
  checkpoint.texts = to_texts(kModel);
  CHECK(error_of<pp::Error>([&] { return Trainer(checkpoint).steps(); }).find("model: expected a tensor 'base.weight'") == 0);
  checkpoint.model = UpsamplingNetwork(kModel).state_dict();
  CHECK(error_of<pp::Error>([&] { return Trainer(checkpoint).steps(); }) ==
        "train: the checkpoint does not say 'steps': it cannot be resumed");
  checkpoint.texts.merge(to_texts(kSettings));
  checkpoint.texts["batch"] = "0";
  CHECK(error_of<pp::Error>([&] { return Trainer(checkpoint).steps(); }) == "train: expected --batch in 1..4096, got 0");
}

TEST_CASE("other arithmetic: the first steps part no more than rounding of the weights explains, a wrong gradient more") {
  const TemporaryDirectory folder;
  const ClipSet clips = harmonic_clips(folder);
  const std::vector<double> reference = [&] {
    const pp::AlgorithmGuard guard(pp::Algorithm::reference);
    return curve_of(clips, kSettings);
  }();
  const double other = deviation(clips, kSettings, reference);
  CHECK(other > 0);
  CHECK(other < kCurveOverRounding);
  TrainSettings wrong = kSettings;
  wrong.spectral_weight *= 1.001;
  CHECK(deviation(clips, kSettings, curve_of(clips, wrong)) > 10 * kCurveOverRounding);
}

TEST_CASE("a GPU's first steps part from the CPU's no more than rounding of the weights explains") {
  if (pp::device_count(pp::DeviceType::cuda) == 0) SKIP_TEST("no CUDA device");
  const TemporaryDirectory folder;
  const ClipSet clips = harmonic_clips(folder);
  const std::vector<double> curve = [&] {
    const pp::DeviceGuard guard(pp::Device::cuda());
    return curve_of(clips, kSettings);
  }();
  CHECK(deviation(clips, kSettings, curve) < kCurveOverRounding);
}

TEST_CASE("a small file that speaks of a large network takes no more memory than the file, to use or to go on from") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("hostile.safetensors");
  Trainer trainer({.channels = 4, .high_channels = 4, .blocks = 1}, {});
  pp::Checkpoint checkpoint = trainer.checkpoint();
  checkpoint.texts["channels"] = "2048";  // 235 MB of weights
  pp::save_checkpoint(path, checkpoint);
  const auto before = static_cast<std::int64_t>(pp::memory_stats(pp::Device::cpu()).live_bytes);
  const auto taken = [&](const auto& load) {
    pp::reset_peak_memory(pp::Device::cpu());
    CHECK(error_of<pp::Error>(load).find("expected a tensor 'first.weight' of shape (2048, 1, 7)") != std::string::npos);
    return static_cast<std::int64_t>(pp::memory_stats(pp::Device::cpu()).peak_bytes) - before;
  };
  CHECK(taken([&] { return load_network(path).options().rate; }) <=
        static_cast<std::int64_t>(std::filesystem::file_size(path)));
  CHECK(taken([&] { return Trainer(checkpoint).steps(); }) == 0);
}
