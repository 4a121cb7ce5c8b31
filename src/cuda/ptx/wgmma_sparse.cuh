#pragma once
// Sparse wgmma (two of every four numbers of A are zeros) with A in registers (PTX ISA, "wgmma.mma_async.sp"): a warpgroup
// multiplies 64 x 32 by 32 x n in the time of 64 x 16 by 16 x n.

#include <cstdint>

#include "cuda/ptx/wgmma.cuh"
#include "cuda/ptx/wgmma_sums.cuh"

namespace polyphase::cuda::ptx {

/// d += A*B, or d = A*B if not `accumulate`. The nonzero numbers of A are a fragment of 16: in rows r the first eight of every
/// 16 are at gemm_k 4i and 4i + 1, in rows r + 8 at 4i + 2 and 4i + 3. B: contiguous along gemm_k, operand_descriptor.
__device__ __forceinline__ void multiply_alternating(float (&d)[64], const std::uint32_t (&a)[4], std::uint64_t b,
                                                     bool accumulate) {
  constexpr std::uint32_t kPlaces = 0xeeee4444;  // two bits per number: 0 and 1 of each four in rows r, 2 and 3 in rows r + 8
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %70, 0;\n"
      "wgmma.mma_async.sp.sync.aligned.m64n128k32.f32.f16.f16 {" POLYPHASE_NAMES_64
      "}, {%64, %65, %66, %67}, %68, %69, 0, p, 1, 1, 0;\n}\n"
      : POLYPHASE_SUMS_64
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(kPlaces), "r"(static_cast<int>(accumulate)));
}

/// to ^= other, as an instruction that is not moved: three of them exchange two registers that products read. Otherwise the
/// compiler would copy both.
__device__ __forceinline__ void exclusive_or(std::uint32_t& to, std::uint32_t other) {
  asm volatile("xor.b32 %0, %0, %1;" : "+r"(to) : "r"(other));
}

}  // namespace polyphase::cuda::ptx
