#pragma once
// Minimal filtering: a convolution of stride 1 with fewer multiplications than products. Internal to cpu/.
//
// Two outputs of three taps take four multiplications instead of six (Winograd's F(2,3)). With y0 = d0*g0 + d1*g1 + d2*g2 and
// y1 = d1*g0 + d2*g1 + d3*g2:
//   m0 = (d0 - d2)*g0    m1 = (d1 + d2)*(g0 + g1 + g2)/2    m2 = (d2 - d1)*(g0 - g1 + g2)/2    m3 = (d1 - d3)*g2
//   y0 = m0 + m1 + m2    y1 = m1 - m2 - m3
// Two taps take three (m2 = 0), one tap two. Each m_i is summed over all channels and groups of taps before the last line, so
// that the sums are matrix products over rows of d's sums and differences: the register tiles of cpu/conv/gemm_kernels compute
// them. With dilation D the outputs are D apart.
//
// Five taps or more: four outputs, D apart. Even and odd taps, h0 and h1, and the sequences e0, e1, e2 of every second input
// from 0, 1, 2 on give the even outputs as P0 + P1 and the odd ones as P1 - P2, with the convolutions P0 = (e0 - e1)*h0, P1 =
// e1*(h0 + h1), P2 = (e1 - e2)*h1: the parts, each computed as above. A last odd tap is multiplied directly, because an output
// must not depend on the rounding of an input that it does not read: silence next to sound stays silence. 7 taps: 16
// multiplications instead of 28; 11 taps: 25 instead of 44.

#include <cstdint>
#include <utility>
#include <vector>

#include "cpu/conv/conv_kernels.hpp"
#include "cpu/conv/phase_plan.hpp"

namespace polyphase::cpu {

/// A row of packed input times transformed weights, the sum of `weight.second` times the weight of tap `weight.first`.
struct MinimalProduct {
  std::int64_t offset;  ///< of the row within a channel
  std::vector<std::pair<std::int64_t, float>> weights;
};

/// A convolution of two outputs: four sums of products.
struct MinimalPart {
  std::vector<RowSum> rows;  ///< from the sequences to the packed rows of a channel
  std::int64_t pitch = 0;    ///< elements per channel
  std::vector<MinimalProduct> products[4];
};

/// Lane p of a tile has the outputs phases*D*(p div D) + p mod D + b*D for b < phases; sequence b has those positions of the
/// input.
struct MinimalPlan {
  std::int64_t phases;                    ///< 2 or 4 outputs per lane
  std::int64_t first;                     ///< shift of the first tap
  std::vector<std::int64_t> order;        ///< (K) index in w of the taps in ascending shift
  std::int64_t width, lanes_used;         ///< lanes of a register tile; those with outputs, a multiple of D
  std::int64_t sequence_pitch, sequence;  ///< distance of two sequences; elements that are needed of each
  std::int64_t sequences;                 ///< with those that `sums` computes
  std::int64_t line;                      ///< elements of the input from which the sequences are taken
  std::vector<RowSum> sums;               ///< from the sequences of the line to other sequences
  std::int64_t sum_count;                 ///< elements of each
  std::int64_t row;                       ///< elements of a packed row
  std::vector<MinimalPart> parts;         ///< 1 for two phases, 3 for four

  /// Outputs of a tile.
  [[nodiscard]] std::int64_t outputs() const { return phases * lanes_used; }
  /// Sums of products per channel and lane.
  [[nodiscard]] std::int64_t multiplications() const;
};

/// Whether `shape` has a plan: stride 1, one group, three taps or five and more, none of them so far that tiles of `width`
/// lanes would mostly consist of the positions around them.
[[nodiscard]] bool has_minimal_plan(const GatherShape& shape, std::int64_t D, std::int64_t width);

/// The plan for register tiles of `width` lanes in vectors of `lanes`.
[[nodiscard]] MinimalPlan minimal_plan(const GatherShape& shape, std::int64_t D, std::int64_t width, std::int64_t lanes);

}  // namespace polyphase::cpu
