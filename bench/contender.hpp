#pragma once
// What bench/conv_transpose1d times: a case, those that do it in turns, and what the library would choose.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "gpu_case.hpp"
#include "shapes.hpp"
#include "tensor/error.hpp"

namespace polyphase::bench {

/// A shape in one direction and precision.
struct Case {
  const Shape& shape;
  ConvProblem problem;
  Pass pass;
  std::string precision;
  Mode mode;
  [[nodiscard]] std::string name() const { return concat(shape.name, " ", pass.name, " ", precision); }
};

/// A peer is only held to three times the error: it has to compute the same, not as well.
inline constexpr double kPeersShare = 3;

/// One of those that take turns.
struct Contender {
  std::string name;                        // of a peer
  std::optional<Algorithm> algorithm{};    // ours
  bool is_form = false;                    // ours too: one of an algorithm's forms, beside the one it chooses
  std::optional<PackedWeights> weights{};  // nothing: it takes them as they are, or is a peer
  std::function<void(Sets::Set&)> run;
  Verdict verdict{};
  std::uint64_t again = 0;  ///< sums that a run on each set computes again, which depends on the data
  double us = 0;
  [[nodiscard]] bool is_peer() const { return !algorithm && !is_form; }
  /// Stands beside the same algorithm with kept weights.
  [[nodiscard]] bool shows_packing(const Case& what) const {
    return weights == PackedWeights::made && what.pass.directions.size() == 1;
  }
};

/// What `automatic` comes to, and the share of time that it loses where it was compared with others.
struct Choice {
  std::optional<Algorithm> algorithm;
  std::optional<double> lost;
};

}  // namespace polyphase::bench
