#pragma once
// The program's three commands. Each returns the program's exit code and throws polyphase::Error. validate() checks the
// options.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "model.hpp"
#include "settings.hpp"
#include "shared.hpp"
#include "training/run_folder.hpp"

namespace superres {

inline constexpr const char* kDefaultRun = "runs/superres";

struct TrainCommand {
  std::string data;
  RunFolder run{kDefaultRun};
  ModelOptions model{};  ///< rate 0: the one most files have
  TrainSettings settings{};
  double minutes = 0;  ///< replaces steps if above 0; a resumed run counts from its start
  bool resume = false;
  std::int64_t check_every = 0;  ///< steps between held-out checks; 0: a tenth of the run
  std::int64_t cache_megabytes = 1024;
  std::set<std::string> given{};        ///< names of the options that were on the command line
  std::string program = "superres";     ///< the program's name on the command line
  std::vector<std::string> repeated{};  ///< options on the command line that a checkpoint does not hold, with their values
};
/// Throws Error with the option, its range and its value for options that no training can have.
void validate(const TrainCommand& command);
/// Trains until the steps are done (returns 0) or it is interrupted (kInterruptedExit). Saves a checkpoint in both cases.
int train(const TrainCommand& command);

struct EvalCommand {
  std::string model = RunFolder{kDefaultRun}.best();
  std::string data;
  std::string out;   ///< folder for pictures and sound; empty: "eval", next to the model
  std::string json;  ///< file for the numbers; empty: none
  std::string clip;  ///< the file to draw; empty: the first
  double heldout_fraction = 0.1;
  bool all_files = false;  ///< score every file, not only the held-out ones
};
int eval(const EvalCommand& command);

struct UpsampleCommand {
  std::string input;
  std::string output;
  std::string model = RunFolder{kDefaultRun}.best();
  SampleFormat format = SampleFormat::pcm16;
  std::int64_t chunk = 16384;     ///< low-rate samples computed at a time
  bool allow_lower_rate = false;  ///< the input may have a higher rate than the model gives
};
int upsample(const UpsampleCommand& command);

}  // namespace superres
