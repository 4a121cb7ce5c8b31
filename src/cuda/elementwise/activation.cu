// y = f(x) with one kernel for each function. Memory bound: the general kernel has every function in one body, whose registers
// leave too few threads an SM to keep the memory busy; here a thread loads kUnroll packs of 16 bytes before it computes.

#include "cuda/elementwise/activation.hpp"

#include "cuda/elementwise/elementwise_functions.cuh"
#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kUnroll = 2;

template <class T, MapOp kOp>
__global__ void __launch_bounds__(kThreads)
    activation_kernel(std::int64_t count, MathOf<T> p, const T* __restrict__ x, T* __restrict__ y) {
  using A = MathOf<T>;
  constexpr int kPack = 16 / static_cast<int>(sizeof(T));
  using Packed = Pack<T, kPack>;
  const std::int64_t block = static_cast<std::int64_t>(kThreads) * kPack * kUnroll;
  for (std::int64_t start = blockIdx.x * block; start < count; start += gridDim.x * block) {
    const std::int64_t first = start + threadIdx.x * kPack;
    Packed values[kUnroll];
    const auto for_packs = [&](const auto& use) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t flat = first + u * (kThreads * kPack);
        if (flat + kPack <= count) use(values[u], flat);
      }
    };
    for_packs([&](Packed& pack, std::int64_t flat) { pack = *reinterpret_cast<const Packed*>(x + flat); });
    const auto each = [&](auto function) {
      for_packs([&](Packed& pack, std::int64_t flat) {
#pragma unroll
        for (T& value : pack.at) value = convert<T>(static_cast<A>(function(convert<A>(value), A(0), A(0), A(0))));
        *reinterpret_cast<Packed*>(y + flat) = pack;
      });
      const std::int64_t rest = count % kPack, at = count - rest + threadIdx.x;
      if (start == 0 && threadIdx.x < rest) y[at] = convert<T>(static_cast<A>(function(convert<A>(x[at]), A(0), A(0), A(0))));
    };
    if constexpr (is_heavy(kOp)) {
      apply_heavy<A, 1>(kOp, p, each);
    } else {
      apply_light<A, 1>(kOp, p, A(0), each);
    }
  }
}

template <MapOp kOp>
void launch(const Tensor& out, const Tensor& x, double p, cudaStream_t stream) {
  dispatch_element(out.dtype(), [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, std::int64_t>) {
      const unsigned grid = grid_for(out.numel(), kThreads * 16 / static_cast<int>(sizeof(T)) * kUnroll);
      activation_kernel<T, kOp><<<grid, kThreads, 0, stream>>>(out.numel(), static_cast<MathOf<T>>(p),
                                                               static_cast<const T*>(x.raw()), static_cast<T*>(out.raw()));
    }
  });
  check_launch("activation");
}

}  // namespace

bool activate(MapOp op, const Tensor& out, const Tensor& x, double p, cudaStream_t stream) {
  if (!out.is_contiguous() || !x.is_contiguous() || !is_aligned(out.raw(), 16) || !is_aligned(x.raw(), 16)) return false;
  switch (op) {
    case MapOp::relu:
      launch<MapOp::relu>(out, x, p, stream);
      return true;
    case MapOp::leaky_relu:
      launch<MapOp::leaky_relu>(out, x, p, stream);
      return true;
    case MapOp::elu:
      launch<MapOp::elu>(out, x, p, stream);
      return true;
    case MapOp::gelu:
      launch<MapOp::gelu>(out, x, p, stream);
      return true;
    case MapOp::gelu_tanh:
      launch<MapOp::gelu_tanh>(out, x, p, stream);
      return true;
    case MapOp::silu:
      launch<MapOp::silu>(out, x, p, stream);
      return true;
    case MapOp::tanh:
      launch<MapOp::tanh>(out, x, p, stream);
      return true;
    case MapOp::sigmoid:
      launch<MapOp::sigmoid>(out, x, p, stream);
      return true;
    default:
      return false;
  }
}

}  // namespace polyphase::cuda
