#include "io/atomic_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
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

// The beginning of the names of a target's temporary files. Short enough for any name that the file system accepts.
std::string temporary_prefix(const std::string& target) {
  constexpr std::size_t kOfName = 100;
  return fs::path(target).filename().string().substr(0, kOfName) + ".tmp-";
}

// Different in every process and for every file of a process.
std::string temporary_name(const std::string& target) {
  static std::atomic<unsigned> counter{0};
  return (fs::path(target).parent_path() / concat(temporary_prefix(target), ::getpid(), "-", counter++)).string();
}

// Whether a name is a possible result of temporary_name in some process: PREFIX, digits, '-', digits.
bool is_temporary_name(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  const std::string_view numbers = name.substr(prefix.size());
  const std::size_t dash = numbers.find('-');
  const auto is_number = [](std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  };
  return dash != std::string_view::npos && is_number(numbers.substr(0, dash)) && is_number(numbers.substr(dash + 1));
}

bool is_regular_file_of_name(int descriptor, const std::string& path) {
  struct stat open_file {};
  struct stat named_file {};
  return ::fstat(descriptor, &open_file) == 0 && S_ISREG(open_file.st_mode) && ::lstat(path.c_str(), &named_file) == 0 &&
         open_file.st_dev == named_file.st_dev && open_file.st_ino == named_file.st_ino;
}

// Removes a temporary file unless a process holds its lock.
void remove_unlocked(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return;
  // Between open and flock the file may have become the target: then it no longer has this name.
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 && is_regular_file_of_name(descriptor, path)) ::unlink(path.c_str());
  ::close(descriptor);
}

// Removes the files that killed processes have left for the same target. The kernel drops a process's locks when it dies, so a
// lock is more reliable than the process number in the name: the number may now belong to another process, to one on another
// machine that shares the directory, or to one in another container. (A file without a name, O_TMPFILE, would leave nothing
// behind. But it cannot replace an old file without getting a name first, and network file systems do not have it.)
void remove_leftovers(const std::string& target, const std::string& directory) {
  const std::string prefix = temporary_prefix(target);
  std::error_code error;  // for a directory that cannot be listed: nothing is removed
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (is_temporary_name(entry->path().filename().string(), prefix)) remove_unlocked(entry->path().string());
  }
}

// The target of a path: final symbolic links are followed, to a file that need not exist.
std::string followed(const std::string& path) {
  constexpr int kMostLinks = 40;  // as in Linux; stat rejects what is still a link then
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
    // A rename would replace a device or a pipe by a plain file.
    if (!S_ISREG(info.st_mode)) fail("cannot be written", S_ISDIR(info.st_mode) ? EISDIR : ENOTSUP);
    if (::faccessat(AT_FDCWD, target_.c_str(), W_OK, AT_EACCESS) != 0) fail("cannot be written", errno);
    mode_ = info.st_mode & 07777U;
  } else if (errno == ELOOP) {
    fail("cannot be written", errno);
  }
  remove_leftovers(target_, directory_of(target_));
  open_temporary();
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::open_temporary() {
  constexpr int kAttempts = 100;  // a killed process of the same number may have left a name
  for (int attempt = 0; descriptor_ < 0 && attempt < kAttempts; ++attempt) {
    temporary_ = temporary_name(target_);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) break;
    if (descriptor_ >= 0 && !lock_temporary()) discard();
  }
  if (descriptor_ < 0) {
    const int error = errno;
    temporary_.clear();
    fail("cannot be created", error);
  }
  if (mode_ && ::fchmod(descriptor_, static_cast<mode_t>(*mode_)) != 0) fail("the old file's mode cannot be kept", errno);
}

// Marks the temporary file as that of a living process. False if another process has removed it, or is about to, between
// creation and lock. On a file system without locks, no process gets the lock that is needed to remove a file.
bool AtomicFile::lock_temporary() {
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
  return is_regular_file_of_name(descriptor_, temporary_);
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  constexpr std::size_t kLargestCall = std::size_t{1} << 30;  // Linux accepts at most 2 GiB a call
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

void AtomicFile::rewrite(std::size_t offset, const void* data, std::size_t bytes) {
  require<FormatError>(bytes <= written_ && offset <= written_ - bytes, operation_, ": ", path_,
                       ": expected to write over some of ", written_, " bytes, got ", bytes, " from byte ", offset);
  const char* next = static_cast<const char*>(data);
  for (std::size_t left = bytes; left > 0;) {
    const ssize_t count = ::pwrite(descriptor_, next, left, static_cast<off_t>(offset + bytes - left));
    if (count < 0) {
      if (errno == EINTR) continue;
      fail(concat("writing over ", bytes, " bytes failed"), errno);
    }
    next += count;
    left -= static_cast<std::size_t>(count);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail(concat("fsync failed after ", written_, " bytes"), errno);
  // Closing releases the lock, so the file gets its final name first.
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) fail("renaming the finished file failed", errno);
  temporary_.clear();
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) fail("the file is there but closing it failed", errno);
  sync_directory();
}

// The directory contains the new name, which survives a power failure only once the directory is on the disk too.
void AtomicFile::sync_directory() {
  const int directory = ::open(directory_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;  // a directory that may be written but not read: nothing more can be done
  const int status = ::fsync(directory);
  const int error = errno;
  ::close(directory);
  // Some network file systems do not support fsync of a directory.
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
