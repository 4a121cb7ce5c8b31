#pragma once
// What happens to a finished sum (bias already added) before it is stored: the functions of
// cuda/elementwise/elementwise_functions.cuh, so that a fused activation has the bits of one that is launched by itself.

#include <cstdint>

#include "tensor/map_op.hpp"

namespace polyphase::cuda {

using polyphase::Activation;

#ifdef __CUDACC__
/// Not inlined: a kernel that finishes 64 sums would hold 64 copies.
template <class A>
__device__ __noinline__ A tanh_once(A value) {
  return tanh(value);
}
template <class A>
__device__ __noinline__ A snake_once(A value, A alpha, A beta) {
  const A s = sin(alpha * value);
  return value + s * s / beta;
}
/// Whether a gradient passes a ReLU or LeakyReLU that gave `result` as it is. Where that is NaN a ReLU's does, as in PyTorch.
template <class A>
__device__ __forceinline__ bool passes(bool is_relu, A result) {
  return is_relu ? !(result <= A(0)) : result > A(0);
}
#endif

struct Epilogue {
  Activation activation = Activation::none;
  double slope = 0;             // leaky_relu
  const void* alpha = nullptr;  // snake: (output channels), elements of the convolution's type
  const void* beta = nullptr;
  // Distances in bytes from where an output is stored; 0: none. Tensors laid out like the output, whatever part of it a kernel
  // works on.
  std::int64_t residual = 0;  // to what `scale` times the activation is added to
  double scale = 1;
  std::int64_t before = 0;  // to where the activation's argument is kept
  // To the activation's result. Then the sum is multiplied by the derivative that follows from it, instead of activated.
  std::int64_t derivative = 0;

  /// Whether stores need more than apply() or activate().
  [[nodiscard]] constexpr bool has_aux() const { return residual != 0 || before != 0 || derivative != 0; }
  /// Whether there are two aux operands: tensors that are read at the output's place, a residual and what gives a derivative.
  [[nodiscard]] constexpr bool has_both() const { return residual != 0 && derivative != 0; }
  /// The distance to what is read first: of both the activation's result; 0 where nothing is.
  [[nodiscard]] constexpr std::int64_t first_aux() const { return derivative != 0 ? derivative : residual; }
  /// Whether all but reading the aux operands is a few instructions a number.
  [[nodiscard]] constexpr bool is_light() const {
    return before == 0 && activation != Activation::tanh && activation != Activation::snake;
  }
  /// Whether LightAuxFinish is all there is to do with a sum.
  [[nodiscard]] constexpr bool is_light_aux() const {
    return has_aux() && is_light() && (derivative != 0 || activation == Activation::none);
  }
  [[nodiscard]] constexpr bool is_needed() const { return activation != Activation::none || has_aux(); }

#ifdef __CUDACC__
  /// All but snake, which needs its channel's parameters: activate().
  template <class A>
  __device__ __forceinline__ A apply(A value) const {
    switch (activation) {
      case Activation::relu:
        return value < A(0) ? A(0) : value;
      case Activation::leaky_relu:
        return value < A(0) ? A(slope) * value : value;
      case Activation::tanh:
        return tanh_once(value);
      default:
        return value;
    }
  }

  /// The value that apply() made `result` of; NaN where that cannot be told.
  __device__ __forceinline__ float undo(float result) const {
    if (activation == Activation::none) return result;
    if (activation != Activation::leaky_relu || !(slope > 0)) return __int_as_float(0x7fffffff);
    return result < 0.0F ? result / static_cast<float>(slope) : result;
  }

  /// `value` of output channel `channel`, rounded to the element type T first, as it would be in a tensor.
  template <class T, class A>
  __device__ __forceinline__ A activate(A value, std::int64_t channel) const {
    const A rounded = static_cast<A>(static_cast<T>(value));
    if (activation != Activation::snake) return apply(rounded);
    return snake_once(rounded, static_cast<A>(static_cast<const T*>(alpha)[channel]),
                      static_cast<A>(static_cast<const T*>(beta)[channel]));
  }

  /// `gradient` times the activation's derivative where it gave `result`.
  template <class A>
  __device__ __forceinline__ A differentiate(A gradient, A result) const {
    switch (activation) {
      case Activation::relu:
        return passes(true, result) ? gradient : A(0);
      case Activation::leaky_relu:
        return passes(false, result) ? gradient : A(slope) * gradient;
      default:  // tanh
        return gradient * (A(1) - result * result);
    }
  }

  /// What lies `distance` bytes from an output's place.
  template <class T>
  static __device__ __forceinline__ T* aux(const T* to, std::int64_t distance) {
    return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(to) + static_cast<std::uintptr_t>(distance));
  }
  /// What is added to the output stored at `to`.
  template <class A, class T>
  __device__ __forceinline__ A added(const T* to) const {
    return residual != 0 ? static_cast<A>(*aux(to, residual)) : A(0);
  }
  /// The aux operands that finish() reads.
  template <class A>
  struct Others {
    A added, result;
  };
  /// That of the output stored at `to`.
  template <class A, class T>
  __device__ __forceinline__ Others<A> others(const T* to) const {
    return {added<A>(to), derivative != 0 ? static_cast<A>(*aux(to, derivative)) : A(0)};
  }
  /// The output for an activation's result of T's values, or a gradient through it, and what is added to it.
  template <class T, class A>
  __device__ __forceinline__ T summed(A result, A other) const {
    return static_cast<T>(residual != 0 ? fma(static_cast<A>(scale), result, other) : result);
  }
  /// The output for `value`, a sum with its bias, and its aux operands.
  template <class T, class A>
  __device__ __forceinline__ T finished(A value, std::int64_t channel, const Others<A>& other) const {
    const A active =
        derivative != 0 ? differentiate(static_cast<A>(static_cast<T>(value)), other.result) : activate<T>(value, channel);
    return summed<T>(static_cast<A>(static_cast<T>(active)), other.added);
  }
  /// The same of the output that goes to `to`, its argument kept. `other` is others(to), read early so that many are under way.
  template <class T, class A>
  __device__ __forceinline__ T finish(A value, std::int64_t channel, T* to, const Others<A>& other) const {
    if (before != 0) *aux(to, before) = static_cast<T>(value);
    return finished<T>(value, channel, other);
  }
  template <class T, class A>
  __device__ __forceinline__ T finish(A value, std::int64_t channel, T* to) const {
    return finish<T>(value, channel, to, others<A>(to));
  }
#endif
};

#ifdef __CUDACC__
/// finished() for a light epilogue whose activation, if it has one, is in the sum or is differentiated: with all it looks at
/// in registers, one selection and one product with a sum. What is not there is read as what leaves a number as it is.
template <class T, class A>
class LightAuxFinish {
 public:
  __device__ __forceinline__ explicit LightAuxFinish(const Epilogue& epilogue)
      : residual_(epilogue.residual),
        derivative_(epilogue.derivative),
        is_relu_(epilogue.activation == Activation::relu),
        slope_(static_cast<A>(epilogue.slope)),
        scale_(epilogue.residual != 0 ? static_cast<A>(epilogue.scale) : A(1)) {}
  __device__ __forceinline__ Epilogue::Others<A> others(const T* to) const {
    return {residual_ != 0 ? static_cast<A>(*Epilogue::aux(to, residual_)) : A(-0.0),
            derivative_ != 0 ? static_cast<A>(*Epilogue::aux(to, derivative_)) : A(1)};
  }
  __device__ __forceinline__ T operator()(A sum, const Epilogue::Others<A>& other) const {
    const A value = static_cast<A>(static_cast<T>(sum));
    const A low = static_cast<A>(static_cast<T>(slope_ * value));
    const A through = passes(is_relu_, other.result) ? value : is_relu_ ? A(0) : low;
    return static_cast<T>(fma(scale_, through, other.added));
  }

 private:
  std::int64_t residual_, derivative_;
  bool is_relu_;
  A slope_, scale_;
};

/// Finishes row[begin, begin + count) inside [0, length), sums of output channel `channel` that this thread has just stored:
/// its 16-byte vectors thread, thread + threads, ... from row + begin, which is aligned. So a kernel that writes such vectors
/// needs no registers for the epilogue, and what is read again is still in the L2 cache.
template <class A, class T>
__device__ __forceinline__ void finish_stored(const Epilogue& epilogue, T* row, std::int64_t length, std::int64_t begin,
                                              int count, std::int64_t channel, int thread, int threads) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  struct alignas(16) Pack {
    T at[kVector];
  };
  const bool whole = (epilogue.residual | epilogue.before | epilogue.derivative) % 16 == 0;
  const bool is_light = epilogue.is_light_aux();
  const LightAuxFinish<T, A> light(epilogue);
  Pack nothing, one;
#pragma unroll
  for (int i = 0; i < kVector; ++i) nothing.at[i] = static_cast<T>(-0.0F), one.at[i] = static_cast<T>(1.0F);
  __syncwarp();  // nothing of the stores is left to come, whatever type they were of
#pragma unroll 1
  for (int e = thread * kVector; e < count; e += threads * kVector) {
    const std::int64_t at = begin + e;
    if (whole && at >= 0 && at + kVector <= length) {
      Pack* const to = reinterpret_cast<Pack*>(row + at);
      Pack pack = *to;
      const Pack other = epilogue.residual != 0 ? *Epilogue::aux(to, epilogue.residual) : nothing;
      const Pack result = epilogue.derivative != 0 ? *Epilogue::aux(to, epilogue.derivative) : one;
      if (epilogue.before != 0) *Epilogue::aux(to, epilogue.before) = pack;
      const auto each = [&](const auto& function) {
#pragma unroll
        for (int i = 0; i < kVector; ++i)
          pack.at[i] = function(static_cast<A>(pack.at[i]),
                                Epilogue::Others<A>{static_cast<A>(other.at[i]), static_cast<A>(result.at[i])});
      };
      if (is_light)
        each(light);
      else
        each([&](A value, const Epilogue::Others<A>& others) { return epilogue.finished<T>(value, channel, others); });
      *to = pack;
      continue;
    }
#pragma unroll 1
    for (int i = 0; i < kVector; ++i) {
      T* const to = row + at + i;
      if (at + i >= 0 && at + i < length) *to = epilogue.finish<T>(static_cast<A>(*to), channel, to);
    }
  }
}
#endif

}  // namespace polyphase::cuda
