#include "trainer.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "evaluation.hpp"
#include "io/safetensors.hpp"
#include "networks/files/model_file.hpp"
#include "published.hpp"
#include "small.hpp"
#include "support/helpers.hpp"
#include "support/skip.hpp"
#include "support/temporary_directory.hpp"

using namespace vocoder;
using namespace vocoder::testing;
using polyphase::testing::error_of;
using polyphase::testing::TemporaryDirectory;
using polyphase::testing::uniform_f64;

namespace {

TrainSettings settings(const std::string& more = "") { return complete({.config = small_config(more), .steps = 4}, 1); }

pp::Tensor audio(std::uint64_t step) { return uniform_f64({2, 1, 2048}, -0.5, 0.5, step + 1).to(pp::DType::f32); }

bool same(const pp::NamedTensors& a, const pp::NamedTensors& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].first != b[i].first || a[i].second.to_vector<float>() != b[i].second.to_vector<float>()) return false;
  return true;
}

// The original's generator lists all its ups before its resblocks.
std::size_t place_there(pp::Network& generator, std::size_t ours) {
  std::vector<std::string> order;
  const pp::NamedTensors parameters = generator.named_parameters();
  for (const char* list : {"conv_pre", "ups.0", "ups.1", "resblocks.0", "resblocks.1", "conv_post"})
    for (const auto& [name, tensor] : parameters)
      if (name.starts_with(list)) order.push_back(name);
  return static_cast<std::size_t>(std::find(order.begin(), order.end(), parameters[ours].first) - order.begin());
}

}  // namespace

TEST_CASE("a run that stops and goes on has the bits of one that did not") {
  const TemporaryDirectory folder;
  TrainSettings with_average = settings();
  with_average.average_decay = 0.9;
  Trainer whole(with_average);
  Trainer first(with_average);
  for (Trainer* trainer : {&whole, &first}) trainer->set_steps_per_epoch(2);
  for (std::uint64_t step = 0; step < 4; ++step) whole.step(audio(step));
  for (std::uint64_t step = 0; step < 2; ++step) first.step(audio(step));
  pp::save_checkpoint(folder.file("last.safetensors"), first.checkpoint());
  Trainer second(load_finite_checkpoint(folder.file("last.safetensors")));
  second.set_steps_per_epoch(2);
  for (std::uint64_t step = 2; step < 4; ++step) second.step(audio(step));
  const pp::Checkpoint expected = whole.checkpoint(), got = second.checkpoint();
  CHECK(got.step == 4);
  CHECK(same(got.model, expected.model));
  for (const auto& [name, state] : expected.states) CHECK(same(got.state(name).tensors, state.tensors));
  CHECK(second.gan().learning_rate() == 0.0005);  // one epoch was over before the last step
}

TEST_CASE("recorded steps have the bits of eager ones, and the learning rates of their steps") {
  if (pp::cuda::device_count() == 0) SKIP_TEST("it needs cuda:0");
  const pp::DeviceGuard on_gpu(pp::Device::cuda(0));
  for (const char* precision : {"fp32", "tf32", "bf16"}) {
    TrainSettings wanted = settings();
    wanted.precision = precision;
    wanted.average_decay = 0.9;
    Trainer eager(wanted), recorded(wanted);
    recorded.record_steps();
    for (Trainer* trainer : {&eager, &recorded}) trainer->set_steps_per_epoch(5);
    for (std::uint64_t step = 0; step < 8; ++step) {
      const pp::Tensor sound = audio(step).to(pp::Device::cuda(0));
      CHECK(recorded.step(sound).generator() == eager.step(sound).generator());
    }
    CHECK(recorded.gan().learning_rate() == 0.0005);
    CHECK(same(recorded.checkpoint().model, eager.checkpoint().model));
    CHECK_THROWS_AS((void)recorded.step(audio(0).narrow(0, 0, 1).to(pp::Device::cuda(0))), pp::ShapeError);
  }
}

TEST_CASE("weights leave under the originals' names, and come back with their bits") {
  const TemporaryDirectory folder;
  Trainer trainer(settings());
  trainer.step(audio(0));
  const std::string path = folder.file("best.safetensors"), discriminators = folder.file("do.safetensors");
  trainer.save_generator(path);
  pp::save_safetensors(discriminators, discriminator_state(trainer.gan()));
  CHECK(pp::load_safetensors(path).find("ups.1.weight_v") != nullptr);
  CHECK(pp::load_safetensors(discriminators).find("msd.discriminators.0.convs.0.weight_orig") != nullptr);
  CHECK(pp::load_model(path).network == "hifigan");

  TrainSettings other = settings();
  other.seed = 99;
  Trainer fresh(other);
  fresh.load_published(path, discriminators);
  CHECK(same(fresh.gan().generator().state_dict(), trainer.gan().generator().state_dict()));
  CHECK(same(discriminator_state(fresh.gan()), discriminator_state(trainer.gan())));
}

// As load_torch() gives a do_* file: tensors by path, and the rest as JSON.
TEST_CASE("a do_* file holds the optimizers' states and the epoch") {
  const TemporaryDirectory folder;
  TrainSettings later = settings();
  later.decays_before = 3;  // as the file will say
  Trainer trainer(later);
  trainer.set_steps_per_epoch(100);
  trainer.step(audio(0));
  pp::NamedTensors tensors = discriminator_state(trainer.gan());
  const auto add_states = [&](const std::string& name, const pp::Optimizer& optimizer) {
    std::string steps;
    for (std::size_t i = 0; i < optimizer.parameters().size(); ++i)
      steps += pp::concat(i == 0 ? "" : ", ", '"', i, R"(": {"step": 1})");
    for (const auto& [key, tensor] : optimizer.state().tensors) {
      const std::size_t ours = std::stoul(key.substr(0, key.find('.')));
      const std::size_t there = name == "optim_g" ? place_there(trainer.gan().generator(), ours) : ours;
      tensors.emplace_back(pp::concat(name, ".state.", there, key.ends_with("momentum") ? ".exp_avg" : ".exp_avg_sq"), tensor);
    }
    return '"' + name + R"(": {"state": {)" + steps + "}}";
  };
  const std::string plain = "{" + add_states("optim_g", trainer.gan().generator_optimizer()) + ", " +
                            add_states("optim_d", trainer.gan().discriminator_optimizer()) + R"(, "steps": 1, "epoch": 3})";
  pp::save_safetensors(folder.file("do_00000001"), tensors, {{"plain", plain}});
  trainer.save_generator(folder.file("g_00000001"));

  Trainer resumed(settings());
  resumed.set_steps_per_epoch(100);
  resumed.load_published(folder.file("g_00000001"), folder.file("do_00000001"));
  trainer.step(audio(1));
  resumed.step(audio(1));
  CHECK(resumed.settings().decays_before == 3);
  CHECK(resumed.gan().learning_rate() == 0.001 * 0.125);
  for (const auto& [name, state] : resumed.checkpoint().states)
    CHECK(same(state.tensors, trainer.checkpoint().state(name).tensors));
  CHECK(resumed.gan().generator_optimizer().steps() == 2);
}

TEST_CASE("files that do not fit are refused with their names") {
  const TemporaryDirectory folder;
  Trainer trainer(settings());
  const std::string path = folder.file("do.safetensors");
  pp::save_safetensors(path, {{"mpd.x", pp::Tensor::ones({1})}});
  CHECK(error_of<pp::FormatError>([&] {
          trainer.load_published("", path);
          return 0;
        }).starts_with(path + ": load_state_dict: the state does not fit the module; missing: discriminators.0"));
  pp::save_safetensors(path, {{"conv_pre.weight_g", pp::Tensor::ones({1})}});
  CHECK(error_of<pp::FormatError>([&] {
          trainer.load_published("", path);
          return 0;
        }) == path + ": expected tensors mpd.*, got none");
  CHECK(error_of<pp::Error>([] { return settings(R"(, "use_cqtd_instead_of_mrd": true)"); }).find("use_cqtd") !=
        std::string::npos);
}

TEST_CASE("scores: a signal is at distance 0 from itself") {
  Trainer trainer(settings());
  const Vocoder vocoder{trainer.gan().generator(), trainer.settings().config};
  const std::vector<float> sound = uniform_f64({5000}, -0.5, 0.5).to(pp::DType::f32).to_vector<float>();
  CHECK(score(vocoder, sound, sound).mel == 0);
  CHECK(score(vocoder, sound, sound).stft == 0);
  const std::vector<float> output = resynthesize(vocoder, sound);
  CHECK(output.size() == sound.size());
  CHECK(score(vocoder, sound, output).mel > 0);
  CHECK_THROWS_AS((void)score(vocoder, sound, {0.F}), pp::ShapeError);
}
