#pragma once
// A file's bytes in memory, read on demand.

#include <cstddef>
#include <string>

namespace polyphase {

/// A memory-mapped file. The file itself is never written: the mapping is private, so a write through data() changes only this
/// process's copy of a page. A file must not be shortened in place while it is mapped (replacing it by rename is allowed, and
/// AtomicFile does that).
class MappedFile {
 public:
  /// `operation` begins the error texts. Throws FormatError with the system's reason, also for anything but a regular file.
  MappedFile(const std::string& operation, const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] char* data() const noexcept { return data_; }  ///< page aligned; null if the file is empty
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace polyphase
