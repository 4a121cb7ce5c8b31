#pragma once
// Types of bench/conv_transpose1d: a case, the contenders that are timed in turns, and the library's choice.

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

/// A peer may have three times the allowed error: it must compute the same function, not as accurately.
inline constexpr double kPeersShare = 3;

/// A convolution that is timed in turns with others.
struct Contender {
  std::string name;                        // of a peer
  std::optional<Algorithm> algorithm{};    // ours
  bool is_form = false;                    // one of an algorithm's kernels or tilings that it did not choose
  std::optional<PackedWeights> weights{};  // empty: takes the weights as they are, or is a peer
  std::function<void(Sets::Set&)> run;
  Verdict verdict{};
  std::uint64_t again = 0;  ///< sums that one run on each set recomputes, which depends on the data
  double us = 0;
  [[nodiscard]] bool is_peer() const { return !algorithm && !is_form; }
  /// Timed in addition to the same algorithm with cached packed weights.
  [[nodiscard]] bool shows_packing(const Case& what) const {
    return weights == PackedWeights::made && what.pass.directions.size() == 1;
  }
};

/// The result of `automatic`, and the share of time that it loses if it was compared with others.
struct Choice {
  std::optional<Algorithm> algorithm;
  std::optional<double> lost;
};

}  // namespace polyphase::bench
