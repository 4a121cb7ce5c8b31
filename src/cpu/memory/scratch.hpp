#pragma once
// Working memory of one operation: uninitialised, 64-byte aligned, from the caching allocator. Internal to the library.

#include <cstddef>
#include <cstdint>

#include "cpu/memory/allocator.hpp"

namespace polyphase::cpu {

/// `count` elements of a trivial type, freed at the end of the scope. Throws OutOfMemory.
template <class T>
class Scratch {
 public:
  explicit Scratch(std::int64_t count)
      : bytes_(static_cast<std::size_t>(count) * sizeof(T)), data_(static_cast<T*>(host_allocator().allocate(bytes_))) {}
  ~Scratch() { host_allocator().deallocate(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] T* data() const { return data_; }

 private:
  std::size_t bytes_;
  T* data_;
};

}  // namespace polyphase::cpu
