// A thread draws one Philox block: four elements of f32 or a 16-bit type, two of f64. The arithmetic is the CPU's
// (cpu/elementwise/random.cpp), in double and without contraction: uniform numbers agree bit for bit, normal ones except for
// the last bit of a double logarithm.

#include "cuda/elementwise/random.hpp"

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/runtime/graph.hpp"
#include "cuda/runtime/runtime.hpp"
#include "device/backend.hpp"
#include "tensor/philox.hpp"

namespace polyphase::cuda {
namespace {

// The numbers in [0, 1) of a block: four of 24 bits, or for f64 two of 53.
__device__ void unit_numbers(const PhiloxWords& words, float (&numbers)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) numbers[i] = static_cast<float>(words.word[i] >> 8) * 0x1p-24f;
}
__device__ void unit_numbers(const PhiloxWords& words, double (&numbers)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t both = static_cast<std::uint64_t>(words.word[2 * i]) << 32 | words.word[2 * i + 1];
    numbers[i] = static_cast<double>(both >> 11) * 0x1p-53;
  }
}

// `largest` is the limit that rounding may not exceed.
template <class A>
struct Uniform {
  double low, width;
  A largest;
  Uniform(double from, double to, DType dtype)
      : low(from), width(to - from), largest(static_cast<A>(uniform_limit(from, to, dtype))) {}
  template <int kCount>
  __device__ void operator()(A (&numbers)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const A x = static_cast<A>(__dadd_rn(low, __dmul_rn(static_cast<double>(numbers[i]), width)));
      numbers[i] = x < largest ? x : largest;
    }
  }
};

// Pairs (u, v) to sqrt(-2 log(1 - u)) * (cos, sin)(2 pi v); 1 - u is exact and never 0.
template <class A>
struct Normal {
  double mean, deviation;
  Normal(double centre, double width, DType) : mean(centre), deviation(width) {}
  template <int kCount>
  __device__ void operator()(A (&numbers)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      const double radius = __dmul_rn(deviation, sqrt(-2 * log(1 - static_cast<double>(numbers[i]))));
      double s, c;
      sincospi(2 * static_cast<double>(numbers[i + 1]), &s, &c);
      numbers[i] = static_cast<A>(__dadd_rn(mean, __dmul_rn(radius, c)));
      numbers[i + 1] = static_cast<A>(__dadd_rn(mean, __dmul_rn(radius, s)));
    }
  }
};

// In a recorded graph the generator continues from replay to replay.
__device__ GeneratorState state_of_replay(GeneratorState state, const ReplayState* replay) {
  return replay == nullptr ? state : GeneratorState{replay->seed, state.offset + replay->offset};
}

template <class T, class Transform>
__global__ void __launch_bounds__(kThreads)
    random_kernel(T* out, std::int64_t count, GeneratorState recorded, const ReplayState* replay, Transform transform) {
  using A = MathOf<T>;
  constexpr int kPerBlock = std::is_same_v<A, double> ? 2 : 4;
  const GeneratorState state = state_of_replay(recorded, replay);
  for (std::int64_t block = thread_position(); block * kPerBlock < count; block += thread_count()) {
    A numbers[kPerBlock];
    unit_numbers(philox_block(state.seed, state.offset + static_cast<std::uint64_t>(block)), numbers);
    transform(numbers);
#pragma unroll
    for (int i = 0; i < kPerBlock; ++i)
      if (block * kPerBlock + i < count) out[block * kPerBlock + i] = convert<T>(numbers[i]);
  }
}

template <template <class> class Transform>
void draw(const char* operation, const Tensor& out, GeneratorState state, double first, double second, cudaStream_t stream) {
  require<DTypeError>(is_floating_point(out.dtype()), operation, ": expected a floating-point dtype, got ", out.dtype());
  if (out.numel() == 0) return;
  const ReplayState* replay = replay_state(out.device().index, state);
  dispatch_element(out.dtype(), [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, std::int64_t>) {
      const std::int64_t per_block = std::is_same_v<T, double> ? 2 : 4;
      random_kernel<<<grid_for((out.numel() + per_block - 1) / per_block), kThreads, 0, stream>>>(
          static_cast<T*>(out.raw()), out.numel(), state, replay, Transform<MathOf<T>>(first, second, out.dtype()));
    }
  });
  check_launch(operation);
}

}  // namespace

void uniform(const Tensor& out, GeneratorState state, double low, double high, cudaStream_t stream) {
  draw<Uniform>("uniform", out, state, low, high, stream);
}

void normal(const Tensor& out, GeneratorState state, double mean, double deviation, cudaStream_t stream) {
  draw<Normal>("normal", out, state, mean, deviation, stream);
}

}  // namespace polyphase::cuda
