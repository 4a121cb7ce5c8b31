#pragma once
// wgmma: a warpgroup multiplies 64 x depth (A) by depth x n (B), both described in shared memory, into float registers.
// Fragment of thread (warp of the group, lane): d[4g + {0, 1}] = (row, 8g + 2q + {0, 1}), d[4g + {2, 3}] = the same of row + 8,
// with row = 16*warp + lane/4, q = lane%4 (PTX ISA, "Register fragments for wgmma.mma_async").

#include <cstdint>

namespace polyphase::cuda::ptx {

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kGroups>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

/// After wgmma_wait: tells the compiler that the sums have only now been written.
template <int kCount>
__device__ __forceinline__ void settle(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

/// Describes an operand without swizzle, contiguous along gemm_k in pieces of 16 bytes: eight neighbouring rows (of gemm_m or
/// gemm_n) are 128 bytes, the next eight 128 bytes further, the next 16 bytes of gemm_k `pitch` bytes further.
__device__ __forceinline__ std::uint64_t operand_descriptor(std::uint32_t address, std::uint32_t pitch) {
  return static_cast<std::uint64_t>((address >> 4) & 0x3fff) | static_cast<std::uint64_t>((pitch >> 4) & 0x3fff) << 16 |
         static_cast<std::uint64_t>(128 >> 4) << 32;
}

enum class Tensor { f16, bf16, tf32 };

// The float registers of the sums: their names in the instruction, and the operands behind the names.
// clang-format off
#define POLYPHASE_NAMES_32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define POLYPHASE_NAMES_64 \
  POLYPHASE_NAMES_32 ", " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, " \
  "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define POLYPHASE_NAMES_128 \
  POLYPHASE_NAMES_64 ", " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, " \
  "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, " \
  "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, " \
  "%119, %120, %121, %122, %123, %124, %125, %126, %127"
#define POLYPHASE_SUMS_32 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), \
  "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), \
  "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), \
  "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define POLYPHASE_SUMS_64 \
  POLYPHASE_SUMS_32, \
  "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), \
  "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), \
  "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), \
  "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define POLYPHASE_SUMS_128 \
  POLYPHASE_SUMS_64, \
  "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), \
  "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), \
  "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), \
  "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), \
  "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), \
  "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), \
  "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), \
  "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
// clang-format on

/// d += A*B, or d = A*B where not `accumulate`.
template <Tensor kType, int kN>
struct Wgmma;

// type, gemm_n, gemm_k, sums a thread, the numbers of the operands a, b and accumulate, what ends the instruction
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

POLYPHASE_WGMMA(f16, 128, 16, 64, "%64", "%65", "%66", ", 0, 0");
POLYPHASE_WGMMA(f16, 256, 16, 128, "%128", "%129", "%130", ", 0, 0");
POLYPHASE_WGMMA(bf16, 128, 16, 64, "%64", "%65", "%66", ", 0, 0");
POLYPHASE_WGMMA(bf16, 256, 16, 128, "%128", "%129", "%130", ", 0, 0");
POLYPHASE_WGMMA(tf32, 256, 8, 128, "%128", "%129", "%130", "");
#undef POLYPHASE_WGMMA

/// The same with A in registers (row, row + 8 at 2q; row, row + 8 at 2q + 8 of gemm_k) and B contiguous along gemm_n:
/// transposed_descriptor.
template <Tensor kType, int kN>
struct WgmmaRegisters;

/// Describes an operand without swizzle whose eight neighbouring numbers of gemm_n are 16 bytes: neighbouring steps of gemm_k
/// 16 bytes apart, the next eight of gemm_n `pitch` bytes further.
__device__ __forceinline__ std::uint64_t transposed_descriptor(std::uint32_t address, std::uint32_t pitch) {
  return static_cast<std::uint64_t>((address >> 4) & 0x3fff) | static_cast<std::uint64_t>(128 >> 4) << 16 |
         static_cast<std::uint64_t>((pitch >> 4) & 0x3fff) << 32;
}

/// Four 8 x 8 blocks of 16-bit numbers, transposed: this lane names row lane%8 of block lane/8 and receives, of each block,
/// column lane/4 of rows 2*(lane%4) and the next (PTX ISA, "ldmatrix").
__device__ __forceinline__ void load_transposed(std::uint32_t address, std::uint32_t (&out)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

#define POLYPHASE_WGMMA_REGISTERS(type)                                                                           \
  template <>                                                                                                     \
  struct WgmmaRegisters<Tensor::type, 64> {                                                                       \
    __device__ static __forceinline__ void multiply(float (&d)[32], const std::uint32_t (&a)[4], std::uint64_t b, \
                                                    bool accumulate) {                                            \
      asm volatile(                                                                                               \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                                            \
          "wgmma.mma_async.sync.aligned.m64n64k16.f32." #type "." #type " {" POLYPHASE_NAMES_32                   \
          "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}\n"                                                        \
          : POLYPHASE_SUMS_32                                                                                     \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)));               \
    }                                                                                                             \
  }

POLYPHASE_WGMMA_REGISTERS(f16);
POLYPHASE_WGMMA_REGISTERS(bf16);
#undef POLYPHASE_WGMMA_REGISTERS

#undef POLYPHASE_NAMES_32
#undef POLYPHASE_NAMES_64
#undef POLYPHASE_NAMES_128
#undef POLYPHASE_SUMS_32
#undef POLYPHASE_SUMS_64
#undef POLYPHASE_SUMS_128

}  // namespace polyphase::cuda::ptx
