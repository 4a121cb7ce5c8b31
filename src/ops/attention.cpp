#include "ops/attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "autograd/node.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/linear.hpp"
#include "ops/mac_counter.hpp"
#include "ops/reduce.hpp"

namespace polyphase {

using autograd::Gradients;
using autograd::Needs;
using autograd::Saved;

namespace {

constexpr std::int64_t kQueries = 128;  // per block
constexpr std::int64_t kKeys = 256;     // per product; the CPU's sums add up to this many terms one after another

struct Range {
  std::int64_t begin, end;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};

// One call.
struct Attention {
  std::int64_t queries, keys, window, first_key;
  bool causal;
  double scale;

  [[nodiscard]] std::int64_t shift() const { return keys - queries; }
  // The keys that any query of a block sees.
  [[nodiscard]] Range seen_by(Range block) const {
    if (!causal) return {0, keys};
    const std::int64_t last = block.end + shift();
    return {window > 0 ? std::max<std::int64_t>(0, block.begin + shift() - window + 1) : 0, last};
  }
};

Tensor rows(const Tensor& x, Range range) { return x.narrow(2, range.begin, range.size()); }

// exp(scale q k^T - maximum) of a block of queries, 0 where a key is not seen.
Tensor exponentials(const Attention& a, const Tensor& q, const Tensor& k, Range block, Range seen) {
  Tensor scores = matmul(mul(rows(q, block), a.scale), rows(k, seen).transpose(-2, -1));
  if (a.causal) {
    const TensorOptions like{q.dtype(), q.device()};
    const auto first = static_cast<double>(block.begin + a.shift() - seen.begin);
    const Tensor query = Tensor::arange(first, first + static_cast<double>(block.size()), 1, like).unsqueeze(1);
    const Tensor key = Tensor::arange(0, static_cast<double>(seen.size()), 1, like);
    Tensor visible = less_equal(key, query);
    if (a.window > 0) visible = mul(visible, greater(key, add(query, -static_cast<double>(a.window))));
    scores = where(visible, scores, Tensor::full({}, -std::numeric_limits<double>::infinity(), like));
  }
  Shape kept = scores.shape();
  kept[3] = 1;
  return exp(sub(scores, ops::reduce(ReduceOp::max, scores, kept)));
}

// e (N, H, B, K) times values (..., K, E); K is split at multiples of kKeys in the stream.
Tensor sum_over_keys(const Attention& a, const Tensor& e, const Tensor& values, Range seen) {
  Tensor total;
  for (std::int64_t begin = seen.begin; begin < seen.end;) {
    const std::int64_t in_stream = begin + a.first_key;
    const std::int64_t end = std::min(seen.end, begin + kKeys - in_stream % kKeys);
    const Tensor part = matmul(e.narrow(3, begin - seen.begin, end - begin), values.narrow(2, begin - seen.begin, end - begin));
    total = total.defined() ? add(total, part) : part;
    begin = end;
  }
  return total;
}

Tensor total_of(const Attention& a, const Tensor& e, Range seen) {
  return sum_over_keys(a, e, Tensor::ones({1, 1, seen.size(), 1}, {e.dtype(), e.device()}), seen);
}

template <class Body>
void for_blocks(const Attention& a, const Body& body) {
  for (std::int64_t begin = 0; begin < a.queries; begin += kQueries) {
    const Range block{begin, std::min(a.queries, begin + kQueries)};
    body(block, a.seen_by(block));
  }
}

void attend(const Attention& a, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out) {
  for_blocks(a, [&](Range block, Range seen) {
    const Tensor e = exponentials(a, q, k, block, seen);
    rows(out, block).copy_(div(sum_over_keys(a, e, rows(v, seen), seen), total_of(a, e, seen)));
  });
}

// With shares s = e/total: dv = s^T g, ds = s*(g v^T - sum(g*y)), dq = scale ds k, dk = scale ds^T q.
Gradients way_back(const Attention& a, const std::array<Tensor, 4>& kept, const Tensor& g) {
  const Tensor &q = kept[0], &k = kept[1], &v = kept[2], &y = kept[3];
  const Tensor dq = Tensor::empty_like(q), dk = Tensor::zeros_like(k), dv = Tensor::zeros_like(v);
  for_blocks(a, [&](Range block, Range seen) {
    const Tensor e = exponentials(a, q, k, block, seen), share = div(e, total_of(a, e, seen)), gradient = rows(g, block);
    const Tensor along = sum(mul(gradient, rows(y, block)), {3}, true);
    const Tensor products = mul(share, sub(matmul(gradient, rows(v, seen).transpose(-2, -1)), along));
    rows(dv, seen) += matmul(share.transpose(-2, -1), gradient);
    rows(dq, block).copy_(mul(matmul(products, rows(k, seen)), a.scale));
    rows(dk, seen) += mul(matmul(products.transpose(-2, -1), rows(q, block)), a.scale);
  });
  return {dq, dk, dv};
}

// In one kernel if the device has one that is faster; else undefined.
Tensor attended_in_kernel(const Attention& a, const Tensor& q, const Tensor& k, const Tensor& v) {
  // (N, L, H, E) in memory: the projection that follows reads a position's heads as one row.
  const Tensor out = Tensor::empty({q.size(0), a.queries, q.size(1), v.size(3)}, {q.dtype(), q.device()}).transpose(1, 2);
  if (out.numel() == 0) return out;
  const AttentionInputs in{q.detach(), k.detach(), v.detach(), a.scale, a.causal, a.window};
  if (!backend_of(q.device()).attention(out, in)) return {};
  const std::int64_t seen = a.window > 0 ? std::min(a.window, a.keys) : a.keys;
  ops::MacCounter::add(static_cast<double>(out.numel() / v.size(3) * seen) * static_cast<double>(q.size(3) + v.size(3)));
  return out;
}

// In products of blocks where there is no such kernel; f32 or f64.
Tensor attended(const Attention& a, const Tensor& q, const Tensor& k, const Tensor& v) {
  if (Tensor y = attended_in_kernel(a, q, k, v); y.defined()) return y;
  Tensor out = Tensor::empty({q.size(0), a.queries, q.size(1), v.size(3)}, {q.dtype(), q.device()}).transpose(1, 2);
  attend(a, q, k, v, out);
  return out;
}

// x (..., L, D), turned, off the tape.
Tensor turned(const Tensor& x, const Rotation& rotation) {
  const Tensor out = Tensor::empty(x.shape(), {x.dtype(), x.device()});
  if (out.numel() == 0) return out;
  const bool is_flat = x.rank() != 4;
  const Shape shape{1, x.numel() / (x.size(-2) * x.size(-1)), x.size(-2), x.size(-1)};
  const NoGradGuard no_grad;
  backend_of(x.device()).rope(is_flat ? out.reshape(shape) : out, is_flat ? x.reshape(shape) : x, rotation);
  return out;
}

void check(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  constexpr const char* name = "scaled_dot_product_attention";
  ops::require_floating(name, q);
  ops::require_defined(name, "k", k);
  ops::require_defined(name, "v", v);
  ops::require_alike(name, std::array{q, k, v});
  require<ShapeError>(q.rank() == 4, name, ": expected q (N, H, Lq, D), got ", q.shape());
  require<ShapeError>(k.rank() == 4 && k.size(0) == q.size(0) && k.size(1) == q.size(1) && k.size(3) == q.size(3), name,
                      ": expected k (N=", q.size(0), ", H=", q.size(1), ", Lk, D=", q.size(3), "), got ", k.shape());
  require<ShapeError>(v.rank() == 4 && v.size(0) == q.size(0) && v.size(1) == q.size(1) && v.size(2) == k.size(2), name,
                      ": expected v (N=", q.size(0), ", H=", q.size(1), ", Lk=", k.size(2), ", E), got ", v.shape());
  require<ShapeError>(q.numel() == 0 || k.size(2) >= 1, name, ": expected at least one key, got none");
  require<ShapeError>(!options.causal || k.size(2) >= q.size(2), name, ": expected Lk >= Lq with causal, got Lk=", k.size(2),
                      " and Lq=", q.size(2));
  require<ShapeError>(options.window >= 0 && (options.window == 0 || options.causal), name,
                      ": expected window >= 0, and 0 without causal, got ", options.window);
  require<ShapeError>(options.first_key >= 0, name, ": expected first_key >= 0, got ", options.first_key);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  if (autograd::raises(q) || autograd::raises(k) || autograd::raises(v))
    return scaled_dot_product_attention(autograd::raised(q), autograd::raised(k), autograd::raised(v), options);
  check(q, k, v, options);
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, q.size(3)))));
  const Attention a{q.size(2), k.size(2), options.window, options.first_key, options.causal, scale};
  if (ops::is_half(q)) {
    if (!autograd::should_record(std::array{q, k, v})) {
      const NoGradGuard no_grad;
      if (Tensor y = attended_in_kernel(a, q, k, v); y.defined()) return y;
    }
    return scaled_dot_product_attention(q.to(DType::f32), k.to(DType::f32), v.to(DType::f32), options).to(q.dtype());
  }
  const AutocastGuard off(std::nullopt);
  Tensor y;
  {
    const NoGradGuard no_grad;
    y = attended(a, q, k, v);
  }
  return autograd::record(
      "scaled_dot_product_attention", y, {q, k, v},
      [a, sq = Saved(q), sk = Saved(k), sv = Saved(v), sy = Saved(y)](const Tensor& g, Needs) {
        const Tensor& query = sq.get();
        if (g.numel() == 0)
          return Gradients{Tensor::zeros_like(query), Tensor::zeros_like(sk.get()), Tensor::zeros_like(sv.get())};
        return way_back(a, {query, sk.get(), sv.get(), sy.get()}, g);
      });
}

Tensor rope(const Tensor& x, const RopeOptions& options) {
  ops::require_floating("rope", x);
  require<ShapeError>(x.rank() >= 2 && x.size(-1) % 2 == 0, "rope: expected x (..., L, D) with an even D, got ", x.shape());
  const std::int64_t L = x.size(-2), half = x.size(-1) / 2;
  const Tensor &positions = options.positions, &frequencies = options.inv_freq;
  require<ShapeError>(!positions.defined() || positions.shape() == Shape{L} || positions.shape() == Shape{1},
                      "rope: expected positions (L=", L, ") or (1), got ", positions.defined() ? positions.shape() : Shape{});
  require<DTypeError>(!positions.defined() || positions.dtype() == DType::i64, "rope: expected positions of i64");
  require<ShapeError>(!frequencies.defined() || frequencies.shape() == Shape{half}, "rope: expected inv_freq (D/2=", half,
                      "), got ", frequencies.defined() ? frequencies.shape() : Shape{});
  Rotation rotation{.offset = options.offset, .base = options.base, .interleaved = options.interleaved};
  const bool followed = autograd::should_record(std::array{x});
  if (positions.defined()) rotation.positions = positions.detach().to(x.device()).contiguous();
  if (frequencies.defined()) rotation.frequencies = frequencies.detach().to(DType::f64).to(x.device()).contiguous();
  const Tensor y = turned(x.detach(), rotation);
  if (followed && positions.defined()) rotation.positions = rotation.positions.clone();  // a stream counts its own on
  if (followed && frequencies.defined()) rotation.frequencies = rotation.frequencies.clone();
  return autograd::record("rope", y, {x}, [rotation](const Tensor& g, Needs) {
    Rotation back = rotation;
    back.reversed = true;
    return Gradients{turned(g, back)};
  });
}

}  // namespace polyphase
