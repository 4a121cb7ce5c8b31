#include "cuda/linear/rotary_attention.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/no_grad.hpp"
#include "ops/attention.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

struct Case {
  std::int64_t N, heads, key_heads, D, window;
  bool rotates, interleaved;
};
constexpr Case kCases[] = {{1, 8, 8, 64, 250, true, true},   {2, 4, 2, 128, 40, true, false}, {1, 3, 1, 8, 5, true, true},
                           {2, 2, 2, 24, 300, false, false}, {1, 2, 2, 104, 1, true, true},   {1, 4, 4, 32, 700, true, false}};

/// All positions by the operations, in f64: (N, L, heads*D). The rotated queries and keys are not rounded.
Tensor expected_of(const Case& c, const Tensor& projected) {
  const auto heads = [&](std::int64_t first, std::int64_t count) {
    return projected.narrow(2, first * c.D, count * c.D)
        .reshape({c.N, projected.size(1), count, c.D})
        .transpose(1, 2)
        .unsqueeze(2);
  };
  const RopeOptions place{.interleaved = c.interleaved};
  const std::int64_t share = c.heads / c.key_heads, L = projected.size(1);
  const auto turned = [&](const Tensor& x) { return c.rotates ? rope(x, place) : x; };
  const auto shared = [&](const Tensor& x) {
    return x.expand({c.N, c.key_heads, share, L, c.D}).reshape({c.N, c.heads, L, c.D});
  };
  const Tensor q = turned(heads(0, c.heads)).reshape({c.N, c.heads, L, c.D});
  const Tensor y =
      scaled_dot_product_attention(q, shared(turned(heads(c.heads, c.key_heads))),
                                   shared(heads(c.heads + c.key_heads, c.key_heads)), {.causal = true, .window = c.window});
  return y.transpose(1, 2).reshape({c.N, L, c.heads * c.D});
}

RotaryAttention inputs_of(const Case& c, const Tensor& projected) {
  return {.projected = projected,
          .heads = c.heads,
          .key_heads = c.key_heads,
          .window = c.window,
          .scale = 1 / std::sqrt(static_cast<double>(c.D)),
          .rotates = c.rotates,
          .rotation = {.interleaved = c.interleaved}};
}

struct Bound {
  DType dtype;
  double bound;
};
constexpr Bound kBounds[] = {{DType::f32, kFloatSum}, {DType::f16, 2 * kHalfRounding}, {DType::bf16, 2 * kBFloat16Rounding}};

}  // namespace

TEST_CASE("rotary attention: heads of up to 128 numbers, whole vectors") {
  CHECK(cuda::rotary_attention_positions(DType::f32, 64) == 8);
  CHECK(cuda::rotary_attention_positions(DType::bf16, 128) == 8);
  CHECK(cuda::rotary_attention_positions(DType::f64, 64) == 0);
  CHECK(cuda::rotary_attention_positions(DType::f16, 60) == 0);
  CHECK(cuda::rotary_attention_positions(DType::f16, 136) == 0);
}

TEST_CASE("rotary attention without a past agrees with f64") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const Case& c : kCases)
    for (const Bound& allowed : kBounds)
      for (const std::int64_t n : {1, 2, 8}) {
        CAPTURE(c.D);
        CAPTURE(n);
        CAPTURE(name_of(allowed.dtype));
        const Tensor projected = random_f64({c.N, n, (c.heads + 2 * c.key_heads) * c.D}).to(allowed.dtype);
        const Tensor out = poisoned({c.N, n, c.heads * c.D}, allowed.dtype), device_out = mirrored(out);
        gpu().rotary_attention(device_out, inputs_of(c, mirrored(projected)));
        CHECK(worst_difference(expected_of(c, projected.to(DType::f64)), device_out) <= allowed.bound);
      }
}

TEST_CASE("rotary attention with a ring agrees with f64, keeps keys and values, and counts its positions") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  constexpr std::int64_t kLength = 330, kMost = 8;
  for (const Case& c : kCases)
    for (const Bound& allowed : kBounds) {
      CAPTURE(c.D);
      CAPTURE(name_of(allowed.dtype));
      const std::int64_t rows = c.window + kMost - 1;
      const Tensor projected = random_f64({c.N, kLength, (c.heads + 2 * c.key_heads) * c.D}).to(allowed.dtype);
      const Tensor on_gpu = projected.to(Device::cuda());
      const auto ring = [&] { return Tensor::zeros({c.N, c.key_heads, rows, c.D}, {allowed.dtype, Device::cuda()}); };
      RotaryAttention in = inputs_of(c, on_gpu);
      in.keys = ring(), in.values = ring(), in.position = Tensor::zeros({2}, {DType::i64, Device::cuda()});
      std::vector<Tensor> pieces;
      constexpr std::int64_t kSizes[] = {2, 1, 8, 5, 2, 2};
      for (std::int64_t begin = 0, i = 0; begin < kLength; ++i) {
        const std::int64_t n = std::min(kSizes[i % 6], kLength - begin);
        in.projected = on_gpu.narrow(1, begin, n).contiguous();  // a launch between two calls
        pieces.push_back(Tensor::empty({c.N, n, c.heads * c.D}, {allowed.dtype, Device::cuda()}));
        gpu().rotary_attention(pieces.back(), in);
        begin += n;
      }
      CHECK(worst_difference(expected_of(c, projected.to(DType::f64)), cat(pieces, 1)) <= allowed.bound);
      CHECK(in.position.cpu().to_vector<std::int64_t>() == std::vector<std::int64_t>{kLength, 0});
      const std::int64_t last = kLength - 1;
      const Tensor value = projected.narrow(1, last, 1).narrow(2, (c.heads + c.key_heads) * c.D, c.key_heads * c.D);
      CHECK(max_difference(in.values.cpu().narrow(2, last % rows, 1).reshape({c.N, c.key_heads * c.D}),
                           value.reshape({c.N, c.key_heads * c.D})) == 0);
    }
}

TEST_CASE("rotary attention: equal calls give equal bits, and what is not a number stays in its head") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Case c{1, 4, 4, 64, 20, true, true};
  const Tensor projected = random_f64({1, 3, 12 * 64}).to(DType::f32).to(Device::cuda());
  const auto result = [&] {
    const Tensor out = Tensor::empty({1, 3, 4 * 64}, {DType::f32, Device::cuda()});
    gpu().rotary_attention(out, inputs_of(c, projected));
    return out.cpu();
  };
  const Tensor first = result();
  CHECK(max_difference(first, result()) == 0);
  projected.narrow(1, 1, 1).narrow(2, 5 * 64, 1).fill_(std::numeric_limits<double>::quiet_NaN());  // a key of head 1
  const auto with = result().to_vector<float>(), without = first.to_vector<float>();
  for (std::size_t i = 0; i < with.size(); ++i) {
    const bool is_bad = i / 64 % 4 == 1 && i / 256 >= 1;
    CHECK((is_bad ? std::isnan(with[i]) : with[i] == without[i]));
  }
}
