#pragma once
// Per-thread caches of choices, and what these choices depend on.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "conv/workspace.hpp"

namespace polyphase::cuda {

/// A hash of all `values` (numbers and enumerators), continued from `seed`.
template <class... Values>
[[nodiscard]] std::size_t hash_of(std::size_t seed, const Values&... values) {
  constexpr std::size_t kGolden = 0x9e3779b97f4a7c15;
  ((seed = (seed ^ std::hash<Values>()(values)) * kGolden, seed ^= seed >> 32), ...);
  return seed;
}

[[nodiscard]] inline std::size_t hash_of(const ConvProblem& p) {
  return hash_of(std::size_t{0}, p.N, p.C_in, p.C_out, p.L_in, p.L_out, p.K, p.S, p.P_l, p.P_r, p.OP, p.D, p.G, p.dtype);
}

/// What every choice of an algorithm, a kernel or a plan depends on.
struct ChoiceKey {
  ConvProblem problem;
  ConvDirection direction;
  Precision precision;
  int device;
  std::size_t limit = conv_workspace_limit();
  bool operator==(const ChoiceKey&) const = default;
  [[nodiscard]] std::size_t hash() const { return hash_of(hash_of(problem), direction, precision, device, limit); }
};

/// A cache, so that a repeated request costs less than a launch. It is not locked: use one per thread. Keys have hash().
template <class Key, class Answer>
class PlanCache {
 public:
  /// The result of find(), or the cached result for an equal key. Valid until the next get().
  template <class Find>
  const Answer& get(const Key& key, const Find& find) {
    if (const auto known = answers_.find(key); known != answers_.end()) return known->second;
    Answer answer = find();
    if (answers_.size() >= kMost) answers_.clear();  // inputs of ever new lengths would fill it
    return answers_.emplace(key, std::move(answer)).first->second;
  }

 private:
  static constexpr std::size_t kMost = 4096;
  struct Hash {
    std::size_t operator()(const Key& key) const { return key.hash(); }
  };
  std::unordered_map<Key, Answer, Hash> answers_;
};

}  // namespace polyphase::cuda
