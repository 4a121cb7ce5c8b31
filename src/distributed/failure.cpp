#include "distributed/failure.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "distributed/distributed_error.hpp"

namespace polyphase::distributed {

Failure::Failure() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  require<DistributedError>(descriptor_ >= 0, "distributed::init: the system has no eventfd left");
}

Failure::~Failure() { ::close(descriptor_); }

void Failure::set(const std::string& what, bool should_print) {
  const std::lock_guard lock(mutex_);
  if (is_set()) return;
  what_ = what;
  should_print_ = should_print;
  is_set_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  (void)!::write(descriptor_, &one, sizeof one);
  changed_.notify_all();
}

void Failure::check() const {
  if (is_set()) throw DistributedError(what(), should_print());
}

void Failure::raise(const std::string& what, std::chrono::milliseconds patience) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [&] { return is_set(); });
  }
  set(with_notes(what), true);
  check();
  throw DistributedError(what);
}

void Failure::add_note(const std::string& note) {
  const std::lock_guard lock(mutex_);
  notes_ += "; " + note;
}

std::string Failure::with_notes(const std::string& what) const {
  const std::lock_guard lock(mutex_);
  return what + notes_;
}

std::string Failure::what() const {
  const std::lock_guard lock(mutex_);
  return what_;
}

bool Failure::should_print() const {
  const std::lock_guard lock(mutex_);
  return should_print_;
}

}  // namespace polyphase::distributed
