#include "ops/elementwise.hpp"

#include <limits>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "autograd/node.hpp"
#include "ops/dispatch.hpp"
#include "ops/reduce.hpp"
#include "tensor/operation.hpp"

namespace polyphase {

using autograd::follows_gradients;
using autograd::Gradients;
using autograd::Needs;
using autograd::promoted;
using autograd::raised;
using autograd::raises;
using autograd::record;
using autograd::save_if;
using autograd::Saved;
using ops::is_half;
using ops::map;

namespace {

// Whether a guard converts the operands of `name` to one dtype first.
bool promotes(const char* name, const Tensor& a, const Tensor& b) {
  ops::require_defined(name, "a", a);
  ops::require_defined(name, "b", b);
  return autograd::promotes(a, b);
}

// p*a + q, off the tape.
Tensor affine(const char* name, const Tensor& a, double p, double q) { return map(name, MapOp::affine, {a}, {p, q}); }

// The second operand of a function of a tensor and a scalar.
Tensor scalar(const char* name, double value, const Tensor& like) {
  require_representable(name, value, like.dtype());
  return Tensor::full({}, value, {like.dtype(), like.device()});
}

// A function of one floating-point tensor whose derivative is computed from its input or its output.
enum class KeptValue : std::uint8_t { input, output };

template <class Derivative>
Tensor unary(const char* name, MapOp op, const Tensor& a, KeptValue keep, Derivative derivative, MapScalars scalars = {}) {
  ops::require_floating(name, a);
  Tensor out = map(name, op, {a}, scalars);
  Saved saved = save_if(follows_gradients(a), keep == KeptValue::input ? a : out);
  return record(name, std::move(out), {a}, [saved = std::move(saved), derivative](const Tensor& g, Needs) {
    return Gradients{derivative(saved.get(), g)};
  });
}

// Gradients of a function of two broadcast operands, reduced to their shapes.
template <class First, class Second>
autograd::BackwardFunction binary_backward(const Tensor& a, const Tensor& b, First first, Second second) {
  return [a_shape = a.shape(), b_shape = b.shape(), first, second](const Tensor& g, Needs needs) {
    Gradients gradients(2);
    if (needs[0]) gradients[0] = sum_to(first(g), a_shape);
    if (needs[1]) gradients[1] = sum_to(second(g), b_shape);
    return gradients;
  };
}

Tensor same(const Tensor& g) { return g; }

// The larger (or smaller) operand: `loses` compares a with b. If one is NaN, neither loses, as in PyTorch.
Tensor extremum(const char* name, MapOp op, MapOp loses, const Tensor& a, const Tensor& b) {
  const bool followed = follows_gradients(a) || follows_gradients(b);
  const auto share = [name, loses](const Saved& self, const Saved& other, const Tensor& g) {
    const Tensor lost = map(name, loses, {self.get(), other.get()});
    const Tensor tied = map(name, MapOp::equal, {self.get(), other.get()});
    return mul(g, affine(name, add_scaled(lost, tied, 0.5), -1, 1));
  };
  Saved sa = save_if(followed, a);
  Saved sb = save_if(followed, b);
  return record(name, map(name, op, {a, b}), {a, b},
                binary_backward(
                    a, b, [sa, sb, share](const Tensor& g) { return share(sa, sb, g); },
                    [sa, sb, share](const Tensor& g) { return share(sb, sa, g); }));
}

// A bound outside the range of i64 has no effect.
Tensor clamp_integers(const Tensor& a, double low, double high) {
  const bool has_low = !(low <= -0x1p63), has_high = !(high >= 0x1p63);
  if (has_low && has_high) return map("clamp", MapOp::clamp, {a}, {low, high});
  if (has_low) return map("clamp", MapOp::maximum, {a, scalar("clamp", low, a)});
  return has_high ? map("clamp", MapOp::minimum, {a, scalar("clamp", high, a)}) : a.clone();
}

// |a - b|. For integers in f64: exact up to 2^53, and correct where their difference would wrap around.
Tensor distance(const Tensor& a, const Tensor& b) {
  if (a.dtype() != DType::i64) return abs(sub(a, b));
  const Tensor exact = abs(sub(a, b)).to(DType::f64), wide = abs(sub(a.to(DType::f64), b.to(DType::f64)));
  return where(less(wide, scalar("allclose", 0x1p62, wide)), exact, wide);
}

// condition != 0 as 0 or 1, which every dtype can represent.
Tensor mask_of(const Tensor& condition) {
  return map("where", MapOp::where, {condition, scalar("where", 1, condition), scalar("where", 0, condition)});
}

Tensor comparison(const char* name, MapOp op, const Tensor& a, const Tensor& b) {
  if (promotes(name, a, b)) return map(name, op, {promoted(a, b), promoted(b, a)});
  return map(name, op, {a, b});
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  if (promotes("add", a, b)) return add(promoted(a, b), promoted(b, a));
  return record("add", map("add", MapOp::add, {a, b}), {a, b}, binary_backward(a, b, same, same));
}

Tensor sub(const Tensor& a, const Tensor& b) {
  if (promotes("sub", a, b)) return sub(promoted(a, b), promoted(b, a));
  return record("sub", map("sub", MapOp::sub, {a, b}), {a, b}, binary_backward(a, b, same, [](const Tensor& g) { return -g; }));
}

Tensor add_scaled(const Tensor& a, const Tensor& b, double scale) {
  if (promotes("add_scaled", a, b)) return add_scaled(promoted(a, b), promoted(b, a), scale);
  return record("add_scaled", map("add_scaled", MapOp::add_scaled, {a, b}, {scale, 0}), {a, b},
                binary_backward(a, b, same, [scale](const Tensor& g) { return scale == 1 ? g : mul(g, scale); }));
}

Tensor addcmul(const Tensor& a, const Tensor& b, const Tensor& c) {
  ops::require_defined("addcmul", "c", c);
  if (promotes("addcmul", a, b) || autograd::promotes(b, c)) return add(a, mul(b, c));
  Saved sb = save_if(follows_gradients(c), b), sc = save_if(follows_gradients(b), c);
  return record("addcmul", map("addcmul", MapOp::addcmul, {a, b, c}), {a, b, c},
                [a_shape = a.shape(), b_shape = b.shape(), c_shape = c.shape(), sb, sc](const Tensor& g, Needs needs) {
                  Gradients gradients(3);
                  if (needs[0]) gradients[0] = sum_to(g, a_shape);
                  if (needs[1]) gradients[1] = sum_to(mul(g, sc.get()), b_shape);
                  if (needs[2]) gradients[2] = sum_to(mul(g, sb.get()), c_shape);
                  return gradients;
                });
}

Tensor mul(const Tensor& a, const Tensor& b) {
  if (promotes("mul", a, b)) return mul(promoted(a, b), promoted(b, a));
  Saved sa = save_if(follows_gradients(b), a);
  Saved sb = save_if(follows_gradients(a), b);
  return record(
      "mul", map("mul", MapOp::mul, {a, b}), {a, b},
      binary_backward(
          a, b, [sb](const Tensor& g) { return mul(g, sb.get()); }, [sa](const Tensor& g) { return mul(g, sa.get()); }));
}

Tensor div(const Tensor& a, const Tensor& b) {
  if (promotes("div", a, b)) return div(promoted(a, b), promoted(b, a));
  Saved sa = save_if(follows_gradients(b), a);
  Saved sb = save_if(follows_gradients(a) || follows_gradients(b), b);
  return record("div", map("div", MapOp::div, {a, b}), {a, b},
                binary_backward(
                    a, b, [sb](const Tensor& g) { return div(g, sb.get()); },
                    [sa, sb](const Tensor& g) { return mul(g, mul(div(sa.get(), square(sb.get())), -1)); }));
}

Tensor add(const Tensor& a, double b) {
  return record("add", affine("add", a, 1, b), {a}, [](const Tensor& g, Needs) { return Gradients{g}; });
}

Tensor mul(const Tensor& a, double b) {
  return record("mul", affine("mul", a, b, 0), {a}, [b](const Tensor& g, Needs) { return Gradients{affine("mul", g, b, 0)}; });
}

Tensor operator-(double a, const Tensor& b) {
  return record("sub", affine("sub", b, -1, a), {b}, [](const Tensor& g, Needs) { return Gradients{-g}; });
}

// A 16-bit tensor would round the scalar: as in other functions with a scalar, the quotient is computed in f32 and rounded
// once.
Tensor operator/(const Tensor& a, double b) {
  if (is_half(a)) {
    require_representable("div", b, DType::f32);
    return record("div", map("div", MapOp::div_scalar, {a}, {b, 0}), {a}, [b](const Tensor& g, Needs) {
      return Gradients{map("div", MapOp::div_scalar, {g}, {b, 0})};
    });
  }
  return div(a, scalar("div", b, a));  // rounded once, not a*(1/b)
}

Tensor operator/(double a, const Tensor& b) {
  if (is_half(b)) return (a / b.to(DType::f32)).to(b.dtype());
  return div(scalar("div", a, b), b);
}

Tensor operator-(const Tensor& a) {
  return record("neg", map("neg", MapOp::neg, {a}), {a}, [](const Tensor& g, Needs) { return Gradients{-g}; });
}

Tensor abs(const Tensor& a) {
  return record("abs", map("abs", MapOp::abs, {a}), {a}, [saved = save_if(follows_gradients(a), a)](const Tensor& g, Needs) {
    return Gradients{mul(g, map("abs", MapOp::sign, {saved.get()}))};
  });
}

Tensor square(const Tensor& a) {
  return record(
      "square", map("square", MapOp::square, {a}), {a},
      [saved = save_if(follows_gradients(a), a)](const Tensor& g, Needs) { return Gradients{mul(mul(g, saved.get()), 2)}; });
}

Tensor sqrt(const Tensor& a) {
  return unary("sqrt", MapOp::sqrt, a, KeptValue::output, [](const Tensor& y, const Tensor& g) { return mul(div(g, y), 0.5); });
}

Tensor rsqrt(const Tensor& a) {
  if (raises(a)) return rsqrt(raised(a));
  return unary("rsqrt", MapOp::rsqrt, a, KeptValue::output,
               [](const Tensor& y, const Tensor& g) { return mul(mul(g, mul(square(y), y)), -0.5); });
}

Tensor reciprocal(const Tensor& a) {
  if (raises(a)) return reciprocal(raised(a));
  return unary("reciprocal", MapOp::reciprocal, a, KeptValue::output,
               [](const Tensor& y, const Tensor& g) { return -mul(g, square(y)); });
}

Tensor exp(const Tensor& a) {
  if (raises(a)) return exp(raised(a));
  return unary("exp", MapOp::exp, a, KeptValue::output, [](const Tensor& y, const Tensor& g) { return mul(g, y); });
}

Tensor log(const Tensor& a) {
  if (raises(a)) return log(raised(a));
  return unary("log", MapOp::log, a, KeptValue::input, [](const Tensor& x, const Tensor& g) { return div(g, x); });
}

Tensor sin(const Tensor& a) {
  return unary("sin", MapOp::sin, a, KeptValue::input, [](const Tensor& x, const Tensor& g) { return mul(g, cos(x)); });
}

Tensor cos(const Tensor& a) {
  return unary("cos", MapOp::cos, a, KeptValue::input, [](const Tensor& x, const Tensor& g) { return -mul(g, sin(x)); });
}

Tensor pow(const Tensor& a, double exponent) {
  if (raises(a)) return pow(raised(a), exponent);
  const auto derivative = [exponent](const Tensor& x, const Tensor& g) {
    if (exponent == 0) return Tensor::zeros_like(g);  // not 0 * x^-1, which is NaN at 0
    return mul(mul(g, pow(x, exponent - 1)), exponent);
  };
  return unary("pow", MapOp::pow_scalar, a, KeptValue::input, derivative, {exponent, 0});
}

Tensor clamp(const Tensor& a, double low, double high) {
  if (a.dtype() == DType::i64) return clamp_integers(a, low, high);
  return record("clamp", map("clamp", MapOp::clamp, {a}, {low, high}), {a},
                [saved = save_if(follows_gradients(a), a), low, high](const Tensor& g, Needs) {
                  const Tensor& x = saved.get();
                  const TensorOptions options{x.dtype(), x.device()};
                  const Tensor above = greater_equal(x, Tensor::full({}, low, options));
                  const Tensor below = less_equal(x, Tensor::full({}, high, options));
                  return Gradients{mul(g, mul(above, below))};
                });
}

Tensor maximum(const Tensor& a, const Tensor& b) {
  if (promotes("maximum", a, b)) return maximum(promoted(a, b), promoted(b, a));
  return extremum("maximum", MapOp::maximum, MapOp::less, a, b);
}

Tensor minimum(const Tensor& a, const Tensor& b) {
  if (promotes("minimum", a, b)) return minimum(promoted(a, b), promoted(b, a));
  return extremum("minimum", MapOp::minimum, MapOp::greater, a, b);
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  ops::require_defined("where", "condition", condition);
  if (promotes("where", a, b)) return where(condition, promoted(a, b), promoted(b, a));
  if (autograd::promotes(condition, a)) return where(mask_of(condition).to(a.dtype()), a, b);
  Saved saved = save_if(follows_gradients(a) || follows_gradients(b), condition);
  const auto pick = [saved](const Tensor& g, bool first) {
    const Tensor zero = Tensor::zeros({}, {g.dtype(), g.device()});
    return first ? map("where", MapOp::where, {saved.get(), g, zero}) : map("where", MapOp::where, {saved.get(), zero, g});
  };
  return record(
      "where", map("where", MapOp::where, {condition, a, b}), {a, b},
      binary_backward(
          a, b, [pick](const Tensor& g) { return pick(g, true); }, [pick](const Tensor& g) { return pick(g, false); }));
}

Tensor greater(const Tensor& a, const Tensor& b) { return comparison("greater", MapOp::greater, a, b); }
Tensor greater_equal(const Tensor& a, const Tensor& b) { return comparison("greater_equal", MapOp::greater_equal, a, b); }
Tensor less(const Tensor& a, const Tensor& b) { return comparison("less", MapOp::less, a, b); }
Tensor less_equal(const Tensor& a, const Tensor& b) { return comparison("less_equal", MapOp::less_equal, a, b); }
Tensor equal(const Tensor& a, const Tensor& b) { return comparison("equal", MapOp::equal, a, b); }

bool allclose(const Tensor& a, const Tensor& b, double relative, double absolute) {
  const NoGradGuard no_grad;
  const Tensor difference = distance(a, b);
  const Tensor size = abs(a.dtype() == DType::i64 ? b.to(difference.dtype()) : b);
  const Tensor within = less_equal(difference, add(mul(size, relative), absolute));
  // An infinite b makes the tolerance infinite, so the difference must be finite. Infinities of equal sign are close although
  // their difference is NaN.
  const Tensor infinity = scalar("allclose", std::numeric_limits<double>::infinity(), difference);
  const Tensor good = maximum(mul(within, less(difference, infinity)), equal(a, b).to(difference.dtype()));
  const OperationScope scope("allclose");
  return good.numel() == 0 || min(good).item() == 1;
}

}  // namespace polyphase
