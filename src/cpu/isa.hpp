#pragma once
// One binary for several instruction sets: selects the one that the kernels of this process use.
//
// The sources listed as `isa_sources` in cpu/meson.build are compiled once per instruction set, each time with its own flags
// and with -DPOLYPHASE_ISA=baseline|avx2|avx512. Each source defines one explicit specialisation of an accessor, for example
//   template <> const ConvertKernels& convert_kernels<Isa::POLYPHASE_ISA>() { ... }      // in the kernel source
//   const auto& k = dispatch_isa([](auto tag) -> const ConvertKernels& { return convert_kernels<tag.value>(); });   // a caller
// cpu/isa_target.hpp says what such a source may contain.

#include <cstdint>
#include <string_view>

namespace polyphase {

/// Instruction sets the kernels are built for. On anything but x86-64 `baseline` is the only one (arm64: NEON).
/// `avx2` is AVX2 + FMA + F16C, `avx512` is AVX-512 F, BW, DQ and VL.
enum class Isa : std::uint8_t { baseline, avx2, avx512 };

/// "baseline", "avx2" or "avx512": the instruction set of the kernels in this process. It is the best that this machine has,
/// unless the environment variable POLYPHASE_CPU names a lesser one when the first kernel is called.
[[nodiscard]] std::string_view cpu_isa();

namespace cpu {

/// Whether this binary has kernels for `isa` and this machine can run them.
[[nodiscard]] bool isa_available(Isa isa);

/// The instruction set in use.
[[nodiscard]] Isa current_isa();

/// Uses `isa` in the whole process from now on (for tests and benchmarks). Throws Error unless isa_available(isa).
void set_isa(Isa isa);

/// An Isa as a type, to be a template argument in functions called by dispatch_isa.
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
