#pragma once
// wgmma: a warpgroup multiplies 64 x depth (A) by depth x n (B), both described in shared memory, into float registers.
// Fragment of thread (warp of the group, lane): d[4g + {0, 1}] = (row, 8g + 2q + {0, 1}), d[4g + {2, 3}] = the same for row +
// 8, with row = 16*warp + lane/4, q = lane%4 (PTX ISA, "Register fragments for wgmma.mma_async").

#include <cstdint>

#include "cuda/ptx/wgmma_sums.cuh"

namespace polyphase::cuda::ptx {

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kGroups>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

/// After wgmma_wait: tells the compiler that the sums were written only now.
template <int kCount>
__device__ __forceinline__ void fence_registers(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

/// sum += value in place: an addition that the compiler may place elsewhere costs a second set of registers for all sums.
__device__ __forceinline__ void add_in_place(float& sum, float value) {
  asm volatile("add.f32 %0, %0, %1;" : "+f"(sum) : "f"(value));
}

/// Describes an operand without swizzle, contiguous along gemm_k in pieces of 16 bytes: eight neighbouring rows (of gemm_m or
/// gemm_n) are 128 bytes, the next eight are 128 bytes further on, the next 16 bytes of gemm_k `pitch` bytes further on.
__device__ __forceinline__ std::uint64_t operand_descriptor(std::uint32_t address, std::uint32_t pitch) {
  return static_cast<std::uint64_t>((address >> 4) & 0x3fff) | static_cast<std::uint64_t>((pitch >> 4) & 0x3fff) << 16 |
         static_cast<std::uint64_t>(128 >> 4) << 32;
}

enum class Tensor { f16, bf16, tf32 };

/// d += A*B, or d = A*B if not `accumulate`.
template <Tensor kType, int kN>
struct Wgmma;

// type, gemm_n, gemm_k, sums per thread, the numbers of the operands a, b and accumulate, the end of the instruction
#define POLYPHASE_WGMMA(type, n, k, sums, a_name, b_name, p_name, tail)                                                    \
  template <>                                                                                                              \
  struct Wgmma<Tensor::type, n> {                                                                                          \
    __device__ static __forceinline__ void multiply(float (&d)[sums], std::uint64_t a, std::uint64_t b, bool accumulate) { \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p_name                                                              \
                   ", 0;\n"                                                                                                \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k" #k ".f32." #type "." #type " {" POLYPHASE_NAMES_##sums       \
                   "}, " a_name ", " b_name ", p, 1, 1" tail ";\n}\n"                                                      \
                   : POLYPHASE_SUMS_##sums                                                                                 \
                   : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                                                   \
    }                                                                                                                      \
  }

POLYPHASE_WGMMA(f16, 32, 16, 16, "%16", "%17", "%18", ", 0, 0");
POLYPHASE_WGMMA(f16, 64, 16, 32, "%32", "%33", "%34", ", 0, 0");
POLYPHASE_WGMMA(f16, 96, 16, 48, "%48", "%49", "%50", ", 0, 0");
POLYPHASE_WGMMA(f16, 128, 16, 64, "%64", "%65", "%66", ", 0, 0");
POLYPHASE_WGMMA(f16, 256, 16, 128, "%128", "%129", "%130", ", 0, 0");
POLYPHASE_WGMMA(bf16, 32, 16, 16, "%16", "%17", "%18", ", 0, 0");
POLYPHASE_WGMMA(bf16, 64, 16, 32, "%32", "%33", "%34", ", 0, 0");
POLYPHASE_WGMMA(bf16, 96, 16, 48, "%48", "%49", "%50", ", 0, 0");
POLYPHASE_WGMMA(bf16, 128, 16, 64, "%64", "%65", "%66", ", 0, 0");
POLYPHASE_WGMMA(bf16, 256, 16, 128, "%128", "%129", "%130", ", 0, 0");
POLYPHASE_WGMMA(tf32, 32, 8, 16, "%16", "%17", "%18", "");
POLYPHASE_WGMMA(tf32, 96, 8, 48, "%48", "%49", "%50", "");
POLYPHASE_WGMMA(tf32, 128, 8, 64, "%64", "%65", "%66", "");
POLYPHASE_WGMMA(tf32, 256, 8, 128, "%128", "%129", "%130", "");
#undef POLYPHASE_WGMMA

/// Describes an operand without swizzle whose eight neighbouring numbers of gemm_n are 16 bytes: neighbouring steps of gemm_k
/// are 16 bytes apart, the next eight of gemm_n `pitch` bytes.
__device__ __forceinline__ std::uint64_t transposed_descriptor(std::uint32_t address, std::uint32_t pitch) {
  return static_cast<std::uint64_t>((address >> 4) & 0x3fff) | static_cast<std::uint64_t>(128 >> 4) << 16 |
         static_cast<std::uint64_t>((pitch >> 4) & 0x3fff) << 32;
}

/// Loads four 8 x 8 blocks of 16-bit numbers, transposed: this lane gives the address of row lane%8 of block lane/8 and
/// receives, of each block, column lane/4 of rows 2*(lane%4) and the next (PTX ISA, "ldmatrix").
__device__ __forceinline__ void load_transposed(std::uint32_t address, std::uint32_t (&out)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

}  // namespace polyphase::cuda::ptx
