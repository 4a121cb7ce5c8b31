#include "pace.hpp"

#include <doctest/doctest.h>

#include "sound.hpp"
#include "support/temporary_directory.hpp"

using namespace superres;
using namespace superres::testing;
using polyphase::testing::TemporaryDirectory;

TEST_CASE("durations are rounded to what an estimate can know") {
  CHECK(roughly(0.1) == "a few seconds");
  CHECK(roughly(41) == "about 40 seconds");
  CHECK(roughly(95) == "about 1.5 minutes");
  CHECK(roughly(170) == "about 3 minutes");
  CHECK(roughly(599) == "about 10 minutes");
  CHECK(roughly(1234) == "about 21 minutes");
  CHECK(roughly(6000) == "about 1.5 hours");
  CHECK(roughly(100 * 3600) == "about 100 hours");
}

TEST_CASE("a measured pace is of steps and checks, and leaves the run as it was") {
  const TemporaryDirectory folder;
  write_sound(folder.file("a.wav"), 16000, {noise(9000, 1)});
  write_sound(folder.file("b.wav"), 16000, {noise(20000, 2)});
  const auto open = [&](const char* one, const char* other) {
    return open_clips({folder.file(one), folder.file(other)}, {.rate = 16000, .cache_bytes = 1 << 30},
                      [](const std::string&) {});
  };
  const TrainingSound sound{.train = open("a.wav", "b.wav"), .heldout = open("a.wav", "b.wav"), .record = {}};
  Trainer trainer({.channels = 4, .high_channels = 4, .blocks = 1}, {.batch = 2, .window = 2048});
  trainer.step(make_batch(sound.train, trainer.loader_options(), 0));
  std::vector<std::vector<float>> before;
  for (const auto& [name, tensor] : trainer.checkpoint().model) before.push_back(tensor.to_vector<float>());
  const Pace pace = measure_pace(trainer, sound);
  CHECK(pace.step > 0);
  CHECK(pace.step < 10);
  CHECK(pace.check > 0);
  CHECK(trainer.steps() == 1);
  std::size_t i = 0;
  for (const auto& [name, tensor] : trainer.checkpoint().model) CHECK(tensor.to_vector<float>() == before.at(i++));
}
