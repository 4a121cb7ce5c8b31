#include "training/run_lock.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "tensor/error.hpp"

namespace training {
namespace {

using polyphase::concat;
using polyphase::Error;
using polyphase::require;

std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace

RunLock::RunLock(const RunFolder& run, const Warn& warn) : run_(run) {
  while (!take(warn)) {
  }
}

RunLock::~RunLock() {
  if (descriptor_ < 0) return;
  if (is_in_place()) ::unlink(run_.lock().c_str());
  ::close(descriptor_);
}

// One attempt; false if the training that held the lock ended in the meantime.
bool RunLock::take(const Warn& warn) {
  const std::string path = run_.lock();
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  require<Error>(descriptor_ >= 0, "train: ", path, ": cannot be created: ", reason(errno));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  const int error = ::fcntl(descriptor_, F_SETLK, &lock) == 0 ? 0 : errno;
  if (error == 0 && is_in_place()) return true;
  const bool is_held = error == EACCES || error == EAGAIN;
  if (is_held && ::fcntl(descriptor_, F_GETLK, &lock) != 0) lock.l_pid = 0;
  ::close(descriptor_);
  descriptor_ = -1;
  if (error == 0 || error == EINTR || (is_held && lock.l_type == F_UNLCK)) return false;
  // A process in another container or machine has no number here.
  const std::string holder = lock.l_pid > 0 ? concat("process ", lock.l_pid) : "a process elsewhere";
  require<Error>(!is_held, "train: ", run_.path, " is in use by another training (", holder,
                 "): wait for its end or choose another --out");
  warn(concat(path, ": cannot be locked (", reason(error), "): see to it that no other training writes to this folder"));
  return true;
}

// Whether the file at the lock's path is the locked one: its last holder removes it.
bool RunLock::is_in_place() const {
  struct stat mine {};
  struct stat there {};
  return ::fstat(descriptor_, &mine) == 0 && ::stat(run_.lock().c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

}  // namespace training
