#pragma once
// The last few answers of a thread.

#include <cstddef>
#include <utility>
#include <vector>

namespace polyphase::cuda {

/// So that asking again costs less than a launch. One a thread: it is not locked.
template <class Key, class Answer>
class Remembered {
 public:
  /// What find() says, or said for an equal key not long ago.
  template <class Find>
  Answer get(const Key& key, const Find& find) {
    for (const auto& [known, answer] : entries_)
      if (known == key) return answer;
    const Answer answer = find();
    if (entries_.size() < kMost) {
      entries_.emplace_back(key, answer);
    } else {
      entries_[oldest_] = {key, answer};
      oldest_ = (oldest_ + 1) % kMost;
    }
    return answer;
  }

 private:
  static constexpr std::size_t kMost = 64;
  std::vector<std::pair<Key, Answer>> entries_;
  std::size_t oldest_ = 0;
};

}  // namespace polyphase::cuda
