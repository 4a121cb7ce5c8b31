// The program as a user sees it: texts, exit codes, files.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "device/backend.hpp"
#include "program.hpp"
#include "shared.hpp"
#include "sound.hpp"
#include "support/skip.hpp"
#include "support/temporary_directory.hpp"
#include "support/tolerance.hpp"

using namespace superres;
using namespace superres::testing;
using polyphase::testing::kFloatSum;
using polyphase::testing::read_bytes;
using polyphase::testing::TemporaryDirectory;

namespace fs = std::filesystem;

TEST_CASE("train, resume, evaluate, upsample") {
  const Workshop shop;
  const Outcome trained = run(shop.train + "--steps 4");
  CHECK(trained.code == 0);
  CHECK(has(trained.text, "sound    2 clips to learn from (2 s), 1 held out (1 s)"));
  CHECK(has(trained.text, "network  4000 Hz -> 16000 Hz"));
  CHECK(has(trained.text, "step 4/4 | loss "));
  CHECK(has(trained.text, "log-spectral distance"));
  CHECK(read_bytes(shop.out + "/log.csv").find("step,seconds,loss,snr_db,learning_rate,gradient_norm\n1,") == 0);

  const Outcome again = run(shop.train + "--steps 4");
  CHECK(again.code == 1);
  CHECK(has(again.text, "already holds a run: continue it (--resume) or choose another --out"));
  const Outcome changed = run(shop.train + "--resume --seed 5");
  CHECK(changed.code == 1);
  CHECK(has(changed.text, "was started with seed = 0, got 5"));
  const Outcome resumed = run(shop.train + "--resume --steps 6");
  CHECK(resumed.code == 0);
  CHECK(has(resumed.text, "resumed, steps 5 to 6"));
  const Outcome fewer = run(shop.train + "--resume --steps 5");
  CHECK(fewer.code == 1);
  CHECK(has(fewer.text, "superres: train --resume: expected --steps of at least the 6 done, got 5"));
  const Outcome longer = run(shop.train + "--resume --minutes 0.01");
  CHECK(longer.code == 0);
  CHECK(has(read_bytes(shop.out + "/log.csv"), "\n27,"));  // twenty steps to measure the speed, then as many as fit

  const std::string model = " --model " + shop.out + "/best.safetensors ";
  const Outcome scored = run("eval --heldout-fraction 0.3 --data " + shop.data + model + "--json " + shop.out + "/scores.json");
  CHECK(scored.code == 0);
  CHECK(has(scored.text, "the network: log-spectral distance"));
  CHECK(has(read_bytes(shop.out + "/scores.json"), "\"lsd_below_sinc\""));
  for (const char* name : {"spectrograms.gp", "network.matrix", "loss.gp", "log.csv"})
    CHECK(fs::exists(shop.out + "/eval/" + name));
  const std::string log = read_bytes(shop.out + "/log.csv");
  CHECK(run("eval --all --data " + shop.data + model + "--out " + shop.out).code == 0);
  CHECK(read_bytes(shop.out + "/log.csv") == log);

  const std::string input = shop.folder.file("in.wav");
  const std::string output = shop.folder.file("out.wav");
  write_sound(input, 4000, {noise(9001, 1, 0.1), noise(9001, 2, 0.1)});
  CHECK(run("upsample --format float32 " + input + " " + output + model).code == 0);
  const Audio whole = read_audio(output);
  CHECK(whole.rate == 16000);
  REQUIRE(whole.channels.size() == 2);
  CHECK(whole.frames() == 36004);
  CHECK(run("upsample --format float32 --chunk 1000 " + input + " " + output + model).code == 0);
  const Audio chunked = read_audio(output);
  for (std::size_t i = 0; i < 36004; ++i) CHECK(std::abs(whole.channels[1][i] - chunked.channels[1][i]) <= 1e-6F);

  write_sound(input, 11025, {noise(11025, 1, 0.1)});
  const Outcome resampled = run("upsample " + input + " " + output + model);
  CHECK(resampled.code == 0);
  CHECK(has(resampled.text, "is at 11025 Hz and the network takes 4000 Hz: resampled first"));
  CHECK(read_audio(output).frames() == 16000);

  write_sound(input, 2147483647, {noise(100)});
  const Outcome absurd = run("upsample " + input + " " + output + model);
  CHECK(absurd.code == 1);
  CHECK(has(absurd.text, "superres: " + input + ": expected a rate within 256 times 4000 Hz"));
  CHECK(has(absurd.text, "got 2147483647 Hz"));
}

TEST_CASE("silence is not scored, and of training it leaves the SNR a number") {
  const Workshop shop;
  for (const char* part : {"/train", "/heldout"}) {
    fs::create_directory(shop.data + part);
    write_sound(shop.data + part + "/silent.wav", 16000, {std::vector<float>(12000, 0.0F)});
    fs::rename(shop.data + (part[1] == 't' ? "/c0.wav" : "/c1.wav"), shop.data + part + "/sound.wav");
  }
  const std::string warning =
      "superres: warning: left out: " + shop.data + "/heldout/silent.wav: expected sound, got silence throughout";
  const auto is_right = [&](const Outcome& outcome) {
    CHECK_MESSAGE(outcome.code == 0, outcome.text);
    CHECK_MESSAGE(has(outcome.text, warning), outcome.text);
    CHECK_MESSAGE(!has(outcome.text, "nan"), outcome.text);
    CHECK_MESSAGE(!has(outcome.text, "inf"), outcome.text);
  };
  is_right(run(shop.train + "--steps 16 --check-every 16"));
  is_right(run("eval --data " + shop.data + " --model " + shop.out + "/best.safetensors"));
}

TEST_CASE("two runs with one seed are one run, bit by bit") {
  const Workshop shop;
  CHECK(run(shop.train + "--steps 3 --threads 2").code == 0);
  const std::string first = read_bytes(shop.out + "/best.safetensors");
  fs::remove_all(shop.out);
  CHECK(run(shop.train + "--steps 3 --threads 2").code == 0);
  CHECK(read_bytes(shop.out + "/best.safetensors") == first);
}

TEST_CASE("on a GPU: the same bits twice, the CPU's loss at the first step, and a run that is resumed on the CPU") {
  if (polyphase::device_count(polyphase::DeviceType::cuda) == 0) SKIP_TEST("no CUDA device");
  const Workshop shop;
  const auto first_loss = [&] {
    const std::string log = read_bytes(shop.out + "/log.csv");
    const std::size_t row = log.find("\n1,") + 3;
    return std::stod(log.substr(log.find(',', row) + 1));
  };
  CHECK(run(shop.train + "--steps 3").code == 0);
  const double on_cpu = first_loss();
  fs::remove_all(shop.out);
  CHECK(run(shop.train + "--steps 3 --device cuda").code == 0);
  CHECK(first_loss() == doctest::Approx(on_cpu).epsilon(kFloatSum));
  const std::string first = read_bytes(shop.out + "/best.safetensors");
  fs::remove_all(shop.out);
  CHECK(run(shop.train + "--steps 3 --device cuda").code == 0);
  CHECK(read_bytes(shop.out + "/best.safetensors") == first);
  CHECK(run(shop.train + "--resume --steps 5").code == 0);
  CHECK(run(shop.train + "--resume --steps 7 --device cuda").code == 0);
  const std::string scored = "eval --all --data " + shop.data + " --model " + shop.out + "/best.safetensors";
  CHECK(run(scored + " --device cuda").code == 0);
}

TEST_CASE("mistakes are reported in one sentence: 2 for usage, 1 for the rest") {
  const TemporaryDirectory folder;
  const std::string nowhere = folder.file("nowhere");
  struct Case {
    std::string arguments;
    int code;
    std::string words;
  };
  write_sound(folder.file("empty.wav"), 4000, {std::vector<float>{}});
  const std::string out = " --out " + folder.file("run");
  for (const Case& one : {
           Case{"", 2, "expected a subcommand: train, eval or upsample"},
           Case{"train --colour red", 2, "--colour"},
           Case{"train --steps many", 2, "--steps"},
           Case{"upsample in.wav", 2, "output is required"},
           Case{"train --steps 5 --minutes 2", 2, "--minutes"},
           Case{"train --data " + nowhere + out, 1, "superres: " + nowhere + ": expected a folder of WAV"},
           Case{"train --data " + folder.path() + out, 1, "(one to learn from, one to hold out), found 1"},
           Case{"train --factor 3" + out, 2, "superres: model: expected a factor of 2, 4 or 8, got 3"},
           Case{"train --rate 16001" + out, 2, "superres: model: expected a rate that 4 divides, got 16001 Hz"},
           Case{"train --window 100" + out, 2, "superres: train: expected --window in 2048..16777216 that 4 divides, got 100"},
           Case{"train --steps 0" + out, 2, "superres: train: expected --steps of at least 1, got 0"},
           Case{"train --resume --steps -5" + out, 2, "superres: train: expected --steps of at least 1, got -5"},
           Case{"train --batch 0" + out, 2, "superres: train: expected --batch in 1..4096, got 0"},
           Case{"train --lr -1" + out, 2, "superres: train: expected --lr above 0, got -1"},
           Case{"train --heldout-fraction 2" + out, 2, "superres: train: expected --heldout-fraction between 0 and 1, got 2"},
           Case{"train --device tpu" + out, 2, "superres: device: expected \"cpu\""},
           Case{"train --device cuda:99" + out, 1, "cuda:99"},
           Case{"train --resume" + out, 1, "there is no run to continue"},
           Case{"eval --heldout-fraction 2", 2, "--heldout-fraction"},
           Case{"eval --model " + nowhere, 1, nowhere},
           Case{"upsample a.wav b.wav --model " + nowhere, 1, nowhere},
       }) {
    const Outcome outcome = run(one.arguments);
    CHECK_MESSAGE(outcome.code == one.code, one.arguments, ": ", outcome.text);
    CHECK_MESSAGE(has(outcome.text, one.words), outcome.text);
  }
  CHECK_FALSE(fs::exists(folder.file("run")));
}

TEST_CASE("a full disk costs nothing that was there") {
  if (!fs::exists("/dev/full")) SKIP_TEST("no /dev/full");
  const Workshop shop;
  CHECK(run(shop.train + "--steps 2").code == 0);
  write_sound(shop.folder.file("in.wav"), 4000, {noise(100)});
  const Outcome outcome =
      run("upsample " + shop.folder.file("in.wav") + " /dev/full --model " + shop.out + "/best.safetensors");
  CHECK(outcome.code == 1);
  CHECK(has(outcome.text, "/dev/full"));
}

TEST_CASE("help ends well") {
  CHECK(run("--help").code == 0);
  CHECK(has(run("train --help").text, "--causal"));
}
