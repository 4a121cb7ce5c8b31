#pragma once
// The three things the program does. Each returns the program's exit code and throws polyphase::Error.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "settings.hpp"
#include "shared.hpp"
#include "training/run_folder.hpp"

namespace vocoder {

inline constexpr const char* kDefaultRun = "runs/vocoder";

struct TrainCommand {
  std::string config = "hifigan_v1";  ///< a JSON file, or a name of config_names()
  std::string data;
  RunFolder run{kDefaultRun};
  std::string generator;       ///< initial weights: a file of load_weights(); empty: random
  std::string discriminators;  ///< a do_* file or the like; empty: random
  TrainSettings settings{};    ///< of a new run as complete() gives them
  bool resume = false;
  bool graph = false;            ///< on a GPU: steps are recorded and replayed
  std::int64_t check_every = 0;  ///< steps between held-out checks; 0: a tenth of the run
  std::int64_t cache_megabytes = 1024;
  std::set<std::string> given{};        ///< names of the options that were on the command line
  bool names_one_device = false;        ///< --device was given, and not as `cuda`: in a job that is each process' own GPU
  std::string program = "vocoder";      ///< as the user called it
  std::vector<std::string> repeated{};  ///< options on the command line that a checkpoint does not hold, and their values
};
/// Trains until the steps are done (0) or it is interrupted (kInterruptedExit); either way with a checkpoint.
int train(const TrainCommand& command);

struct EvaluateCommand {
  std::string model = RunFolder{kDefaultRun}.best();  ///< any file of load_model()
  std::string config;                                 ///< a JSON file; empty: the model's own
  std::string data;
  std::string out;   ///< folder for pictures and sound; empty: "eval", next to the model
  std::string json;  ///< file for the numbers; empty: none
  double heldout_fraction = 0.1;
  bool all_files = false;  ///< score every file, not only the held-out ones
};
int evaluate_command(const EvaluateCommand& command);

struct SynthesizeCommand {
  std::string input;   ///< a sound file, whose mel the vocoder gets
  std::string output;  ///< WAV
  std::string model = RunFolder{kDefaultRun}.best();
  std::string config;
};
int synthesize(const SynthesizeCommand& command);

/// The configurations that come with the program.
[[nodiscard]] std::vector<std::string> config_names();
/// The JSON of a configuration: one of config_names(), or a file. Throws Error naming the file and the names.
[[nodiscard]] std::string read_config(const std::string& name);

}  // namespace vocoder
