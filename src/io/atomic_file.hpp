#pragma once
// Writes a file so that it is never visible half-written.

#include <cstddef>
#include <optional>
#include <string>

namespace polyphase {

/// A file that appears complete, under its name, when commit() returns, and otherwise not at all.
///
/// Bytes go to a temporary file in the same directory, which is fsynced and renamed to the final name; then the directory is
/// fsynced. A reader sees the old file or the new one. Without commit(), and after any error, the temporary file is removed and
/// the old file is unchanged. The temporary file of a killed process (NAME.tmp-PID-N) is removed when the next file of that
/// name is begun; a living process holds a lock on its own, which protects it. A symbolic link is followed, even to a file that
/// does not exist yet; the mode of an old file is kept.
class AtomicFile {
 public:
  /// Creates the temporary file. `operation` begins the error texts. Throws FormatError with the system's reason, also if the
  /// name belongs to something that is not a regular file, or to a file that may not be written.
  AtomicFile(std::string operation, std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends bytes. Throws FormatError with the offset and the system's reason (disk full, quota, ...).
  void write(const void* data, std::size_t bytes);
  /// Writes over bytes that were appended before, from `offset` on. Throws FormatError, also past what was written.
  void rewrite(std::size_t offset, const void* data, std::size_t bytes);
  /// Makes the file permanent under its name; no writes are allowed afterwards. Throws FormatError.
  void commit();

 private:
  [[noreturn]] void fail(const std::string& what, int error);
  void open_temporary();
  [[nodiscard]] bool lock_temporary();
  void sync_directory();
  void discard() noexcept;

  std::string operation_;
  std::string path_;    // as given, for the texts
  std::string target_;  // with a final symbolic link resolved
  std::string temporary_;
  int descriptor_ = -1;
  std::size_t written_ = 0;
  std::optional<unsigned> mode_;  // of the old file, if there is one
};

}  // namespace polyphase
