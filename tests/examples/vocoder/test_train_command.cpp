// The program as a person calls it.

#include "../training/program.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "../training/sound.hpp"
#include "io/checkpoint.hpp"
#include "shared.hpp"
#include "small.hpp"
#include "support/temporary_directory.hpp"
#include "support/tolerance.hpp"

using namespace vocoder;
using namespace vocoder::testing;
using namespace training::testing;

namespace {

namespace fs = std::filesystem;

Outcome run(const std::string& arguments) { return run_shell(shell_quoted(VOCODER_PROGRAM) + " " + arguments); }

struct Workshop {
  polyphase::testing::TemporaryDirectory folder;
  std::string data = folder.file("data"), config = folder.file("config.json");

  Workshop() {
    fs::create_directories(data);
    write_file(config, small_config());
    for (int i = 0; i < 3; ++i)
      write_sound(data + "/c" + std::to_string(i) + ".wav", 8000, {noise(9000, static_cast<std::uint64_t>(i + 1), 0.1)});
  }
  [[nodiscard]] std::string train(const std::string& out, const std::string& more) const {
    return "train --config " + config + " --data " + data + " --heldout-fraction 0.3 --out " + folder.file(out) + " " + more;
  }
};

std::vector<std::vector<float>> weights_of(const std::string& path) {
  std::vector<std::vector<float>> values;
  for (const auto& [name, tensor] : polyphase::load_checkpoint(path).model) values.push_back(tensor.to_vector<float>());
  return values;
}

// The columns of a log's last line.
std::vector<double> last_line(const std::string& path) {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) last = line;
  std::vector<double> values;
  std::stringstream columns(last);
  for (std::string column; std::getline(columns, column, ',');) values.push_back(std::stod(column));
  return values;
}

}  // namespace

TEST_CASE("three steps, resumed in the middle, have the bits of an unbroken run; then scores and sound") {
  const Workshop shop;
  const Outcome whole = run(shop.train("whole", "--steps 3"));
  REQUIRE_MESSAGE(whole.code == 0, whole.text);
  CHECK(has(whole.text, "mpd and msd"));
  REQUIRE(run(shop.train("parts", "--steps 2")).code == 0);
  const Outcome resumed = run("train --resume --steps 3 --out " + shop.folder.file("parts"));
  REQUIRE_MESSAGE(resumed.code == 0, resumed.text);
  CHECK(weights_of(shop.folder.file("parts/last.safetensors")) == weights_of(shop.folder.file("whole/last.safetensors")));
  for (const char* name : {"best.safetensors", "best_discriminators.safetensors", "log.csv", "heldout.csv", "loss.gp"})
    CHECK(fs::exists(shop.folder.file(std::string("whole/") + name)));

  const std::string model = " --model " + shop.folder.file("whole/best.safetensors");
  const Outcome scores = run("evaluate --all --data " + shop.data + model + " --json " + shop.folder.file("scores.json"));
  REQUIRE_MESSAGE(scores.code == 0, scores.text);
  CHECK(has(scores.text, "mel distance"));
  CHECK(fs::exists(shop.folder.file("whole/eval/c0.vocoder.wav")));
  const Outcome sound = run("synthesize " + shop.data + "/c1.wav " + shop.folder.file("out.wav") + model);
  REQUIRE_MESSAGE(sound.code == 0, sound.text);
  CHECK(read_audio(shop.folder.file("out.wav")).channels[0].size() == 9000);

  const Outcome fine_tuned = run(shop.train("tuned", "--steps 1 --accumulate 2 --recompute --ema 0.9 --generator " +
                                                         shop.folder.file("whole/best.safetensors") + " --discriminators " +
                                                         shop.folder.file("whole/best_discriminators.safetensors")));
  CHECK_MESSAGE(fine_tuned.code == 0, fine_tuned.text);
}

// The ranks' gradients are averaged in another order than one process adds them up in f32.
TEST_CASE("two processes take the steps of one, within rounding") {
  const Workshop shop;
  // Two processes need two GPUs or none.
  REQUIRE(run_shell("CUDA_VISIBLE_DEVICES= " + shell_quoted(VOCODER_PROGRAM) + " " + shop.train("one", "--steps 2")).code == 0);
  const std::string rank = shell_quoted(VOCODER_PROGRAM) + " " + shop.train("two", "--steps 2 --threads 1");
  const std::string job = "CUDA_VISIBLE_DEVICES= POLYPHASE_WORLD=2 POLYPHASE_ADDRESS=" + shop.folder.file("meeting");
  const Outcome both =
      run_shell("(" + job + " POLYPHASE_RANK=1 " + rank + " & " + job + " POLYPHASE_RANK=0 " + rank + "; wait)");
  CHECK_MESSAGE(has(both.text, "2 processes, each with 1 segment"), both.text);
  const std::vector<double> one = last_line(shop.folder.file("one/log.csv")), two = last_line(shop.folder.file("two/log.csv"));
  REQUIRE_MESSAGE(two.size() == one.size(), both.text);
  for (const std::size_t column : {2U, 3U, 4U, 5U, 6U})
    CHECK(two[column] == doctest::Approx(one[column]).epsilon(polyphase::testing::kCurveRounding));
}

TEST_CASE("SIGTERM to one of two processes: both leave after the same step, saved, and one process goes on") {
  const Workshop shop;
  const std::string job = "CUDA_VISIBLE_DEVICES= POLYPHASE_WORLD=2 POLYPHASE_ADDRESS=" + shop.folder.file("meeting");
  const std::string rank =
      " exec " + shell_quoted(VOCODER_PROGRAM) + " " + shop.train("run", "--steps 100000 --check-every 100000 --threads 1");
  const auto start = [&](int r) { return "(export " + job + " POLYPHASE_RANK=" + std::to_string(r) + ";" + rank + ") & "; };
  // Three lines of the log are two steps.
  const Outcome both =
      run_shell("{ " + start(0) + "a=$!; " + start(1) + "b=$!; until [ $(wc -l < " + shop.folder.file("run/log.csv") +
                ") -ge 3 ]; do kill -0 $a || exit 9; sleep 0.1; done; kill -TERM $b; begin=$(date +%s); " +
                "wait $a; echo first $?; wait $b; echo second $?; echo took $(($(date +%s) - begin)); }");
  CHECK_MESSAGE(has(both.text, "first 130"), both.text);
  CHECK_MESSAGE(has(both.text, "second 130"), both.text);
  CHECK(has(both.text, "continue with"));
  const std::size_t took = both.text.find("took ");
  REQUIRE(took != std::string::npos);
  CHECK(std::stoi(both.text.substr(took + 5)) < 10);
  const auto done = static_cast<int>(last_line(shop.folder.file("run/log.csv"))[0]);
  CHECK(polyphase::load_checkpoint(shop.folder.file("run/last.safetensors")).step == done);
  const Outcome alone = run("train --resume --out " + shop.folder.file("run") + " --steps " + std::to_string(done + 1));
  CHECK_MESSAGE(alone.code == 0, alone.text);
  CHECK(last_line(shop.folder.file("run/log.csv"))[0] == done + 1);
}

TEST_CASE("bad input: one sentence, and no run") {
  const Workshop shop;
  const auto is_refused = [&](const std::string& more, int code, const std::string& sentence) {
    const Outcome outcome = run(shop.train("bad", more));
    CHECK(outcome.code == code);
    CHECK_MESSAGE(has(outcome.text, sentence), outcome.text);
    CHECK(!fs::exists(shop.folder.file("bad/last.safetensors")));
  };
  is_refused("--batch 3 --accumulate 2", 2, "train: expected --accumulate that divides a process' batch of 3, got 2");
  is_refused("--segment 100", 2, "train: expected --segment to be a multiple of hop_size=64 up to 16777216, got 100");
  is_refused("--precision f16", 2, "train: expected --precision fp32, tf32 or bf16, got f16");
  is_refused("--graph --device cpu", 1, "train: expected a GPU for --graph, got cpu");
  is_refused("--ema 1", 2, "train: expected --ema in [0, 1), got 1");
  is_refused("--generator " + shop.data + "/c0.wav", 1, "c0.wav: ");
  write_file(shop.config, "{}");
  is_refused("", 2, "gan: config: expected hop_size");
  CHECK(has(run("train --config nothing.json").text, "nothing.json: expected a JSON file or one of bigvgan_base_22khz_80band"));
  CHECK(has(run("train --resume --out " + shop.folder.file("none")).text, "there is no run to continue"));
}
