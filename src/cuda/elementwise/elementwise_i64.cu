// Integers: the functions of cpu/elementwise/elementwise_i64.cpp, element by element; never performance critical.

#include <algorithm>

#include "cuda/elementwise/elementwise.hpp"
#include "cuda/kernel/strided.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

using Int = std::int64_t;
using Unsigned = std::uint64_t;  // arithmetic wraps around, as in PyTorch

constexpr int kMaxInputs = 3;

struct Launch {
  Strided<kMaxInputs + 1> space;
  const Int* input[kMaxInputs];
  Int* out;
  int inputs;
  MapOp op;
  Int p, q;
};

bool has_integers(MapOp op) {
  switch (op) {
    case MapOp::scale_around:
    case MapOp::pow_scalar:
    case MapOp::div_scalar:
    case MapOp::sqrt:
    case MapOp::rsqrt:
    case MapOp::reciprocal:
    case MapOp::exp:
    case MapOp::log:
    case MapOp::sin:
    case MapOp::cos:
      return false;
    default:
      return op <= MapOp::relu;
  }
}

// The smallest value has no positive counterpart, and division by zero has no result.
__device__ Int divide(Int a, Int b) {
  if (b == 0) return 0;
  return b == -1 ? static_cast<Int>(0 - static_cast<Unsigned>(a)) : a / b;
}

__device__ Int apply(const Launch& l, Int a, Int b, Int c) {
  const auto ua = static_cast<Unsigned>(a), ub = static_cast<Unsigned>(b);
  const auto up = static_cast<Unsigned>(l.p), uq = static_cast<Unsigned>(l.q);
  switch (l.op) {
    case MapOp::add:
      return static_cast<Int>(ua + ub);
    case MapOp::sub:
      return static_cast<Int>(ua - ub);
    case MapOp::mul:
      return static_cast<Int>(ua * ub);
    case MapOp::div:
      return divide(a, b);
    case MapOp::add_scaled:
      return static_cast<Int>(ua + up * ub);
    case MapOp::affine:
      return static_cast<Int>(up * ua + uq);
    case MapOp::addcmul:
      return static_cast<Int>(ua + ub * static_cast<Unsigned>(c));
    case MapOp::maximum:
      return a > b ? a : b;
    case MapOp::minimum:
      return a < b ? a : b;
    case MapOp::neg:
      return static_cast<Int>(0 - ua);
    case MapOp::abs:
      return a < 0 ? static_cast<Int>(0 - ua) : a;
    case MapOp::sign:
      return (a > 0) - (a < 0);
    case MapOp::square:
      return static_cast<Int>(ua * ua);
    case MapOp::clamp:
      return a < l.p ? l.p : a > l.q ? l.q : a;
    case MapOp::greater:
      return a > b;
    case MapOp::greater_equal:
      return a >= b;
    case MapOp::less:
      return a < b;
    case MapOp::less_equal:
      return a <= b;
    case MapOp::equal:
      return a == b;
    case MapOp::where:
      return a != 0 ? b : c;
    default:
      return a > 0 ? a : 0;  // relu
  }
}

__global__ void __launch_bounds__(kThreads) map_i64_kernel(const __grid_constant__ Launch launch) {
  for (std::int64_t flat = thread_position(); flat < launch.space.count; flat += thread_count()) {
    Int in[kMaxInputs] = {};
#pragma unroll
    for (int k = 0; k < kMaxInputs; ++k)
      if (k < launch.inputs) in[k] = launch.input[k][launch.space.offset(k + 1, flat)];
    launch.out[launch.space.offset(0, flat)] = apply(launch, in[0], in[1], in[2]);
  }
}

}  // namespace

void map_i64(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream) {
  require<DTypeError>(has_integers(op), "map: expected a floating-point dtype for this function, got i64");
  if (out.numel() == 0) return;
  const Loop loop = make_loop(out, inputs);
  Launch launch{Strided<kMaxInputs + 1>(loop),   {}, static_cast<Int*>(out.raw()),
                static_cast<int>(inputs.size()), op, static_cast<Int>(scalars.p),
                static_cast<Int>(scalars.q)};
  for (std::size_t k = 0; k < inputs.size(); ++k) launch.input[k] = static_cast<const Int*>(inputs[k].raw());
  map_i64_kernel<<<grid_for(loop.count), kThreads, 0, stream>>>(launch);
  check_launch("map i64");
}

}  // namespace polyphase::cuda
