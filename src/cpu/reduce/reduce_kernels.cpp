// Reductions of rows and of columns, accumulated in double; memory bound. An ISA source: see the rules in cpu/isa_target.hpp.

#include "cpu/reduce/reduce_kernels.hpp"

#include "cpu/elementwise/elementwise_math.hpp"

namespace polyphase::cpu {
namespace POLYPHASE_ISA {
namespace {

POLYPHASE_INLINE F64 load_wide(const double* from) { return load(from); }
POLYPHASE_INLINE F64 load_wide(const float* from) {
#if defined(__AVX512F__)
  return _mm512_cvtps_pd(_mm256_loadu_ps(from));
#elif defined(__AVX2__)
  return _mm256_cvtps_pd(_mm_loadu_ps(from));  // GCC 12 compiles __builtin_convertvector to three slow instructions
#elif defined(__x86_64__)
  return _mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(from))));
#else
  return vcvt_f64_f32(vld1_f32(from));
#endif
}

// V is F64 or double. A NaN stays: comparisons with it are false.
template <ReduceOp op, class V>
POLYPHASE_INLINE V accumulate(V sum, V x) {
  if constexpr (op == ReduceOp::sum) return sum + x;
  if constexpr (op == ReduceOp::sum_of_squares) return sum + x * x;
  if constexpr (op == ReduceOp::sum_of_abs) return x < 0 ? sum - x : sum + x;
  if constexpr (op == ReduceOp::max) return x > sum ? x : x != x ? x : sum;
  if constexpr (op == ReduceOp::min) return x < sum ? x : x != x ? x : sum;
}

template <ReduceOp op, class T>
void reduce_row(double* lanes, const T* x, std::int64_t count) {
  constexpr int kStep = kLanes<double>;
  constexpr int kRegisters = kReduceLanes / kStep;
  F64 sums[kRegisters];
  for (int r = 0; r < kRegisters; ++r) sums[r] = load(lanes + r * kStep);
  std::int64_t i = 0;
  for (; i + kReduceLanes <= count; i += kReduceLanes)
    for (int r = 0; r < kRegisters; ++r) sums[r] = accumulate<op>(sums[r], load_wide(x + i + r * kStep));
  for (int r = 0; r < kRegisters; ++r) store(lanes + r * kStep, sums[r]);
  for (int lane = 0; i < count; ++i, ++lane) lanes[lane] = accumulate<op>(lanes[lane], static_cast<double>(x[i]));
}

template <ReduceOp op, class T>
void reduce_columns(double* sums, const T* x, std::int64_t count) {
  constexpr int kStep = kLanes<double>;
  std::int64_t i = 0;
  for (; i + kStep <= count; i += kStep) store(sums + i, accumulate<op>(load(sums + i), load_wide(x + i)));
  for (; i < count; ++i) sums[i] = accumulate<op>(sums[i], static_cast<double>(x[i]));
}

template <ReduceOp op, class T>
constexpr ReduceFunctions<T> kFunctions = {reduce_row<op, T>, reduce_columns<op, T>};

// In the order of ReduceOp.
constexpr ReduceKernels kKernels = {
    {kFunctions<ReduceOp::sum, float>, kFunctions<ReduceOp::sum_of_squares, float>, kFunctions<ReduceOp::sum_of_abs, float>,
     kFunctions<ReduceOp::max, float>, kFunctions<ReduceOp::min, float>},
    {kFunctions<ReduceOp::sum, double>, kFunctions<ReduceOp::sum_of_squares, double>, kFunctions<ReduceOp::sum_of_abs, double>,
     kFunctions<ReduceOp::max, double>, kFunctions<ReduceOp::min, double>}};

}  // namespace
}  // namespace POLYPHASE_ISA

template <>
const ReduceKernels& reduce_kernels<Isa::POLYPHASE_ISA>() {
  return POLYPHASE_ISA::kKernels;
}

}  // namespace polyphase::cpu
