// Filters of 12 taps as two phases of 6, and Snake between them. An ISA source: see the rules in cpu/isa_target.hpp.

#include "cpu/elementwise/antialias_kernels.hpp"

#include "cpu/elementwise/elementwise_functions.hpp"
#include "cpu/isa_target.hpp"

namespace polyphase::cpu {
namespace POLYPHASE_ISA {
namespace {

constexpr int kTaps = 12;
constexpr int kFlush = 32;  // vectors whose products are added before they go to the f64 sums

// The taps, each in all lanes.
template <class T>
struct Taps {
  Vector<T> at[kTaps];
  POLYPHASE_INLINE explicit Taps(const T* taps) {
    for (int k = 0; k < kTaps; ++k) at[k] = broadcast(taps[k]);
  }
};

template <class T>
struct Phases {
  Vector<T> even, odd;
};

// Upsampling at lanes j.
template <class T>
POLYPHASE_INLINE Phases<T> phases(const T* x, const Taps<T>& taps) {
  Phases<T> sum{taps.at[11] * load(x), taps.at[10] * load(x + 1)};
  for (int q = 1; q < kTaps / 2; ++q) {
    sum.even = fma(taps.at[11 - 2 * q], load(x + q), sum.even);
    sum.odd = fma(taps.at[10 - 2 * q], load(x + 1 + q), sum.odd);
  }
  return sum;
}

template <class T>
void up(const T* x, const T* taps, T* even, T* odd, std::int64_t count) {
  const Taps<T> w(taps);
  for (std::int64_t j = 0; j < count; j += kLanes<T>) {
    const Phases<T> sum = phases(x + j, w);
    store<T>(even + j, sum.even);
    store<T>(odd + j, sum.odd);
  }
}

template <class T>
POLYPHASE_INLINE Vector<T> snake(Vector<T> v, Vector<T> alpha, Vector<T> beta) {
  return activation<MapOp::snake>(MapInputs<Vector<T>>{.a = v, .b = alpha, .c = beta, .d = beta, .p = beta, .q = beta});
}

template <class T>
void up_snake(const T* x, const T* taps, T alpha, T beta, T* even, T* odd, std::int64_t count) {
  const Taps<T> w(taps);
  const Vector<T> a = broadcast(alpha), b = broadcast(beta);
  for (std::int64_t j = 0; j < count; j += kLanes<T>) {
    const Phases<T> sum = phases(x + j, w);
    store<T>(even + j, snake<T>(sum.even, a, b));
    store<T>(odd + j, snake<T>(sum.odd, a, b));
  }
}

template <class T>
void down(const T* even, const T* odd, const T* taps, T* out, std::int64_t count) {
  const Taps<T> w(taps);
  for (std::int64_t j = 0; j < count; j += kLanes<T>) {
    Vector<T> of_odd = w.at[0] * load(odd + j), of_even = w.at[1] * load(even + j + 1);
    for (int q = 1; q < kTaps / 2; ++q) {
      of_odd = fma(w.at[2 * q], load(odd + j + q), of_odd);
      of_even = fma(w.at[2 * q + 1], load(even + j + 1 + q), of_even);
    }
    store<T>(out + j, of_odd + of_even);
  }
}

template <class T>
POLYPHASE_INLINE double sum_of(Vector<T> v) {
  double sum = 0;
  for (int i = 0; i < kLanes<T>; ++i) sum += static_cast<double>(v[i]);
  return sum;
}

// Sums over lanes and vectors for the gradients of alpha and beta.
template <class T>
struct SnakeSums {
  Vector<T> alpha = Vector<T>{}, beta = Vector<T>{};
};

// The gradient g of snake(v) times its slope; adds to the sums if `counts` is not zero.
template <class T, class Mask>
POLYPHASE_INLINE Vector<T> through_snake(Vector<T> v, Vector<T> g, Vector<T> a, Vector<T> b, Mask counts, SnakeSums<T>& sums) {
  const Vector<T> u = a * v, sine = sin(u), twice = constant<Vector<T>>(2) * sine * cos(u), zero = Vector<T>{};
  sums.alpha += counts ? g * (v * twice) : zero;
  sums.beta += counts ? g * (sine * sine) : zero;
  return g * (constant<Vector<T>>(1) + a * (twice / b));
}

template <class T>
void snake_gradient(const T* x, const T* taps, T alpha, T beta, T* even, T* odd, std::int64_t count, std::int64_t first,
                    std::int64_t last, double* sums) {
  const Taps<T> w(taps);
  const Vector<T> a = broadcast(alpha), b = broadcast(beta);
  const Vector<T> begin = broadcast(static_cast<T>(first)), end = broadcast(static_cast<T>(last));
  Vector<T> lane;
  for (int i = 0; i < kLanes<T>; ++i) lane[i] = static_cast<T>(i);
  for (std::int64_t j = 0; j < count;) {
    SnakeSums<T> part;
    for (int i = 0; i < kFlush && j < count; ++i, j += kLanes<T>) {
      const Vector<T> place = broadcast(static_cast<T>(j)) + lane;
      const auto counts = (place >= begin) & (place < end);
      const Phases<T> v = phases(x + j, w);
      store<T>(even + j, through_snake<T>(v.even, load(even + j), a, b, counts, part));
      store<T>(odd + j, through_snake<T>(v.odd, load(odd + j), a, b, counts, part));
    }
    sums[0] += sum_of<T>(part.alpha);
    sums[1] += sum_of<T>(part.beta);
  }
}

template <class T>
constexpr AntialiasKernels<T> kKernels = {up<T>, up_snake<T>, down<T>, snake_gradient<T>};

}  // namespace
}  // namespace POLYPHASE_ISA

template <>
const AntialiasKernels<float>& antialias_kernels<Isa::POLYPHASE_ISA, float>() {
  return POLYPHASE_ISA::kKernels<float>;
}
template <>
const AntialiasKernels<double>& antialias_kernels<Isa::POLYPHASE_ISA, double>() {
  return POLYPHASE_ISA::kKernels<double>;
}

}  // namespace polyphase::cpu
