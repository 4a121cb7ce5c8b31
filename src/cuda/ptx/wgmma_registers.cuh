#pragma once
// wgmma with A in registers: a warpgroup multiplies 64 x 16 (A) by 16 x n (B, in shared memory, contiguous along gemm_n) into
// float registers. Fragment of A (16-bit): row, row + 8 at gemm_k 2q, then both at 2q + 8, pairs; of the sums: wgmma.cuh.

#include <cstdint>

#include "cuda/ptx/wgmma.cuh"

namespace polyphase::cuda::ptx {

// The float registers of the sums: their names in the instruction, and the operands behind the names.
// clang-format off
#define POLYPHASE_NAMES_16 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define POLYPHASE_NAMES_32 \
  POLYPHASE_NAMES_16 ", " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define POLYPHASE_NAMES_64 \
  POLYPHASE_NAMES_32 ", " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define POLYPHASE_SUMS_16 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define POLYPHASE_SUMS_32 \
  POLYPHASE_SUMS_16, \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define POLYPHASE_SUMS_64 \
  POLYPHASE_SUMS_32, \
  "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), \
  "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), \
  "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), \
  "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
// clang-format on

/// d += A*B, or d = A*B where not `accumulate`. B: transposed_descriptor.
template <Tensor kType, int kN>
struct WgmmaFromRegisters;

// type, gemm_n, sums a thread, the numbers of the operands a, b and accumulate
#define POLYPHASE_WGMMA(type, n, sums, a_names, b_name, p_name)                                                     \
  template <>                                                                                                       \
  struct WgmmaFromRegisters<Tensor::type, n> {                                                                      \
    __device__ static __forceinline__ void multiply(float (&d)[sums], const std::uint32_t (&a)[4], std::uint64_t b, \
                                                    bool accumulate) {                                              \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p_name                                                       \
                   ", 0;\n"                                                                                         \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " {" POLYPHASE_NAMES_##sums    \
                   "}, {" a_names "}, " b_name ", p, 1, 1, 1;\n}\n"                                                 \
                   : POLYPHASE_SUMS_##sums                                                                          \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)));        \
    }                                                                                                               \
  }

POLYPHASE_WGMMA(f16, 32, 16, "%16, %17, %18, %19", "%20", "%21");
POLYPHASE_WGMMA(f16, 64, 32, "%32, %33, %34, %35", "%36", "%37");
POLYPHASE_WGMMA(f16, 128, 64, "%64, %65, %66, %67", "%68", "%69");
POLYPHASE_WGMMA(bf16, 32, 16, "%16, %17, %18, %19", "%20", "%21");
POLYPHASE_WGMMA(bf16, 64, 32, "%32, %33, %34, %35", "%36", "%37");
POLYPHASE_WGMMA(bf16, 128, 64, "%64, %65, %66, %67", "%68", "%69");
#undef POLYPHASE_WGMMA
#undef POLYPHASE_NAMES_16
#undef POLYPHASE_NAMES_32
#undef POLYPHASE_NAMES_64
#undef POLYPHASE_SUMS_16
#undef POLYPHASE_SUMS_32
#undef POLYPHASE_SUMS_64

}  // namespace polyphase::cuda::ptx
