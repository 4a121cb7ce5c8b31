#pragma once
// Networks written in one line: "Conv1d(1,16,7,p3) LeakyReLU(.1) ConvTranspose1d(16,12,8,s4,p2) ELU Conv1d(12,1,7,p3) Tanh".

#include <functional>
#include <string>
#include <string_view>

#include "layers/containers/sequential.hpp"

namespace polyphase::golden {

/// Whether the layer at this position has a bias.
using HasBias = std::function<bool(std::size_t index)>;

/// Builds a Sequential, float64 on the CPU. Layers are separated by white space; arguments are numbers in the order of
/// PyTorch's
/// constructor, then settings as a letter and a number:
///   Conv1d(C_in,C_out,K) and ConvTranspose1d(C_in,C_out,K) with s (stride) p (padding) d (dilation) g (groups) op (output
///   padding) Linear(in,out)  Snake(C)  SnakeBeta(C)  GroupNorm(groups,C)  BatchNorm1d(C) ReLU  LeakyReLU(slope)  ELU(alpha)
///   GELU  SiLU  Tanh  Sigmoid  Upsample(scale)  PixelShuffle1d(factor)
/// Throws FormatError with the layer that cannot be read.
[[nodiscard]] Sequential parse_network(std::string_view text, const HasBias& has_bias);

}  // namespace polyphase::golden
