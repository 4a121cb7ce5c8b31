#include "cpu/isa.hpp"

#include <atomic>
#include <cstdlib>

#include "tensor/error.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace polyphase {
namespace {

constexpr Isa kAll[] = {Isa::avx512, Isa::avx2, Isa::baseline};  // best first

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return "avx512";
    case Isa::avx2:
      return "avx2";
    case Isa::baseline:
      break;
  }
  return "baseline";
}

#if defined(__x86_64__)
// __builtin_cpu_supports also checks whether the operating system saves the registers; clang 14 does not know "f16c" there.
bool has_avx2() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  return f16c && __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}
#endif

// A name in POLYPHASE_CPU that is unknown, or that this machine cannot run, is ignored: the choice only affects speed.
Isa choose_isa() {
  const char* wanted = std::getenv("POLYPHASE_CPU");
  for (const Isa isa : kAll)
    if (wanted != nullptr && name_of(isa) == wanted && cpu::isa_available(isa)) return isa;
  for (const Isa isa : kAll)
    if (cpu::isa_available(isa)) return isa;
  return Isa::baseline;
}

std::atomic<Isa>& chosen() {
  static std::atomic<Isa> isa{choose_isa()};
  return isa;
}

}  // namespace

std::string_view cpu_isa() { return name_of(cpu::current_isa()); }

namespace cpu {

bool isa_available(Isa isa) {
#if defined(__x86_64__)
  static const bool avx2 = has_avx2();
  static const bool avx512 = has_avx512();
  if (isa == Isa::avx512) return avx512;
  if (isa == Isa::avx2) return avx2;
#endif
  return isa == Isa::baseline;
}

Isa current_isa() { return chosen().load(std::memory_order_relaxed); }

void set_isa(Isa isa) {
  require<Error>(isa_available(isa), "set_isa: this machine cannot run ", name_of(isa), " kernels");
  chosen().store(isa, std::memory_order_relaxed);
}

}  // namespace cpu
}  // namespace polyphase
