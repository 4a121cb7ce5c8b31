#include "io/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tensor/error.hpp"

namespace polyphase {
namespace {

namespace fs = std::filesystem;

std::string directory_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Different in every process and for every file of a process, and within what file systems take for any name that they take.
std::string temporary_name(const std::string& target) {
  static std::atomic<unsigned> counter{0};
  constexpr std::size_t kOfName = 100;
  const fs::path path(target);
  const std::string start = path.filename().string().substr(0, kOfName);
  return (path.parent_path() / concat(start, ".tmp-", ::getpid(), "-", counter++)).string();
}

// What a path stands for: final symbolic links followed, to a file that need not be there.
std::string followed(const std::string& path) {
  constexpr int kMostLinks = 40;  // as Linux has it; what is still a link then is refused by stat
  fs::path target(path);
  std::error_code error;
  for (int links = 0; links < kMostLinks && fs::is_symlink(target, error); ++links) {
    const fs::path next = fs::read_symlink(target, error);
    if (error) break;
    target = target.parent_path() / next;
  }
  return target.string();
}

}  // namespace

AtomicFile::AtomicFile(std::string operation, std::string path) : operation_(std::move(operation)), path_(std::move(path)) {
  if (path_.empty()) fail("cannot be created", ENOENT);
  target_ = followed(path_);
  struct stat info {};
  if (::stat(target_.c_str(), &info) == 0) {
    // A rename would put a plain file where a device or a pipe was.
    if (!S_ISREG(info.st_mode)) fail("cannot be written", S_ISDIR(info.st_mode) ? EISDIR : ENOTSUP);
    if (::faccessat(AT_FDCWD, target_.c_str(), W_OK, AT_EACCESS) != 0) fail("cannot be written", errno);
    mode_ = info.st_mode & 07777U;
  } else if (errno == ELOOP) {
    fail("cannot be written", errno);
  }
  open_temporary();
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::open_temporary() {
  constexpr int kAttempts = 100;  // a name may be left over from a process of the same number that was killed
  for (int attempt = 0; descriptor_ < 0 && attempt < kAttempts; ++attempt) {
    temporary_ = temporary_name(target_);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  if (descriptor_ < 0) {
    const int error = errno;
    temporary_.clear();
    fail("cannot be created", error);
  }
  if (mode_ && ::fchmod(descriptor_, static_cast<mode_t>(*mode_)) != 0) fail("the old file's mode cannot be kept", errno);
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  constexpr std::size_t kLargestCall = std::size_t{1} << 30;  // Linux takes no more than 2 GiB at once
  const char* next = static_cast<const char*>(data);
  for (std::size_t left = bytes; left > 0;) {
    const ssize_t count = ::write(descriptor_, next, std::min(left, kLargestCall));
    if (count < 0) {
      if (errno == EINTR) continue;
      fail(concat("writing failed after ", written_, " bytes"), errno);
    }
    next += count;
    left -= static_cast<std::size_t>(count);
    written_ += static_cast<std::size_t>(count);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail(concat("fsync failed after ", written_, " bytes"), errno);
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) fail(concat("closing failed after ", written_, " bytes"), errno);
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) fail("renaming the finished file failed", errno);
  temporary_.clear();
  sync_directory();
}

// The new name lives in the directory, so it survives a power cut only once the directory is on the disk too.
void AtomicFile::sync_directory() {
  const int directory = ::open(directory_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;  // a directory that may be written but not read: nothing more can be done
  const int status = ::fsync(directory);
  const int error = errno;
  ::close(directory);
  // Some network file systems know no fsync of a directory.
  if (status != 0 && error != EINVAL && error != ENOTSUP && error != EROFS)
    fail("the file is there but fsync of its directory failed", error);
}

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::fail(const std::string& what, int error) {
  discard();
  throw FormatError(concat(operation_, ": ", path_, ": ", what, ": ", std::generic_category().message(error)),
                    static_cast<std::int64_t>(written_));
}

}  // namespace polyphase
