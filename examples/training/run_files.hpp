#pragma once
// The folder of a training run while it is written to: lock and logs.

#include <cstdint>
#include <optional>
#include <string>

#include "training/csv_log.hpp"
#include "training/run_folder.hpp"
#include "training/run_lock.hpp"

namespace training {

/// Makes a folder and those above it; true where there was none. Throws Error.
bool make_folder(const std::string& path);

class RunFiles {
 public:
  /// Locks the folder if it is there, at once, as reading the sound takes its time. Throws Error: for a new run where the
  /// folder holds one already, for a resumed one where it holds none, and as RunLock does.
  RunFiles(const RunFolder& run, bool resumes, Warn warn);
  /// Makes and locks the folder if that was not done, and opens the logs; lines past `keep_until` of an earlier run go. Throws
  /// Error, FormatError.
  void open_logs(const std::string& header, const std::string& heldout_header, std::int64_t keep_until);
  [[nodiscard]] CsvLog& log() { return *log_; }
  [[nodiscard]] CsvLog& heldout_log() { return *heldout_log_; }
  /// Makes everything again that somebody has removed or moved since: a long run shall not end for that. Throws Error.
  void restore();

 private:
  void require_new() const;

  RunFolder run_;
  bool resumes_;
  Warn warn_;
  std::optional<RunLock> lock_;
  std::optional<CsvLog> log_;
  std::optional<CsvLog> heldout_log_;
};

}  // namespace training
