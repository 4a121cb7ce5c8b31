#pragma once
// One binary, several instruction sets: which one the kernels of this process use.
//
// The sources listed as `isa_sources` in cpu/meson.build are compiled once per instruction set, each time with its own flags
// and with -DPOLYPHASE_ISA=baseline|avx2|avx512. Each such source defines one explicit specialisation of an accessor, say
//   template <> const ConvertKernels& convert_kernels<Isa::POLYPHASE_ISA>() { ... }      // in the kernel source
//   const auto& k = dispatch_isa([](auto tag) -> const ConvertKernels& { return convert_kernels<tag.value>(); });   // in a
//   caller
// and cpu/isa_target.hpp says what such a source may and may not contain.

#include <cstdint>
#include <string_view>

namespace polyphase {

/// Instruction sets the kernels are built for. On anything but x86-64 `baseline` is the only one (arm64: NEON).
/// `avx2` is AVX2 + FMA + F16C, `avx512` is AVX-512 F, BW, DQ and VL.
enum class Isa : std::uint8_t { baseline, avx2, avx512 };

/// "baseline", "avx2" or "avx512": what the kernels of this process run on. The best this machine has, unless the environment
/// variable POLYPHASE_CPU names a lesser one when the first kernel is called.
[[nodiscard]] std::string_view cpu_isa();

namespace cpu {

/// True where this binary has kernels for `isa` and this machine can run them.
[[nodiscard]] bool isa_available(Isa isa);

/// The instruction set in use.
[[nodiscard]] Isa current_isa();

/// Uses `isa` in the whole process from now on (for tests and benchmarks). Throws Error unless isa_available(isa).
void set_isa(Isa isa);

/// An Isa as a type, so that it can be a template argument of what dispatch_isa calls.
template <Isa isa>
struct IsaTag {
  static constexpr Isa value = isa;
};

/// Calls function(IsaTag<the instruction set in use>{}).
template <class Function>
decltype(auto) dispatch_isa(const Function& function) {
#if defined(__x86_64__)
  switch (current_isa()) {
    case Isa::avx512:
      return function(IsaTag<Isa::avx512>{});
    case Isa::avx2:
      return function(IsaTag<Isa::avx2>{});
    case Isa::baseline:
      break;
  }
#endif
  return function(IsaTag<Isa::baseline>{});
}

}  // namespace cpu
}  // namespace polyphase
