// Movers of minimal filtering (cpu/conv/minimal_plan.hpp). An ISA source: see the rules in cpu/isa_target.hpp.

#include "cpu/conv/conv_kernels.hpp"
#include "cpu/conv/isa_element.hpp"
#include "cpu/isa_target.hpp"

namespace polyphase::cpu {
namespace POLYPHASE_ISA {
namespace {

using Index = std::int64_t;

constexpr int kLane = kLanes<float>;
typedef float Run __attribute__((vector_size(8 * sizeof(float))));
static_assert(sizeof(Run) / sizeof(float) == kRunSlack);

template <int phases>
POLYPHASE_INLINE Vector<float> every(const float* from) {
  if constexpr (phases == 1) {
    return load(from);
  } else {
    return Shuffle<kLane>::even(every<phases / 2>(from), every<phases / 2>(from + phases / 2 * kLane));
  }
}

template <int phases>
void split_single(const float* line, Index count, float* to, Index pitch) {
  for (Index p = 0; p < count; p += kLane)
#pragma GCC unroll 4
    for (int b = 0; b < phases; ++b) store<float>(to + b * pitch + p, every<phases>(line + phases * p + b));
}

// Copies D elements, and some after them.
POLYPHASE_INLINE void copy_run(const float* from, Index D, float* to) {
  for (Index i = 0; i < D; i += kRunSlack) {
    Run run;
    std::memcpy(&run, from + i, sizeof run);
    std::memcpy(to + i, &run, sizeof run);
  }
}

// What a run writes too much is overwritten by the next one.
void split(const float* line, Index phases, Index D, Index count, float* to, Index pitch) {
  if (D == 1) return phases == 4 ? split_single<4>(line, count, to, pitch) : split_single<2>(line, count, to, pitch);
  for (Index p = 0; p < count; p += D)
    for (Index b = 0; b < phases; ++b, line += D) copy_run(line, D, to + b * pitch + p);
}

void merge(const float* from, Index pitch, Index phases, Index D, Index count, Index last, float* line) {
  const Index copied = (D + kRunSlack - 1) / kRunSlack * kRunSlack;
  Index t = 0;
  for (Index p = 0; p < count; p += D)
    for (Index b = 0; b < phases && t < last; ++b, t += D) {
      const float* run = from + b * pitch + p;
      if (t + copied <= last)
        copy_run(run, D, line + t);
      else
        for (Index i = 0; i < D && t + i < last; ++i) line[t + i] = run[i];
    }
}

void add_magnitudes(const float* line, Index count, float* sums, float* squares) {
  for (Index p = 0; p < count; p += kLane) {
    const Vector<float> value = load(line + p), negative = -value;
    store<float>(sums + p, load(sums + p) + (value < negative ? negative : value));
    store<float>(squares + p, fma(value, value, load(squares + p)));
  }
}

void combine(const RowSum* row, Index rows, const float* from, float* to, Index count) {
  for (Index r = 0; r < rows; ++r) {
    const float *a = from + row[r].a, *b = from + row[r].b;
    float* out = to + row[r].to;
    const Vector<float> sign = broadcast(row[r].sign);
    for (Index p = 0; p < count; p += kLane) store<float>(out + p, fma(sign, load(b + p), load(a + p)));
  }
}

void two_outputs(const float* m, Index pitch, Index count, float* out) {
  for (Index p = 0; p < count; p += kLane) {
    const Vector<float> m1 = load(m + pitch + p), m2 = load(m + 2 * pitch + p);
    store<float>(out + p, load(m + p) + (m1 + m2));
    store<float>(out + count + p, (m1 - m2) - load(m + 3 * pitch + p));
  }
}

void four_outputs(const float* part0, const float* part1, const float* part2, Index count, float* out) {
  for (Index half = 0; half < 2; ++half)
    for (Index p = 0; p < count; p += kLane) {
      const Index at = half * count + p;
      const Vector<float> middle = load(part1 + at);
      store<float>(out + 2 * half * count + p, load(part0 + at) + middle);
      store<float>(out + (2 * half + 1) * count + p, middle - load(part2 + at));
    }
}

constexpr MinimalKernels kMinimal = {split, merge, add_magnitudes, combine, two_outputs, four_outputs};

}  // namespace
}  // namespace POLYPHASE_ISA

template <>
const MinimalKernels& minimal_kernels<Isa::POLYPHASE_ISA>() {
  return POLYPHASE_ISA::kMinimal;
}

}  // namespace polyphase::cpu
