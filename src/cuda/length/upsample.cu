// Linear upsampling, memory bound. Rows are contiguous, so output flat = input*S + phase for any row. A thread computes 16
// aligned bytes of output and needs its place in the row only for the row's ends.

#include "cuda/length/upsample.hpp"

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/length/run_sum.cuh"
#include "cuda/runtime/runtime.hpp"
#include "device/backend.hpp"

namespace polyphase::cuda {
namespace {

constexpr std::int64_t kTerms = Backend::kRun / 2;  // phases per run: each contributes at most two terms to an input

__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double fused(double a, double b, double c) { return __fma_rn(a, b, c); }

// Output i*S + k is between input i and a neighbour; as in cpu/elementwise/upsample.cpp.
template <class Math>
struct Scale {
  std::int64_t S, L;
  Math inverse;  // 1/2S
  Divider by_scale, by_length;
  bool narrow;
  Scale(std::int64_t scale, std::int64_t length, std::int64_t outputs)
      : S(scale),
        L(length),
        inverse(Math(1) / (Math(2) * static_cast<Math>(scale))),
        by_scale(scale),
        by_length(length),
        narrow(outputs < std::int64_t{1} << 31) {}
  __device__ __forceinline__ std::int64_t twice(std::int64_t k) const { return 2 * k + 1 - S; }  // its sign gives the side
  __device__ __forceinline__ Math weight(std::int64_t distance) const {
    return product(static_cast<Math>(distance < 0 ? -distance : distance), inverse);  // not fused with what follows
  }
};

template <class T, int kWide>
__global__ void __launch_bounds__(kThreads)
    upsample_kernel(T* out, const T* __restrict__ in, std::int64_t count, const __grid_constant__ Scale<MathOf<T>> scale) {
  using Math = MathOf<T>;
  for (std::int64_t flat = thread_position() * kWide; flat < count; flat += thread_count() * kWide) {
    std::int64_t k = flat;
    const T* own = in + scale.by_scale.split(k, scale.narrow);
    std::int64_t place = own - in;
    scale.by_length.split(place, scale.narrow);
    Math value = convert<Math>(*own), before = place > 0 ? convert<Math>(own[-1]) : value;
    Math after = place + 1 < scale.L ? convert<Math>(own[1]) : value;
    Pack<T, kWide> pack;
#pragma unroll
    for (int v = 0; v < kWide; ++v) {
      const std::int64_t twice = scale.twice(k);
      const bool is_held = twice == 0 || (twice < 0 ? place == 0 : place + 1 == scale.L);
      const Math weight = scale.weight(twice), other = twice < 0 ? before : after;
      const Math between = fused(Math(1) - weight, value, product(weight, other));
      pack.at[v] = convert<T>(is_held ? value : between);
      if (++k == scale.S && flat + v + 1 < count) {
        k = 0, ++own;
        if (++place == scale.L) place = 0;
        before = value;
        value = place == 0 ? convert<Math>(*own) : after;
        after = place + 1 < scale.L ? convert<Math>(own[1]) : value;
      }
    }
    if (flat + kWide <= count) {
      *reinterpret_cast<Pack<T, kWide>*>(out + flat) = pack;
    } else {
#pragma unroll
      for (int v = 0; v < kWide; ++v)
        if (flat + v < count) out[flat + v] = pack.at[v];
    }
  }
}

// to[i][c] = the contribution of phases k = c, c + runs, c + 2 runs, ... to input i.
template <class To, class T>
__global__ void __launch_bounds__(kThreads)
    upsample_backward_kernel(To* to, const T* __restrict__ in, std::int64_t count, Divider by_run,
                             const __grid_constant__ Scale<MathOf<T>> scale) {
  using Math = MathOf<T>;
  for (std::int64_t flat = thread_position(); flat < count; flat += thread_count()) {
    std::int64_t c = flat;
    const std::int64_t i = by_run.split(c, scale.narrow);
    std::int64_t place = i;
    scale.by_length.split(place, scale.narrow);
    const bool is_first = place == 0, is_last = place + 1 == scale.L;
    const T* own = in + i * scale.S;
    Math sum(0);
    for (std::int64_t k = c; k < scale.S; k += by_run.size) {
      const std::int64_t twice = scale.twice(k);
      const Math weight = scale.weight(twice);
      const bool is_held = twice < 0 ? is_first : is_last;
      sum = fused(is_held ? Math(1) : Math(1) - weight, convert<Math>(own[k]), sum);
      if (twice < 0 && !is_last) sum = fused(weight, convert<Math>(own[k + scale.S]), sum);
      if (twice > 0 && !is_first) sum = fused(weight, convert<Math>(own[k - scale.S]), sum);
    }
    to[flat] = convert<To>(sum);
  }
}

// Calls function(element) with the floating-point type of `dtype`.
template <class Function>
void dispatch_floating(DType dtype, const Function& function) {
  dispatch_element(dtype, [&]<class T>(T element) {
    if constexpr (!std::is_same_v<T, std::int64_t>) function(element);
  });
}

}  // namespace

void upsample_linear(const Tensor& out, const Tensor& in, std::int64_t scale, cudaStream_t stream) {
  const std::int64_t count = out.numel();
  if (count == 0) return;
  dispatch_floating(out.dtype(), [&]<class T>(T) {
    constexpr int kWide = 16 / static_cast<int>(sizeof(T));
    const Scale<MathOf<T>> weights(scale, in.size(-1), count);
    auto* const to = static_cast<T*>(out.raw());
    const auto* const from = static_cast<const T*>(in.raw());
    if (is_aligned(to, 16))
      upsample_kernel<T, kWide><<<grid_for((count + kWide - 1) / kWide), kThreads, 0, stream>>>(to, from, count, weights);
    else
      upsample_kernel<T, 1><<<grid_for(count), kThreads, 0, stream>>>(to, from, count, weights);
  });
  check_launch("upsample1d");
}

void upsample_linear_backward(const Tensor& out, const Tensor& in, std::int64_t scale, cudaStream_t stream) {
  if (out.numel() == 0) return;
  const std::int64_t runs = (scale + kTerms - 1) / kTerms, count = out.numel() * runs;
  dispatch_floating(out.dtype(), [&]<class T>(T) {
    using Math = MathOf<T>;
    const Scale<Math> weights(scale, out.size(-1), in.numel());
    auto* const to = static_cast<T*>(out.raw());
    const auto* const from = static_cast<const T*>(in.raw());
    const auto launch = [&]<class To>(To* sums) {
      upsample_backward_kernel<To, T><<<grid_for(count), kThreads, 0, stream>>>(sums, from, count, Divider(runs), weights);
      check_launch("upsample1d: backward");
    };
    if (runs == 1) return launch(to);
    const Buffer parts(static_cast<std::size_t>(count) * sizeof(Math), out.device().index);
    launch(parts.as<Math>());
    sum_runs<T, Math>({to, 1}, {parts.as<Math>(), runs}, out.numel(), runs, out.device().index, stream);
  });
}

}  // namespace polyphase::cuda
