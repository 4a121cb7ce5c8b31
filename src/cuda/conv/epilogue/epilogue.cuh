#pragma once
// The epilogue: what is applied to a finished sum (with its bias) before it is stored. It uses the functions of
// cuda/elementwise/elementwise_functions.cuh, so a fused activation gives the same bits as one launched separately.

#include <cstdint>

#include "tensor/map_op.hpp"

#ifdef __CUDACC__
#include "cuda/elementwise/snake_function.cuh"
#endif

namespace polyphase::cuda {

using polyphase::Activation;

#ifdef __CUDACC__
/// Not inlined: a kernel that finishes 64 sums would contain 64 copies.
template <class A>
__device__ __noinline__ A tanh_once(A value) {
  return tanh(value);
}
template <class A, bool kIs16Bit>
__device__ __noinline__ A snake_once(A value, A alpha, A beta) {
  return SnakeFunction<A, kIs16Bit>(alpha, beta)(value);
}
/// Whether a ReLU or LeakyReLU that gave `result` passes the gradient unchanged. If the result is NaN, ReLU passes it, as in
/// PyTorch.
template <class A>
__device__ __forceinline__ bool passes(bool is_relu, A result) {
  return is_relu ? !(result <= A(0)) : result > A(0);
}
#endif

struct Epilogue {
  Activation activation = Activation::none;
  double slope = 0;             // for leaky_relu
  const void* alpha = nullptr;  // for snake: (output channels), elements of the convolution's type
  const void* beta = nullptr;
  // Byte distances from the output's address; 0 means none. These tensors have the output's layout.
  std::int64_t residual = 0;  // to the residual, which is added to `scale` times the activation
  double scale = 1;
  std::int64_t before = 0;  // to where the activation's argument is kept
  // To the activation's result. If set, the sum is multiplied by the activation's derivative instead of activated.
  std::int64_t derivative = 0;

  /// Whether stores need more than apply() or activate().
  [[nodiscard]] constexpr bool has_aux() const { return residual != 0 || before != 0 || derivative != 0; }
  /// Whether there are two aux operands: a residual and the result that gives the derivative.
  [[nodiscard]] constexpr bool has_both() const { return residual != 0 && derivative != 0; }
  /// The distance to the first aux operand read (the activation's result if there are two); 0 if there is none.
  [[nodiscard]] constexpr std::int64_t first_aux() const { return derivative != 0 ? derivative : residual; }
  /// Whether the epilogue, apart from reading aux operands, is a few instructions per number.
  [[nodiscard]] constexpr bool is_light() const {
    return before == 0 && activation != Activation::tanh && activation != Activation::snake;
  }
  /// Whether LightAuxFinish covers the whole epilogue.
  [[nodiscard]] constexpr bool is_light_aux() const {
    return has_aux() && is_light() && (derivative != 0 || activation == Activation::none);
  }
  [[nodiscard]] constexpr bool is_needed() const { return activation != Activation::none || has_aux(); }
  /// Whether activate_stored_snake() is the whole epilogue.
  [[nodiscard]] constexpr bool is_snake_alone() const { return activation == Activation::snake && !has_aux(); }

#ifdef __CUDACC__
  /// All activations except snake, which needs its channel's parameters: see activate().
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

  /// The value from which apply() computed `result`; NaN if it cannot be recovered.
  __device__ __forceinline__ float undo(float result) const {
    if (activation == Activation::none) return result;
    if (activation != Activation::leaky_relu || !(slope > 0)) return __int_as_float(0x7fffffff);
    return result < 0.0F ? result / static_cast<float>(slope) : result;
  }

  /// Activates `value` of output channel `channel`, first rounded to the element type T as it would be in a tensor.
  template <class T, class A>
  __device__ __forceinline__ A activate(A value, std::int64_t channel) const {
    const A rounded = static_cast<A>(static_cast<T>(value));
    if (activation != Activation::snake) return apply(rounded);
    return snake_once<A, sizeof(T) == 2>(rounded, static_cast<A>(static_cast<const T*>(alpha)[channel]),
                                         static_cast<A>(static_cast<const T*>(beta)[channel]));
  }

  /// `gradient` times the derivative of the activation that gave `result`.
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

  /// The element `distance` bytes from an output's address.
  template <class T>
  static __device__ __forceinline__ T* aux(const T* to, std::int64_t distance) {
    return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(to) + static_cast<std::uintptr_t>(distance));
  }
  /// The residual of the output stored at `to`.
  template <class A, class T>
  __device__ __forceinline__ A added(const T* to) const {
    return residual != 0 ? static_cast<A>(*aux(to, residual)) : A(0);
  }
  /// The aux operands that finish() reads.
  template <class A>
  struct Others {
    A added, result;
  };
  /// The aux operands of the output stored at `to`.
  template <class A, class T>
  __device__ __forceinline__ Others<A> others(const T* to) const {
    return {added<A>(to), derivative != 0 ? static_cast<A>(*aux(to, derivative)) : A(0)};
  }
  /// The output for an activation's result (or a gradient) with T's values, and the residual.
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
  /// The same for the output stored at `to`, also storing the argument if it is kept. `other` is others(to), read early so that
  /// many loads overlap.
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
/// finished() for a light epilogue whose activation, if any, is already in the sum or is differentiated. Its parameters are in
/// registers, so a sum takes one selection and one product. Absent operands are read as neutral values.
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

/// Applies Snake to row[begin, begin + count) inside [0, length), the 16-byte vectors thread, thread + threads, ... Its
/// parameters are prepared once.
template <class A, class T>
__device__ __forceinline__ void activate_stored_snake(const Epilogue& epilogue, T* row, std::int64_t length, std::int64_t begin,
                                                      int count, std::int64_t channel, int thread, int threads) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  struct alignas(16) Pack {
    T at[kVector];
  };
  const SnakeFunction<A, sizeof(T) == 2> function(static_cast<A>(static_cast<const T*>(epilogue.alpha)[channel]),
                                                  static_cast<A>(static_cast<const T*>(epilogue.beta)[channel]));
#pragma unroll 1
  for (int e = thread * kVector; e < count; e += threads * kVector) {
    const std::int64_t at = begin + e;
    if (at >= 0 && at + kVector <= length) {
      Pack* const to = reinterpret_cast<Pack*>(row + at);
      Pack pack = *to;
      A values[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] = static_cast<A>(pack.at[i]);
      function.apply(values);
#pragma unroll
      for (int i = 0; i < kVector; ++i) pack.at[i] = static_cast<T>(values[i]);
      *to = pack;
      continue;
    }
#pragma unroll 1
    for (int i = 0; i < kVector; ++i)
      if (at + i >= 0 && at + i < length) row[at + i] = static_cast<T>(function(static_cast<A>(row[at + i])));
  }
}

/// Finishes row[begin, begin + count) inside [0, length): sums of output channel `channel` that this thread has just stored, in
/// the 16-byte vectors thread, thread + threads, ... from row + begin, which is aligned. A kernel that writes such vectors
/// needs no registers for the epilogue, and the reads hit the L2 cache.
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
  __syncwarp();  // the stores are complete, whatever type they had
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

/// activate_stored_snake(), not inlined: its registers are not the caller's.
template <class A, class T>
__device__ __noinline__ void activate_stored_snake_once(const Epilogue& epilogue, T* row, std::int64_t length,
                                                        std::int64_t begin, int count, std::int64_t channel, int thread,
                                                        int threads) {
  activate_stored_snake<A>(epilogue, row, length, begin, count, channel, thread, threads);
}

/// finish_stored() as the last thing that a kernel does. Snake alone is a call, which would make a kernel that goes on spill
/// what it needs then.
template <class A, class T>
__device__ __forceinline__ void finish_stored_last(const Epilogue& epilogue, T* row, std::int64_t length, std::int64_t begin,
                                                   int count, std::int64_t channel, int thread, int threads) {
  if (!epilogue.is_snake_alone()) return finish_stored<A>(epilogue, row, length, begin, count, channel, thread, threads);
  __syncwarp();
  activate_stored_snake_once<A>(epilogue, row, length, begin, count, channel, thread, threads);
}
#endif

}  // namespace polyphase::cuda
