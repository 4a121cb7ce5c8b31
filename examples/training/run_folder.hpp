#pragma once
// The files of a training run.

#include <string>

namespace training {

struct RunFolder {
  std::string path;
  /// The complete state of the run, to resume it.
  [[nodiscard]] std::string last() const { return path + "/last.safetensors"; }
  /// The averaged network with the best score, for use.
  [[nodiscard]] std::string best() const { return path + "/best.safetensors"; }
  [[nodiscard]] std::string log() const { return path + "/log.csv"; }
  [[nodiscard]] std::string heldout_log() const { return path + "/heldout.csv"; }
  /// Exists while a training writes to the folder.
  [[nodiscard]] std::string lock() const { return path + "/lock"; }
};

}  // namespace training
