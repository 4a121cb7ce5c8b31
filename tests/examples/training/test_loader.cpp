#include "training/loader.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <set>

#include "sound.hpp"
#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"
#include "tensor/error.hpp"
#include "training/shared.hpp"

using namespace training;
using namespace training::testing;
using polyphase::testing::TemporaryDirectory;

namespace {

ClipSet two_clips(const TemporaryDirectory& folder, std::int64_t cache_bytes) {
  write_sound(folder.file("a.wav"), 16000, {noise(9000, 1)});
  write_sound(folder.file("b.wav"), 16000, {noise(20000, 2)});
  return open_clips({folder.file("a.wav"), folder.file("b.wav")}, {.shortest = 2048, .cache_bytes = cache_bytes},
                    [](const std::string&) {});
}

const LoaderOptions kOptions{.batch = 3, .window = 2048, .context_left = 5, .context_right = 7, .seed = 11};

}  // namespace

TEST_CASE("batches depend on seed and step alone, not on the thread or where it starts") {
  const TemporaryDirectory folder;
  const ClipSet clips = two_clips(folder, 1 << 30);
  Loader loader(clips, kOptions, 4);
  for (std::int64_t step = 4; step < 20; ++step) {
    const TensorBatch batch = loader.next();
    const Batch wanted = make_batch(clips, kOptions, step);
    CHECK(batch.step == step);
    CHECK(batch.low.shape() == polyphase::Shape{3, 1, 5 + 512 + 7});
    CHECK(batch.low.to_vector<float>() == wanted.low);
    CHECK(batch.high.to_vector<float>() == wanted.high);
  }
  LoaderOptions other = kOptions;
  other.seed = 12;
  CHECK(make_batch(clips, other, 4).high != make_batch(clips, kOptions, 4).high);
}

TEST_CASE("the low-rate rows are the high-rate ones after the filter, with their context") {
  const TemporaryDirectory folder;
  const ClipSet clips = two_clips(folder, 1 << 30);
  const Batch batch = make_batch(clips, kOptions, 0);
  REQUIRE(batch.low.size() == 3 * (5 + 512 + 7));
  REQUIRE(batch.high.size() == 3 * 2048);
  const std::vector<float> high(batch.high.begin(), batch.high.begin() + 2048);
  const std::vector<float> low = resample(high, 1, 4);
  for (std::size_t i = 60; i < 450; ++i) CHECK(low[i] == doctest::Approx(batch.low[5 + i]).epsilon(1e-4));
}

TEST_CASE("windows come from everywhere") {
  const TemporaryDirectory folder;
  const ClipSet clips = two_clips(folder, 1 << 30);
  std::set<float> firsts;
  for (std::int64_t step = 0; step < 40; ++step) {
    const Batch batch = make_batch(clips, kOptions, step);
    for (std::size_t n = 0; n < 3; ++n) firsts.insert(batch.high[n * 2048]);
  }
  CHECK(firsts.size() > 110);  // 120 random windows from 6226 positions
}

TEST_CASE("next() throws the errors of the thread") {
  const TemporaryDirectory folder;
  const ClipSet clips = two_clips(folder, 0);
  std::filesystem::remove(folder.file("a.wav"));
  std::filesystem::remove(folder.file("b.wav"));
  Loader loader(clips, kOptions, 0);
  const std::string error = polyphase::testing::error_of<polyphase::FormatError>([&] { return loader.next().step; });
  CHECK(error.find(".wav: no such file") != std::string::npos);
}
