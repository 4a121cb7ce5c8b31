#pragma once
// Where a training run keeps its files.

#include <string>

namespace training {

struct RunFolder {
  std::string path;
  /// All that the run is, to go on from.
  [[nodiscard]] std::string last() const { return path + "/last.safetensors"; }
  /// The averaged network at its best, for use.
  [[nodiscard]] std::string best() const { return path + "/best.safetensors"; }
  [[nodiscard]] std::string log() const { return path + "/log.csv"; }
  [[nodiscard]] std::string heldout_log() const { return path + "/heldout.csv"; }
  /// There while a training writes to the folder.
  [[nodiscard]] std::string lock() const { return path + "/lock"; }
};

}  // namespace training
