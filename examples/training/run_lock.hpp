#pragma once
// Keeps a second training out of a run's folder.

#include <string>

#include "training/run_folder.hpp"
#include "training/split.hpp"

namespace training {

/// A lock on the file RunFolder::lock(), held until the object or the process ends, however it ends. The file goes with the
/// object; one that a killed process left behind is in nobody's way.
///
/// A lock of fcntl(), as it knows the process that holds it and works on NFS. A file system without locks gets none, and `warn`
/// hears of it.
class RunLock {
 public:
  /// The folder must be there. Throws Error with the process that holds the lock, or the reason why the file cannot be made.
  RunLock(const RunFolder& run, const Warn& warn);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  /// False once somebody has removed or moved the file, and others can lock a new one.
  [[nodiscard]] bool holds() const { return descriptor_ < 0 || is_in_place(); }

 private:
  bool take(const Warn& warn);
  [[nodiscard]] bool is_in_place() const;

  RunFolder run_;
  int descriptor_ = -1;
};

}  // namespace training
