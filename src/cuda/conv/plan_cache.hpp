#pragma once
// The last few answers of a thread, and what the choices that it remembers depend on.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "conv/workspace.hpp"

namespace polyphase::cuda {

/// What every choice of an algorithm, a kernel or a plan depends on.
struct ChoiceKey {
  ConvProblem problem;
  ConvDirection direction;
  Precision precision;
  int device;
  std::size_t limit = conv_workspace_limit();
  bool operator==(const ChoiceKey&) const = default;
};

/// All of an array's address that a choice may depend on: where it begins within a sector of memory.
inline std::uintptr_t place_in_sector(const void* array) { return reinterpret_cast<std::uintptr_t>(array) % 32; }

/// So that asking again costs less than a launch. One a thread: it is not locked.
template <class Key, class Answer>
class PlanCache {
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
