#pragma once
// What a copy between host and device is for, so that an error about it can say so. Internal to the library.

namespace polyphase {

/// Names the calling thread's operation until the end of the scope; inside another scope that one's name stays.
class OperationScope {
 public:
  explicit OperationScope(const char* name) noexcept : is_outermost_(name_ == nullptr) {
    if (is_outermost_) name_ = name;
  }
  ~OperationScope() {
    if (is_outermost_) name_ = nullptr;
  }
  OperationScope(const OperationScope&) = delete;
  OperationScope& operator=(const OperationScope&) = delete;

  /// Null outside of every scope.
  [[nodiscard]] static const char* name() noexcept { return name_; }

 private:
  inline static thread_local const char* name_ = nullptr;
  bool is_outermost_;
};

}  // namespace polyphase
