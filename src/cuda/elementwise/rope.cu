// out = x with its pairs turned. A thread turns one pair and computes its angle: a sine and a cosine in f64 for two numbers,
// which costs less than a launch for a table at the lengths of codec frames. No fused multiply-adds, as on the CPU. f16 and
// bf16 are computed in f32 and rounded once.

#include "cuda/elementwise/rope.hpp"

#include <algorithm>
#include <cmath>

#include "cuda/kernel/address.hpp"
#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }

struct RopeLaunch {
  std::int64_t pairs;           // of the tensor
  Divider by_half, by_L, by_B;  // sizes D/2, L and B
  std::int64_t strides[4];      // of x (A, B, L, D), in elements
  const std::int64_t* positions;
  const double* frequencies;
  std::int64_t offset;
  double step;  // of the frequencies' logarithms
  bool interleaved, reversed, is_listed;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(const __grid_constant__ RopeLaunch launch, T* __restrict__ out, const T* __restrict__ x) {
  using A = MathOf<T>;
  const std::int64_t half = launch.by_half.size, pair = launch.interleaved ? 2 : 1, other = launch.interleaved ? 1 : half;
  const bool narrow = launch.pairs < std::int64_t{1} << 31;
  for (std::int64_t flat = thread_position(); flat < launch.pairs; flat += thread_count()) {
    std::int64_t i = flat;
    const std::int64_t row = launch.by_half.split(i, narrow);
    std::int64_t l = row;
    std::int64_t b = launch.by_L.split(l, narrow);
    const std::int64_t a = launch.by_B.split(b, narrow);
    const T* const in = x + a * launch.strides[0] + b * launch.strides[1] + l * launch.strides[2];
    const std::int64_t first = launch.positions == nullptr ? launch.offset : launch.positions[launch.is_listed ? l : 0];
    const double position = static_cast<double>(launch.is_listed ? first : first + l);
    const double frequency =
        launch.frequencies != nullptr ? launch.frequencies[i] : exp(__dmul_rn(static_cast<double>(i), launch.step));
    double sine = 0, cosine = 1;
    sincos(__dmul_rn(position, frequency), &sine, &cosine);
    const A s = static_cast<A>(launch.reversed ? -sine : sine), c = static_cast<A>(cosine);
    const A left = convert<A>(in[i * pair * launch.strides[3]]);
    const A right = convert<A>(in[(i * pair + other) * launch.strides[3]]);
    T* const to = out + row * 2 * half;
    to[i * pair] = convert<T>(product(left, c) - product(right, s));
    to[i * pair + other] = convert<T>(product(right, c) + product(left, s));
  }
}

}  // namespace

void rope(const Tensor& out, const Tensor& x, const Rotation& rotation, cudaStream_t stream) {
  if (out.numel() == 0) return;
  const std::int64_t half = x.size(3) / 2;
  RopeLaunch launch{};
  launch.pairs = out.numel() / 2;
  launch.by_half = Divider(half), launch.by_L = Divider(x.size(2)), launch.by_B = Divider(x.size(1));
  for (int d = 0; d < 4; ++d) launch.strides[d] = x.stride(d);
  launch.positions = address_or_null<const std::int64_t>(rotation.positions);
  launch.is_listed = rotation.positions.defined() && rotation.positions.numel() == x.size(2);
  launch.frequencies = address_or_null<const double>(rotation.frequencies);
  launch.offset = rotation.offset;
  launch.step = -std::log(rotation.base) / static_cast<double>(std::max<std::int64_t>(1, half));
  launch.interleaved = rotation.interleaved, launch.reversed = rotation.reversed;
  dispatch_element(out.dtype(), [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, std::int64_t>)
      rope_kernel<<<grid_for(launch.pairs), kThreads, 0, stream>>>(launch, static_cast<T*>(out.raw()),
                                                                   static_cast<const T*>(x.raw()));
  });
  check_launch("rope");
}

}  // namespace polyphase::cuda
