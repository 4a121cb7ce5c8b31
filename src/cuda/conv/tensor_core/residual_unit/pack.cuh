#pragma once
// Packs the weights of residual units of 16 bits.

#include <cstdint>
#include <memory>

#include "cuda/conv/tensor_core/residual_unit/packing.hpp"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kUnitPackThreads = 128;

/// packed[tap][vector of 8 input channels][output channel][8] from weights (C, C, K).
template <class T>
static __global__ void __launch_bounds__(kUnitPackThreads)
    residual_unit_pack_kernel(int channels, int taps, const T* __restrict__ w, T* __restrict__ packed) {
  const int vectors = channels / 8, i = static_cast<int>(blockIdx.x) * kUnitPackThreads + static_cast<int>(threadIdx.x);
  if (i >= taps * vectors * channels) return;
  const int co = i % channels, vector = i / channels % vectors, tap = i / channels / vectors;
#pragma unroll
  for (int c = 0; c < 8; ++c) packed[i * 8 + c] = w[(static_cast<std::int64_t>(co) * channels + vector * 8 + c) * taps + tap];
}

template <class T>
std::shared_ptr<const Buffer> packed_unit_weights(const ResidualUnit& unit, std::size_t i, const Weights& weights, int device,
                                                  cudaStream_t stream) {
  const auto channels = static_cast<int>(unit.C), taps = static_cast<int>(unit.K[i]);
  const int vectors = taps * channels * channels / 8;
  return weights.packed(unit_packing_key(unit, i), unit_weight_bytes(unit, i), device, stream,
                        [channels, taps, vectors](const void* w, void* to, cudaStream_t on) {
                          const auto grid = static_cast<unsigned>((vectors + kUnitPackThreads - 1) / kUnitPackThreads);
                          residual_unit_pack_kernel<<<grid, kUnitPackThreads, 0, on>>>(channels, taps, static_cast<const T*>(w),
                                                                                       static_cast<T*>(to));
                          check_launch("residual unit: pack weights");
                        });
}

}  // namespace polyphase::cuda::tensor_core
