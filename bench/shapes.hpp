#pragma once
// The list of convolution shapes for all benchmarks; scripts read it from the programs' JSON.

#include <array>
#include <string_view>

#include "conv/problem.hpp"

namespace polyphase::bench {

/// A layer of a published network (or a letter for a synthetic one), with its batch.
struct Shape {
  std::string_view name;
  ConvProblem problem;  ///< `problem_of` computes L_out
};

inline constexpr std::array kShapes = {
    Shape{"A", {.N = 64, .C_in = 128, .C_out = 128, .L_in = 65536, .K = 3}},
    Shape{"B", {.N = 16, .C_in = 32, .C_out = 64, .L_in = 131072, .K = 3, .S = 2, .P_l = 1, .P_r = 1, .D = 2}},
    Shape{"C", {.N = 32, .C_in = 32, .C_out = 64, .L_in = 131072, .K = 5, .D = 3}},
    Shape{"hifigan_up0", {.N = 16, .C_in = 512, .C_out = 256, .L_in = 256, .K = 16, .S = 8, .P_l = 4, .P_r = 4}},
    Shape{"hifigan_up1", {.N = 16, .C_in = 256, .C_out = 128, .L_in = 2048, .K = 16, .S = 8, .P_l = 4, .P_r = 4}},
    Shape{"hifigan_up2", {.N = 16, .C_in = 128, .C_out = 64, .L_in = 16384, .K = 4, .S = 2, .P_l = 1, .P_r = 1}},
    Shape{"hifigan_up3", {.N = 16, .C_in = 64, .C_out = 32, .L_in = 32768, .K = 4, .S = 2, .P_l = 1, .P_r = 1}},
    Shape{"dac_up0", {.N = 1, .C_in = 1536, .C_out = 768, .L_in = 432, .K = 16, .S = 8, .P_l = 4, .P_r = 4}},
    Shape{"dac_up1", {.N = 1, .C_in = 768, .C_out = 384, .L_in = 3456, .K = 16, .S = 8, .P_l = 4, .P_r = 4}},
    Shape{"dac_up2", {.N = 1, .C_in = 384, .C_out = 192, .L_in = 27648, .K = 8, .S = 4, .P_l = 2, .P_r = 2}},
    Shape{"dac_up3", {.N = 1, .C_in = 192, .C_out = 96, .L_in = 110592, .K = 4, .S = 2, .P_l = 1, .P_r = 1}},
    Shape{"oobleck0", {.N = 1, .C_in = 2048, .C_out = 1024, .L_in = 215, .K = 20, .S = 10, .P_l = 5, .P_r = 5}},
    Shape{"oobleck4", {.N = 1, .C_in = 128, .C_out = 128, .L_in = 220160, .K = 4, .S = 2, .P_l = 1, .P_r = 1}},
    Shape{"demucs", {.N = 4, .C_in = 384, .C_out = 192, .L_in = 8192, .K = 8, .S = 4, .P_l = 2, .P_r = 2}},
    Shape{"wavegan", {.N = 64, .C_in = 256, .C_out = 128, .L_in = 1024, .K = 25, .S = 4, .P_l = 11, .P_r = 11, .OP = 1}},
    Shape{"depthwise", {.N = 8, .C_in = 256, .C_out = 256, .L_in = 16384, .K = 12, .S = 2, .P_l = 5, .P_r = 5, .G = 256}},
    Shape{"istft", {.N = 1, .C_in = 1026, .C_out = 1, .L_in = 224, .K = 1024, .S = 256}},
    Shape{"short", {.N = 16, .C_in = 512, .C_out = 512, .L_in = 32, .K = 6, .S = 3, .P_l = 2, .P_r = 2, .OP = 1}},
    Shape{"short_depthwise",
          {.N = 16, .C_in = 512, .C_out = 512, .L_in = 32, .K = 6, .S = 3, .P_l = 2, .P_r = 2, .OP = 1, .G = 512}},
    Shape{"grouped", {.N = 16, .C_in = 256, .C_out = 256, .L_in = 8192, .K = 7, .S = 2, .P_l = 3, .P_r = 3, .OP = 1, .G = 4}},
};

/// Stride 1: the convolutions of vocoders' residual blocks, `blockC_kK_dD`. They are not in kShapes; they test the choice among
/// kernels.
inline constexpr std::array kBlocks = {
    Shape{"block256_k1", {.N = 16, .C_in = 256, .C_out = 256, .L_in = 8192, .K = 1}},
    Shape{"block256_k3", {.N = 16, .C_in = 256, .C_out = 256, .L_in = 8192, .K = 3, .P_l = 1, .P_r = 1}},
    Shape{"block256_k3_d5", {.N = 16, .C_in = 256, .C_out = 256, .L_in = 8192, .K = 3, .P_l = 5, .P_r = 5, .D = 5}},
    Shape{"block256_k7", {.N = 16, .C_in = 256, .C_out = 256, .L_in = 8192, .K = 7, .P_l = 3, .P_r = 3}},
    Shape{"block256_k7_d5", {.N = 16, .C_in = 256, .C_out = 256, .L_in = 8192, .K = 7, .P_l = 15, .P_r = 15, .D = 5}},
    Shape{"block256_k11", {.N = 16, .C_in = 256, .C_out = 256, .L_in = 8192, .K = 11, .P_l = 5, .P_r = 5}},
    Shape{"block256_k11_d5", {.N = 16, .C_in = 256, .C_out = 256, .L_in = 8192, .K = 11, .P_l = 25, .P_r = 25, .D = 5}},
    Shape{"block128_k1", {.N = 16, .C_in = 128, .C_out = 128, .L_in = 16384, .K = 1}},
    Shape{"block128_k3", {.N = 16, .C_in = 128, .C_out = 128, .L_in = 16384, .K = 3, .P_l = 1, .P_r = 1}},
    Shape{"block128_k3_d5", {.N = 16, .C_in = 128, .C_out = 128, .L_in = 16384, .K = 3, .P_l = 5, .P_r = 5, .D = 5}},
    Shape{"block128_k7", {.N = 16, .C_in = 128, .C_out = 128, .L_in = 16384, .K = 7, .P_l = 3, .P_r = 3}},
    Shape{"block128_k7_d5", {.N = 16, .C_in = 128, .C_out = 128, .L_in = 16384, .K = 7, .P_l = 15, .P_r = 15, .D = 5}},
    Shape{"block128_k11", {.N = 16, .C_in = 128, .C_out = 128, .L_in = 16384, .K = 11, .P_l = 5, .P_r = 5}},
    Shape{"block128_k11_d5", {.N = 16, .C_in = 128, .C_out = 128, .L_in = 16384, .K = 11, .P_l = 25, .P_r = 25, .D = 5}},
    Shape{"block96_k1", {.N = 16, .C_in = 96, .C_out = 96, .L_in = 21840, .K = 1}},
    Shape{"block96_k3", {.N = 16, .C_in = 96, .C_out = 96, .L_in = 21840, .K = 3, .P_l = 1, .P_r = 1}},
    Shape{"block96_k3_d5", {.N = 16, .C_in = 96, .C_out = 96, .L_in = 21840, .K = 3, .P_l = 5, .P_r = 5, .D = 5}},
    Shape{"block96_k7", {.N = 16, .C_in = 96, .C_out = 96, .L_in = 21840, .K = 7, .P_l = 3, .P_r = 3}},
    Shape{"block96_k7_d5", {.N = 16, .C_in = 96, .C_out = 96, .L_in = 21840, .K = 7, .P_l = 15, .P_r = 15, .D = 5}},
    Shape{"block96_k11", {.N = 16, .C_in = 96, .C_out = 96, .L_in = 21840, .K = 11, .P_l = 5, .P_r = 5}},
    Shape{"block96_k11_d5", {.N = 16, .C_in = 96, .C_out = 96, .L_in = 21840, .K = 11, .P_l = 25, .P_r = 25, .D = 5}},
    Shape{"block64_k1", {.N = 16, .C_in = 64, .C_out = 64, .L_in = 32768, .K = 1}},
    Shape{"block64_k3", {.N = 16, .C_in = 64, .C_out = 64, .L_in = 32768, .K = 3, .P_l = 1, .P_r = 1}},
    Shape{"block64_k3_d5", {.N = 16, .C_in = 64, .C_out = 64, .L_in = 32768, .K = 3, .P_l = 5, .P_r = 5, .D = 5}},
    Shape{"block64_k7", {.N = 16, .C_in = 64, .C_out = 64, .L_in = 32768, .K = 7, .P_l = 3, .P_r = 3}},
    Shape{"block64_k7_d5", {.N = 16, .C_in = 64, .C_out = 64, .L_in = 32768, .K = 7, .P_l = 15, .P_r = 15, .D = 5}},
    Shape{"block64_k11", {.N = 16, .C_in = 64, .C_out = 64, .L_in = 32768, .K = 11, .P_l = 5, .P_r = 5}},
    Shape{"block64_k11_d5", {.N = 16, .C_in = 64, .C_out = 64, .L_in = 32768, .K = 11, .P_l = 25, .P_r = 25, .D = 5}},
    Shape{"block32_k1", {.N = 16, .C_in = 32, .C_out = 32, .L_in = 65536, .K = 1}},
    Shape{"block32_k3", {.N = 16, .C_in = 32, .C_out = 32, .L_in = 65536, .K = 3, .P_l = 1, .P_r = 1}},
    Shape{"block32_k3_d5", {.N = 16, .C_in = 32, .C_out = 32, .L_in = 65536, .K = 3, .P_l = 5, .P_r = 5, .D = 5}},
    Shape{"block32_k7", {.N = 16, .C_in = 32, .C_out = 32, .L_in = 65536, .K = 7, .P_l = 3, .P_r = 3}},
    Shape{"block32_k7_d5", {.N = 16, .C_in = 32, .C_out = 32, .L_in = 65536, .K = 7, .P_l = 15, .P_r = 15, .D = 5}},
    Shape{"block32_k11", {.N = 16, .C_in = 32, .C_out = 32, .L_in = 65536, .K = 11, .P_l = 5, .P_r = 5}},
    Shape{"block32_k11_d5", {.N = 16, .C_in = 32, .C_out = 32, .L_in = 65536, .K = 11, .P_l = 25, .P_r = 25, .D = 5}},
};

/// The shape with that name; null if there is none.
[[nodiscard]] constexpr const Shape* find_shape(std::string_view name) {
  for (const Shape& shape : kShapes)
    if (shape.name == name) return &shape;
  for (const Shape& shape : kBlocks)
    if (shape.name == name) return &shape;
  return nullptr;
}

/// The shape's problem with batch `N` (0: the shape's own).
[[nodiscard]] inline ConvProblem problem_of(const Shape& shape, std::int64_t N = 0) {
  ConvProblem p = shape.problem;
  if (N > 0) p.N = N;
  p.L_out = conv_transpose1d_length(p.L_in, p.K, p.S, p.P_l, p.P_r, p.OP, p.D);
  return p;
}

}  // namespace polyphase::bench
