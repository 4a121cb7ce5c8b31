#pragma once
// The activations of a residual unit (kernel.cuh), for four matrices of 8 x 8 numbers at a time: a thread has two neighbouring
// numbers of each in a word.

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/pipeline/matrices.cuh"
#include "cuda/conv/tensor_core/residual_unit/tiling.hpp"
#include "cuda/elementwise/snake_function.cuh"
#include "cuda/kernel/elements.cuh"

namespace polyphase::cuda::tensor_core {

/// Snake's parameters of both activations, in memory; null without Snake.
template <class T>
struct UnitSnakes {
  const T *alpha[2], *beta[2];
};

/// Snake's parameters of two neighbouring channels, in shared memory. alpha is infinite where 1/beta is not finite: then every
/// number is computed by the functions of the standard library, as SnakeFunction does.
struct __align__(16) SnakePair {
  float alpha[2], inverse[2];
};
template <class T>
__device__ __forceinline__ SnakePair snake_pair(const T* alpha, const T* beta, int channel) {
  SnakePair pair;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    pair.inverse[i] = 1.0F / cuda::convert<float>(beta[channel + i]);
    pair.alpha[i] = fabsf(pair.inverse[i]) <= 3e38F ? cuda::convert<float>(alpha[channel + i]) : INFINITY;
  }
  return pair;
}

/// Writes the pairs of both activations to shared memory: a thread one of kChannels.
template <int kChannels, class T>
__device__ __forceinline__ void load_snake_pairs(const UnitSnakes<T>& snakes, SnakePair* pairs, int thread) {
  if (thread >= kChannels) return;
  const int conv = thread * 2 / kChannels;
  pairs[thread] = snake_pair(snakes.alpha[conv], snakes.beta[conv], thread * 2 % kChannels);
}

/// Snake of a word whose numbers are of these channels, for numbers that are far.
template <class T>
__device__ __noinline__ std::uint32_t snake_word_exactly(std::uint32_t word, const T* alpha, const T* beta, int first,
                                                         int second) {
  const auto of = [&](int channel) {
    return SnakeFunction<float, true>(cuda::convert<float>(alpha[channel]), cuda::convert<float>(beta[channel]));
  };
  const float2 v = floats_of<T>(word);
  return rounded_word<T>(of(first)(v.x), of(second)(v.y));
}

/// The numbers of a word are of channels `first` and `second`, with the parameters alpha and inverse.
struct SnakeWord {
  float alpha[2], inverse[2];
  int first, second;
};

/// words = Snake of them; word_of(i) says what word i is.
template <class T, class WordOf>
__device__ __forceinline__ void snake_words(std::uint32_t (&words)[4], const T* alpha, const T* beta, const WordOf& word_of) {
  bool is_far = false;
  std::uint32_t near[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const SnakeWord& word = word_of(i);
    const float2 v = floats_of<T>(words[i]);
    near[i] = rounded_word<T>(snake_near(SnakeAngle<true>(word.alpha[0]), word.inverse[0], v.x, is_far),
                              snake_near(SnakeAngle<true>(word.alpha[1]), word.inverse[1], v.y, is_far));
  }
  if (is_far) {
#pragma unroll
    for (int i = 0; i < 4; ++i) near[i] = snake_word_exactly(words[i], alpha, beta, word_of(i).first, word_of(i).second);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = near[i];
}

/// words = LeakyReLU of them: v < 0 ? slope*v : v.
template <class T, UnitKind kKind>
__device__ __forceinline__ void leaky_words(std::uint32_t (&words)[4], float slope) {
  const auto of = [slope](float value) { return value < 0.0F ? TapGemm::low(slope, value) : value; };
#pragma unroll
  for (std::uint32_t& word : words) {
    if constexpr (kKind == UnitKind::plain) {
      word = leaky_word<T>(word, slope);
    } else {
      const float2 v = floats_of<T>(word);
      word = rounded_word<T>(of(v.x), of(v.y));
    }
  }
}

/// One of the unit's activations.
template <class T, UnitKind kKind>
struct UnitActivation {
  float slope;
  const T *alpha, *beta;
  const SnakePair* pairs;  ///< of all channels, in shared memory

  /// For words of a channel, an even one, and the next.
  [[nodiscard]] __device__ __forceinline__ SnakeWord of_neighbours(int channel) const {
    if constexpr (kKind == UnitKind::snake) {
      const SnakePair pair = pairs[channel / 2];
      return {{pair.alpha[0], pair.alpha[1]}, {pair.inverse[0], pair.inverse[1]}, channel, channel + 1};
    } else {
      return {};
    }
  }
  /// For words of one channel.
  [[nodiscard]] __device__ __forceinline__ SnakeWord of_one(int channel) const {
    if constexpr (kKind == UnitKind::snake) {
      const float own = pairs[channel / 2].alpha[channel % 2], inverse = pairs[channel / 2].inverse[channel % 2];
      return {{own, own}, {inverse, inverse}, channel, channel};
    } else {
      return {};
    }
  }
  /// word_of(i): what word i is.
  template <class WordOf>
  __device__ __forceinline__ void apply(std::uint32_t (&words)[4], const WordOf& word_of) const {
    if constexpr (kKind == UnitKind::snake)
      snake_words(words, alpha, beta, word_of);
    else
      leaky_words<T, kKind>(words, slope);
  }
};

}  // namespace polyphase::cuda::tensor_core
