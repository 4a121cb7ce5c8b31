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
  /// Locks the folder if it exists. Make the object before reading the sound, which takes time. Throws Error if the folder of a
  /// new run holds a run, if that of a resumed one holds none, and like RunLock.
  RunFiles(const RunFolder& run, bool resumes, Warn warn);
  /// Makes and locks a new folder, and opens the logs. Removes an earlier run's lines after step `keep_until`. Throws Error,
  /// FormatError.
  void open_logs(const std::string& header, const std::string& heldout_header, std::int64_t keep_until);
  [[nodiscard]] CsvLog& log() { return *log_; }
  [[nodiscard]] CsvLog& heldout_log() { return *heldout_log_; }
  /// Makes folder, lock and logs again if they were removed or moved. A long run must not end because of that. Throws Error.
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
