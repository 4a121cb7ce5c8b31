#pragma once
// Prevents a second training in a run's folder.

#include <string>

#include "training/run_folder.hpp"
#include "training/split.hpp"

namespace training {

/// A lock on the file RunFolder::lock(), held until the object or the process ends, in whatever way. The object removes the
/// file; a file that a killed process left has no effect.
///
/// It is a lock of fcntl(), which knows the process that holds it and works on NFS. On a file system without locks there is
/// none, and `warn` is called.
class RunLock {
 public:
  /// The folder must exist. Throws Error with the process that holds the lock, or the reason why the file cannot be made.
  RunLock(const RunFolder& run, const Warn& warn);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  /// False once the file was removed or moved, so that another process could lock a new one.
  [[nodiscard]] bool holds() const { return descriptor_ < 0 || is_in_place(); }

 private:
  bool take(const Warn& warn);
  [[nodiscard]] bool is_in_place() const;

  RunFolder run_;
  int descriptor_ = -1;
};

}  // namespace training
