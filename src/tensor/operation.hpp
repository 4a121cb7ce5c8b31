#pragma once
// The purpose of a copy between host and device, for its error messages. Internal to the library.

namespace polyphase {

/// Names the calling thread's operation until the end of the scope; an outer scope's name has priority.
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

  /// Null outside of all scopes.
  [[nodiscard]] static const char* name() noexcept { return name_; }

 private:
  inline static thread_local const char* name_ = nullptr;
  bool is_outermost_;
};

}  // namespace polyphase
