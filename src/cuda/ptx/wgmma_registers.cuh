#pragma once
// wgmma with A in registers: a warpgroup multiplies 64 x 16 (A) by 16 x n (B, in shared memory) into float registers. Fragment
// of A (16-bit pairs): row and row + 8 at gemm_k 2q, then both at 2q + 8. Fragment of the sums: see wgmma.cuh.

#include <cstdint>

#include "cuda/ptx/wgmma.cuh"
#include "cuda/ptx/wgmma_sums.cuh"

namespace polyphase::cuda::ptx {

/// d += A*B, or d = A*B if not `accumulate`. B: contiguous along gemm_n (transposed_descriptor) or along gemm_k
/// (operand_descriptor).
template <Tensor kType, int kN, bool kTransposed = true>
struct WgmmaFromRegisters;

// type, gemm_n, sums per thread, the numbers of the operands a, b and accumulate; B along gemm_n, and its flag
#define POLYPHASE_WGMMA(type, n, sums, a_names, b_name, p_name, transposed, flag)                                   \
  template <>                                                                                                       \
  struct WgmmaFromRegisters<Tensor::type, n, transposed> {                                                          \
    __device__ static __forceinline__ void multiply(float (&d)[sums], const std::uint32_t (&a)[4], std::uint64_t b, \
                                                    bool accumulate) {                                              \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p_name                                                       \
                   ", 0;\n"                                                                                         \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " {" POLYPHASE_NAMES_##sums    \
                   "}, {" a_names "}, " b_name ", p, 1, 1, " flag ";\n}\n"                                          \
                   : POLYPHASE_SUMS_##sums                                                                          \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)));        \
    }                                                                                                               \
  }

POLYPHASE_WGMMA(f16, 32, 16, "%16, %17, %18, %19", "%20", "%21", true, "1");
POLYPHASE_WGMMA(f16, 32, 16, "%16, %17, %18, %19", "%20", "%21", false, "0");
POLYPHASE_WGMMA(f16, 64, 32, "%32, %33, %34, %35", "%36", "%37", true, "1");
POLYPHASE_WGMMA(f16, 64, 32, "%32, %33, %34, %35", "%36", "%37", false, "0");
POLYPHASE_WGMMA(f16, 96, 48, "%48, %49, %50, %51", "%52", "%53", false, "0");
POLYPHASE_WGMMA(f16, 128, 64, "%64, %65, %66, %67", "%68", "%69", true, "1");
POLYPHASE_WGMMA(f16, 128, 64, "%64, %65, %66, %67", "%68", "%69", false, "0");
POLYPHASE_WGMMA(bf16, 32, 16, "%16, %17, %18, %19", "%20", "%21", true, "1");
POLYPHASE_WGMMA(bf16, 32, 16, "%16, %17, %18, %19", "%20", "%21", false, "0");
POLYPHASE_WGMMA(bf16, 64, 32, "%32, %33, %34, %35", "%36", "%37", true, "1");
POLYPHASE_WGMMA(bf16, 64, 32, "%32, %33, %34, %35", "%36", "%37", false, "0");
POLYPHASE_WGMMA(bf16, 96, 48, "%48, %49, %50, %51", "%52", "%53", false, "0");
POLYPHASE_WGMMA(bf16, 128, 64, "%64, %65, %66, %67", "%68", "%69", true, "1");
POLYPHASE_WGMMA(bf16, 128, 64, "%64, %65, %66, %67", "%68", "%69", false, "0");
POLYPHASE_WGMMA(f16, 208, 104, "%104, %105, %106, %107", "%108", "%109", false, "0");
POLYPHASE_WGMMA(f16, 256, 128, "%128, %129, %130, %131", "%132", "%133", false, "0");
POLYPHASE_WGMMA(bf16, 208, 104, "%104, %105, %106, %107", "%108", "%109", false, "0");
POLYPHASE_WGMMA(bf16, 256, 128, "%128, %129, %130, %131", "%132", "%133", false, "0");
#undef POLYPHASE_WGMMA

/// After wgmma_wait: tells the compiler that the products read A from these registers until here.
template <int kCount>
__device__ __forceinline__ void opaque(std::uint32_t (&a)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(a[i])::"memory");
}

}  // namespace polyphase::cuda::ptx
