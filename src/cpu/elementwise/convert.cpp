// 16-bit types to float and back, one pass, memory bound. An ISA source: see the rules in cpu/isa_target.hpp.

#include "cpu/elementwise/convert.hpp"

#include "cpu/isa_half.hpp"

namespace polyphase::cpu {
namespace POLYPHASE_ISA {
namespace {

void f16_to_f32(const std::uint16_t* from, float* to, std::int64_t count) {
  std::int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= count; i += 16) {
    __m256i half;
    std::memcpy(&half, from + i, sizeof half);
    store<float>(to + i, _mm512_cvtph_ps(half));
  }
#elif defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    __m128i half;
    std::memcpy(&half, from + i, sizeof half);
    store<float>(to + i, _mm256_cvtph_ps(half));
  }
#endif
  for (; i < count; ++i) to[i] = f32_from_f16(from[i]);
}

void f32_to_f16(const float* from, std::uint16_t* to, std::int64_t count) {
  std::int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= count; i += 16) {
    const __m256i half = _mm512_cvtps_ph(load(from + i), _MM_FROUND_TO_NEAREST_INT);
    std::memcpy(to + i, &half, sizeof half);
  }
#elif defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    const __m128i half = _mm256_cvtps_ph(load(from + i), _MM_FROUND_TO_NEAREST_INT);
    std::memcpy(to + i, &half, sizeof half);
  }
#endif
  for (; i < count; ++i) to[i] = f16_from_f32(from[i]);
}

// Plain integer arithmetic, which the compiler vectorises.
void bf16_to_f32(const std::uint16_t* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = f32_from_bf16(from[i]);
}
void f32_to_bf16(const float* from, std::uint16_t* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = bf16_from_f32(from[i]);
}

constexpr ConvertKernels kKernels = {f16_to_f32, f32_to_f16, bf16_to_f32, f32_to_bf16};

}  // namespace
}  // namespace POLYPHASE_ISA

template <>
const ConvertKernels& convert_kernels<Isa::POLYPHASE_ISA>() {
  return POLYPHASE_ISA::kKernels;
}

}  // namespace polyphase::cpu
