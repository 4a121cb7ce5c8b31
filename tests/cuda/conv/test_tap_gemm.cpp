#include "cuda/conv/tap_gemm.hpp"

#include <doctest/doctest.h>

#include <map>
#include <vector>

#include "support/conv.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

/// The formula of tap_gemm.hpp with all weights 1 and element e of the source equal to e + 1: out[t] of one channel, and how
/// often t is written.
std::map<std::int64_t, std::pair<double, int>> evaluate(const cuda::TapGemm& gemm) {
  std::map<std::int64_t, std::pair<double, int>> out;
  for (std::int64_t pos = gemm.position_begin; pos < gemm.position_begin + gemm.position_count; ++pos)
    for (std::int64_t a = 0; a < gemm.phase_classes; ++a)
      for (std::int64_t b = 0; b < gemm.out_gcd; ++b) {
        if (gemm.out_stride == 1 && (a > 0 || b > 0)) continue;
        const std::int64_t t = gemm.out_stride * pos + a * gemm.out_class_step + b + gemm.out_origin;
        if (t < 0 || t >= gemm.out_length) continue;
        double sum = 0;
        for (std::int64_t j = 0; j < gemm.taps; ++j)
          for (std::int64_t plane = 0; plane < gemm.planes; ++plane) {
            if (b > 0 || a >= gemm.classes || (j == 0 && gemm.lacks_first_tap(a))) continue;
            if (j == gemm.taps - 1 && plane >= gemm.full_planes) continue;
            const std::int64_t e =
                gemm.source_stride * (pos + j * gemm.tap_step) + plane * gemm.source_plane_step + gemm.source_origin;
            if (e >= 0 && e < gemm.source_length) sum += static_cast<double>(e + 1);
          }
        out[t].first += sum;
        ++out[t].second;
      }
  return out;
}

}  // namespace

TEST_CASE("the form gives every output once, and the formula's value") {
  int cases = 0;
  for (const std::int64_t S : {1, 2, 3, 4, 6})
    for (const std::int64_t D : {1, 2, 3, 4})
      for (const std::int64_t K : {1, 2, 3, 7})
        for (const std::int64_t P : {0, 3})
          for (const std::int64_t L_in : {1, 9}) {
            const ConvProblem p =
                sized({.N = 1, .L_in = L_in, .K = K, .S = S, .P_l = P, .P_r = P / 2, .OP = std::max(S, D) - 1, .D = D});
            if (p.L_out <= 0) continue;
            ++cases;
            for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
              const bool is_forward = direction == ConvDirection::forward;
              std::vector<double> expected(static_cast<std::size_t>(is_forward ? p.L_out : p.L_in));
              for (std::int64_t i = 0; i < p.L_in; ++i)
                for (std::int64_t k = 0; k < p.K; ++k) {
                  const std::int64_t t = p.S * i + k * p.D - p.P_l;
                  if (t < 0 || t >= p.L_out) continue;
                  if (is_forward)
                    expected[static_cast<std::size_t>(t)] += static_cast<double>(i + 1);
                  else
                    expected[static_cast<std::size_t>(i)] += static_cast<double>(t + 1);
                }
              const auto got = evaluate(cuda::make_tap_gemm(p, direction));
              bool same = got.size() == expected.size();
              for (const auto& [t, value] : got)
                same = same && value.second == 1 && value.first == expected[static_cast<std::size_t>(t)];
              CHECK_MESSAGE(same, p, " ", direction);
            }
          }
  CHECK(cases > 200);
}
