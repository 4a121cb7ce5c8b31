#include <algorithm>

#include "cpu/elementwise/elementwise.hpp"
#include "cpu/elementwise/elementwise_loop.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

using Int = std::int64_t;
using Unsigned = std::uint64_t;  // arithmetic wraps around, as in PyTorch

Int wrap(Unsigned value) { return static_cast<Int>(value); }
Unsigned bits(Int value) { return static_cast<Unsigned>(value); }

// The smallest value has no positive counterpart and dividing it by -1 would trap; division by zero has no result.
Int divide(Int a, Int b) {
  if (b == 0) return 0;
  return b == -1 ? wrap(0 - bits(a)) : a / b;
}

struct IntInputs {
  Int a, b, c;
};

// One element. Integers are never performance critical, so switching for each is acceptable.
Int apply(MapOp op, IntInputs in, MapScalars scalars) {
  const auto [a, b, c] = in;
  const auto p = static_cast<Int>(scalars.p);
  const auto q = static_cast<Int>(scalars.q);
  switch (op) {
    case MapOp::add:
      return wrap(bits(a) + bits(b));
    case MapOp::sub:
      return wrap(bits(a) - bits(b));
    case MapOp::mul:
      return wrap(bits(a) * bits(b));
    case MapOp::div:
      return divide(a, b);
    case MapOp::add_scaled:
      return wrap(bits(a) + bits(p) * bits(b));
    case MapOp::affine:
      return wrap(bits(p) * bits(a) + bits(q));
    case MapOp::addcmul:
      return wrap(bits(a) + bits(b) * bits(c));
    case MapOp::maximum:
      return std::max(a, b);
    case MapOp::minimum:
      return std::min(a, b);
    case MapOp::neg:
      return wrap(0 - bits(a));
    case MapOp::abs:
      return a < 0 ? wrap(0 - bits(a)) : a;
    case MapOp::sign:
      return (a > 0) - (a < 0);
    case MapOp::square:
      return wrap(bits(a) * bits(a));
    case MapOp::clamp:
      return a < p ? p : a > q ? q : a;
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
    case MapOp::relu:
      return std::max<Int>(a, 0);
    default:
      throw DTypeError("map: expected a floating-point dtype for this function, got i64");
  }
}

Int load(const Tensor& tensor, std::int64_t offset) { return static_cast<const Int*>(tensor.raw())[offset]; }

}  // namespace

void map_i64(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars) {
  static_cast<void>(apply(op, {1, 1, 1}, scalars));  // throws before anything is written
  const Loop loop = make_loop(out, inputs);
  const auto operands = static_cast<int>(inputs.size());
  parallel_for(loop.count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    LoopPosition position(loop, begin);
    for (std::int64_t flat = begin; flat < end; ++flat) {
      IntInputs in{load(inputs[0], position.offset(1)), 0, 0};
      if (operands > 1) in.b = load(inputs[1], position.offset(2));
      if (operands > 2) in.c = load(inputs[2], position.offset(3));
      static_cast<Int*>(out.raw())[position.offset(0)] = apply(op, in, scalars);
      position.advance(1);
    }
  });
}

}  // namespace polyphase::cpu
