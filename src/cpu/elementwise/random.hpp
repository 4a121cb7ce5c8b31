#pragma once
// Random fills from Philox blocks: the word of each element is fixed, so the bits never depend on the thread count.

#include "tensor/random.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::cpu {

/// Element i of the contiguous `out` uses block state.offset + i/4, word i%4 (f64: block + i/2, words 2(i%2) and 2(i%2)+1): its
/// upper 24 (53) bits as a number in [0, 1), scaled to [low, high), but not past uniform_limit(). 16-bit types are rounded from
/// f32; i64 throws DTypeError.
void uniform(const Tensor& out, GeneratorState state, double low, double high);
/// Box-Muller: in f32, elements 2j and 2j+1 of a block use its words 2j and 2j+1; in f64 its two 53-bit numbers. Computed in
/// double and rounded, so the bits do not depend on the instruction set.
void normal(const Tensor& out, GeneratorState state, double mean, double deviation);

}  // namespace polyphase::cpu
