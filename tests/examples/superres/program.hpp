#pragma once
// Runs the program from tests as a user does.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

#include "../training/program.hpp"
#include "io/checkpoint.hpp"
#include "model.hpp"
#include "shared.hpp"
#include "sound.hpp"
#include "support/temporary_directory.hpp"

namespace superres::testing {

inline std::string command_of(const std::string& arguments) { return shell_quoted(SUPERRES_PROGRAM) + " " + arguments; }
inline Outcome run(const std::string& arguments) { return run_shell(command_of(arguments)); }

// A folder of three clips and a network small enough for a test.
struct Workshop {
  polyphase::testing::TemporaryDirectory folder;
  std::string data;
  std::string out;
  std::string train;  // the command

  /// The data and the run are in a folder of this name.
  explicit Workshop(const std::string& name = "shop") : data(folder.file(name + "/data")), out(folder.file(name + "/run")) {
    train = "train --data " + shell_quoted(data) + " --out " + shell_quoted(out) +
            " --channels 4 --high-channels 4 --blocks 1 --batch 2 --window 2048 --heldout-fraction 0.3 ";
    std::filesystem::create_directories(data);
    for (int i = 0; i < 3; ++i) {
      write_sound(data + "/c" + std::to_string(i) + ".wav", 16000, {noise(12000, static_cast<std::uint64_t>(i + 1), 0.1)});
    }
  }
  // A network from 4000 Hz to 16000 Hz with its initial weights.
  [[nodiscard]] std::string untrained(ModelOptions options = {.channels = 4, .high_channels = 4, .blocks = 1}) const {
    const std::string path = folder.file("untrained.safetensors");
    UpsamplingNetwork network(options);
    polyphase::save_checkpoint(path, {.model = network.state_dict(), .texts = to_texts(options)});
    return path;
  }
  [[nodiscard]] std::string last() const { return out + "/last.safetensors"; }
  [[nodiscard]] std::string best() const { return out + "/best.safetensors"; }
  [[nodiscard]] std::string resume() const { return "train --resume --out " + shell_quoted(out) + " "; }
};

}  // namespace superres::testing
