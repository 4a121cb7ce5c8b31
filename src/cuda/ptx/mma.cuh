#pragma once
// A warp multiplies 16 x 16 (A) by 16 x 8 (B) of a 16-bit type into floats (PTX ISA, "Matrix fragments for mma.m16n8k16"). Lane
// 4g + q holds pairs along gemm_k: a[0] = (g, 2q), a[1] = (g + 8, 2q), a[2] = (g, 2q + 8), a[3] = (g + 8, 2q + 8); b[0] = (2q,
// g), b[1] = (2q + 8, g); and the sums c[0], c[1] = (g, 2q + {0, 1}), c[2], c[3] = (g + 8, 2q + {0, 1}).

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace polyphase::cuda::ptx {

/// Loads four 8 x 8 matrices from shared memory. Lane 8i + r gives the address of row r of matrix i, 16 bytes at a multiple of
/// 16; lane 4g + q gets elements 2q and 2q + 1 of row g of each.
__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
/// The same, transposed: elements (2q, g) and (2q + 1, g).
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&to)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

/// Stores the matrices in the format of load_matrices().
__device__ __forceinline__ void store_matrices(std::uint32_t address, const std::uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%4], {%0, %1, %2, %3};" ::"r"(from[0]), "r"(from[1]), "r"(from[2]),
               "r"(from[3]), "r"(address)
               : "memory");
}

/// The same, transposed: lane 4g + q has elements (2q, g) and (2q + 1, g).
__device__ __forceinline__ void store_matrices_transposed(std::uint32_t address, const std::uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%4], {%0, %1, %2, %3};" ::"r"(from[0]), "r"(from[1]),
               "r"(from[2]), "r"(from[3]), "r"(address)
               : "memory");
}

/// c += a*b. The last argument names the type.
__device__ __forceinline__ void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b_low,
                                             std::uint32_t b_high, __half) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
}
__device__ __forceinline__ void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b_low,
                                             std::uint32_t b_high, __nv_bfloat16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
}

/// c = a*b.
__device__ __forceinline__ void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b_low, std::uint32_t b_high,
                                         __half) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high), "f"(0.0F));
}
/// c = a*b.
__device__ __forceinline__ void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b_low, std::uint32_t b_high,
                                         __nv_bfloat16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high), "f"(0.0F));
}

/// The values are in registers from here on: loads of them cannot sink below the next barrier.
template <int kCount>
__device__ __forceinline__ void hold(std::uint32_t (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(values[i])::"memory");
}

}  // namespace polyphase::cuda::ptx
