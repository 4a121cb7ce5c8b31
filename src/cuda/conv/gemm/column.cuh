#pragma once
// The column buffer of Algorithm::gemm: kernels between it and the high-rate side y.
//
// columns[(n, g)][co*K + k][i - i_begin] holds y[n, co, S*i + k*D - P_l]; a piece covers the low-rate positions [i_begin,
// i_end).

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/vector.cuh"

namespace polyphase::cuda::gemm {

/// A piece of the work: samples, groups and positions whose columns are in the buffer together.
struct Piece {
  std::int64_t n_begin, n_count;
  std::int64_t g_begin, g_count;
  std::int64_t i_begin, i_count;  // columns of the buffer
  std::int64_t t_begin, t_count;  // outputs that col2im finishes
};

/// columns = the corresponding values of y, zero outside the row.
template <class T>
__global__ void im2col_kernel(const __grid_constant__ ConvProblem problem, const __grid_constant__ Piece piece,
                              const T* __restrict__ y, T* __restrict__ columns) {
  const std::int64_t co_per_group = problem.C_out / problem.G;
  const std::int64_t rows = piece.n_count * piece.g_count * co_per_group * problem.K;
  const std::int64_t spans = (piece.i_count + blockDim.x - 1) / blockDim.x;
  for (std::int64_t block = blockIdx.x; block < rows * spans; block += gridDim.x) {
    const std::int64_t row = block / spans;
    const std::int64_t i = (block - row * spans) * blockDim.x + threadIdx.x;
    if (i >= piece.i_count) continue;
    const std::int64_t k = row % problem.K, channel = row / problem.K;
    const std::int64_t co = channel % co_per_group, rest = channel / co_per_group;
    const std::int64_t g = piece.g_begin + rest % piece.g_count, n = piece.n_begin + rest / piece.g_count;
    const std::int64_t t = problem.S * (piece.i_begin + i) + k * problem.D - problem.P_l;
    const bool inside = t >= 0 && t < problem.L_out;
    columns[row * piece.i_count + i] =
        inside ? y[((n * problem.G + g) * co_per_group + co) * problem.L_out + t] : static_cast<T>(0);
  }
}

/// The taps of an output are `period` = S/g apart, g = gcd(S, D), and their inputs `back` = D/g, whose inverse modulo `period`
/// is `inverse`.
struct TapSteps {
  std::int64_t common, period, back, inverse;
};

/// a / b for a >= 0, b > 0. A division of 64 bits takes three times the instructions.
__device__ __forceinline__ std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if ((a | b) >> 32 != 0) return a / b;
  return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
}

/// a*b modulo `modulus`, for a and b below it.
__device__ __forceinline__ std::int64_t remainder_of_product(std::int64_t a, std::int64_t b, std::int64_t modulus) {
  if (modulus >> 31 != 0) return static_cast<std::int64_t>(static_cast<__int128>(a) * b % modulus);
  return a * b - quotient(a * b, modulus) * modulus;
}

/// y = epilogue(bias + the sum of its columns in the order of the taps).
template <class T, class A>
__global__ void col2im_kernel(const __grid_constant__ ConvProblem problem, const __grid_constant__ Piece piece,
                              const __grid_constant__ TapSteps steps, const __grid_constant__ Epilogue epilogue,
                              const A* __restrict__ columns, const T* __restrict__ bias, T* __restrict__ y) {
  const std::int64_t co_per_group = problem.C_out / problem.G;
  const std::int64_t rows = piece.n_count * piece.g_count * co_per_group;
  const std::int64_t spans = (piece.t_count + blockDim.x - 1) / blockDim.x;
  for (std::int64_t block = blockIdx.x; block < rows * spans; block += gridDim.x) {
    const std::int64_t row = quotient(block, spans);
    const std::int64_t offset = (block - row * spans) * blockDim.x + threadIdx.x;
    if (offset >= piece.t_count) continue;
    const std::int64_t t = piece.t_begin + offset;
    const std::int64_t rest = quotient(row, co_per_group), co = row - rest * co_per_group;
    const std::int64_t samples = quotient(rest, piece.g_count);
    const std::int64_t g = piece.g_begin + rest - samples * piece.g_count, n = piece.n_begin + samples;
    const std::int64_t channel = g * co_per_group + co;
    A sum = 0;
    // Taps with t + P_l - k*D = S*i: none, or those from k = (t + P_l)/g * inverse modulo period on.
    const std::int64_t place = t + problem.P_l, whole = steps.common == 1 ? place : quotient(place, steps.common);
    if (whole * steps.common == place) {
      std::int64_t i, k;
      if (problem.D == 1) {  // the same by one division instead of three
        i = quotient(place, problem.S), k = place - i * problem.S;
      } else {
        k = remainder_of_product(whole - quotient(whole, steps.period) * steps.period, steps.inverse, steps.period);
        const std::int64_t above = place - k * problem.D;
        i = above < 0 ? -1 : quotient(above, problem.S);
      }
      const A* from = columns + (row * problem.K + k) * piece.i_count - piece.i_begin;
      const std::int64_t step = steps.period * piece.i_count;
#pragma unroll 4
      for (; k < problem.K && i >= 0; k += steps.period, i -= steps.back, from += step)
        if (i < problem.L_in) sum += from[i];
    }
    if (bias != nullptr) sum += static_cast<A>(bias[channel]);
    T* const to = y + (n * problem.C_out + channel) * problem.L_out + t;
    *to = epilogue.finish<T>(sum, channel, to);
  }
}

/// Elements of 16 bytes.
template <class T>
inline constexpr int kVectorOf = 16 / static_cast<int>(sizeof(T));

/// x[n, ci, i] = bias[ci]; the GEMM adds to it. Vectors of 16 bytes from an aligned address on, one for each thread.
template <class T>
__global__ void fill_bias_kernel(std::int64_t rows, std::int64_t length, std::int64_t channels, const T* __restrict__ bias,
                                 T* __restrict__ x) {
  constexpr int kVector = kVectorOf<T>;
  struct alignas(16) Pack {
    T at[kVector];
  };
  const std::int64_t span = static_cast<std::int64_t>(blockDim.x) * kVector;
  const std::int64_t spans = (length + kVector - 1 + span - 1) / span;
  for (std::int64_t block = blockIdx.x; block < rows * spans; block += gridDim.x) {
    const std::int64_t row = quotient(block, spans);
    T* const to = x + row * length;
    const auto ahead = static_cast<int>(reinterpret_cast<std::uintptr_t>(to) % 16 / sizeof(T));  // past an aligned address
    const std::int64_t at = (block - row * spans) * span - ahead + static_cast<std::int64_t>(threadIdx.x) * kVector;
    const T value = bias[row - quotient(row, channels) * channels];
    Pack pack;
#pragma unroll
    for (int i = 0; i < kVector; ++i) pack.at[i] = value;
    if (at >= 0 && at + kVector <= length) {
      *reinterpret_cast<Pack*>(to + at) = pack;
      continue;
    }
    for (int i = 0; i < kVector; ++i)
      if (at + i >= 0 && at + i < length) to[at + i] = value;
  }
}

template <class T, class A>
__global__ void round_kernel(std::int64_t count, const A* __restrict__ from, T* __restrict__ to) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x)
    to[i] = static_cast<T>(from[i]);
}

}  // namespace polyphase::cuda::gemm
