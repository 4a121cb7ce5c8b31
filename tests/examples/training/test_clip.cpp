#include "training/clip.hpp"

#include <doctest/doctest.h>

#include "sound.hpp"
#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"
#include "tensor/error.hpp"
#include "training/shared.hpp"

using namespace training;
using namespace training::testing;
using polyphase::Error;
using polyphase::testing::error_of;
using polyphase::testing::TemporaryDirectory;

namespace {

constexpr std::int64_t kEnough = 1 << 30;

struct Opened {
  ClipSet set;
  std::vector<std::string> warnings;
};

Opened open(const std::vector<std::string>& paths, const ClipOptions& options) {
  Opened opened;
  opened.set = open_clips(paths, options, [&](const std::string& text) { opened.warnings.push_back(text); });
  return opened;
}

}  // namespace

TEST_CASE("windows are the same from memory and from the file, at any rate") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("a.wav");
  for (const int rate : {16000, 22050, 48000}) {
    write_sound(path, rate, {noise(30011, 1), noise(30011, 2)});
    const ClipSet kept = open({path}, {.rate = 16000, .cache_bytes = kEnough}).set;
    const ClipSet read = open({path}, {.rate = 16000, .cache_bytes = 0}).set;
    REQUIRE(kept.clips.size() == 2);
    CHECK(kept.clips[1].name() == "a:1");
    CHECK(kept.clips[1].length() % 4 == 0);
    for (const std::int64_t start : {std::int64_t{-50}, std::int64_t{0}, std::int64_t{1001}, kept.clips[1].length() / 4 - 60}) {
      CHECK(kept.clips[1].high(4 * start, 801) == read.clips[1].high(4 * start, 801));
      CHECK(kept.clips[1].low(start, 201) == read.clips[1].low(start, 201));
    }
  }
}

TEST_CASE("outside a clip there is silence") {
  const TemporaryDirectory folder;
  write_sound(folder.file("a.wav"), 16000, {noise(4000)});
  const ClipSet set = open({folder.file("a.wav")}, {.cache_bytes = kEnough}).set;
  const std::vector<float> low = set.clips[0].low(-10, 1020);
  for (std::size_t i = 0; i < 10; ++i) {
    CHECK(low[i] == 0);
    CHECK(low[1019 - i] == 0);
  }
  CHECK(low[10] == resample(set.clips[0].high(0, 4000), 1, 4)[0]);
}

TEST_CASE("files that cannot be used are left out, and it is said why") {
  const TemporaryDirectory folder;
  write_sound(folder.file("good.wav"), 16000, {noise(8000)});
  write_sound(folder.file("short.wav"), 16000, {noise(100)});
  write_sound(folder.file("empty.wav"), 16000, {std::vector<float>{}});
  write_sound(folder.file("slow.wav"), 8000, {noise(8000)});
  write_sound(folder.file("absurd.wav"), 2147483647, {noise(8000)});
  polyphase::testing::write_bytes(folder.file("text.wav"), "not sound");
  const ClipOptions options{.rate = 16000, .shortest = 4096};
  const auto path = [&](const char* name) { return folder.file(name); };
  const Opened opened =
      open({path("good.wav"), path("short.wav"), path("empty.wav"), path("slow.wav"), path("text.wav"), path("absurd.wav")},
           options);
  CHECK(opened.set.clips.size() == 1);
  REQUIRE(opened.warnings.size() == 5);
  CHECK(opened.warnings[0] == "left out: " + path("short.wav") + ": expected at least 4096 samples at 16000 Hz, got 100");
  CHECK(opened.warnings[1] == "left out: " + path("empty.wav") + ": there is no sound in it (0 samples)");
  CHECK(opened.warnings[2] == "left out: " + path("slow.wav") + ": expected at least 16000 Hz, got 8000 Hz");
  CHECK(opened.warnings[3].find("left out: " + path("text.wav") + ": expected a ") == 0);
  CHECK(opened.warnings[4] ==
        "left out: " + path("absurd.wav") + ": expected a rate within 256 times 16000 Hz, up or down, got 2147483647 Hz");
  CHECK(error_of<Error>([&] { return open({path("short.wav")}, options).set.rate; }) ==
        "none of the 1 sound files can be used");
}

TEST_CASE("silent channels are left out where they are to be scored, kept in memory or not") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("a.wav");
  write_sound(path, 16000, {noise(8000), std::vector<float>(8000, 0.0F)});
  CHECK(open({path}, {.rate = 16000}).set.clips.size() == 2);
  for (const std::int64_t cache_bytes : {std::int64_t{0}, kEnough}) {
    const Opened opened = open({path}, {.rate = 16000, .cache_bytes = cache_bytes, .silence = false});
    REQUIRE(opened.set.clips.size() == 1);
    CHECK(opened.set.clips[0].name() == "a:0");
    CHECK(opened.warnings == std::vector<std::string>{"left out: " + path + ": expected sound, got silence throughout in a:1"});
  }
}

TEST_CASE("the rate is the one most files have") {
  const TemporaryDirectory folder;
  const auto write = [&](const char* name, int rate) {
    write_sound(folder.file(name), rate, {noise(100)});
    return folder.file(name);
  };
  const std::vector<std::string> paths{write("a.wav", 44100), write("b.wav", 16000), write("c.wav", 16000),
                                       write("d.wav", 44100)};
  CHECK(most_common_rate(paths) == 16000);
  CHECK(most_common_rate({paths[0], paths[1], paths[3]}) == 44100);
  CHECK(most_common_rate({folder.file("none.wav")}) == 0);
}
