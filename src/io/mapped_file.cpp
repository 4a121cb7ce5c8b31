#include "io/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "tensor/error.hpp"

namespace polyphase {
namespace {

struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

[[noreturn]] void fail(const std::string& operation, const std::string& path, const std::string& reason) {
  throw FormatError(concat(operation, ": ", path, ": ", reason));
}

std::string system_reason(int error) { return std::generic_category().message(error); }

}  // namespace

MappedFile::MappedFile(const std::string& operation, const std::string& path) {
  // Without O_NONBLOCK, opening a pipe without a writer would wait forever.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.value < 0) fail(operation, path, "cannot be opened: " + system_reason(errno));
  struct stat info {};
  if (::fstat(file.value, &info) != 0) fail(operation, path, "cannot be examined: " + system_reason(errno));
  if (S_ISDIR(info.st_mode)) fail(operation, path, "cannot be read: " + system_reason(EISDIR));
  if (!S_ISREG(info.st_mode)) fail(operation, path, "cannot be read: not a regular file");
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ == 0) return;
  // Writable and private, so that an in-place operation on a tensor read from the file does not crash.
  void* address = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.value, 0);
  if (address == MAP_FAILED) fail(operation, path, concat("mapping ", size_, " bytes failed: ", system_reason(errno)));
  data_ = static_cast<char*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace polyphase
