#include "ops/conv.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/gradcheck.hpp"
#include "autograd/no_grad.hpp"
#include "conv/algorithm.hpp"
#include "ops/activations.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Inputs = std::vector<Tensor>;

double at(const Tensor& t, std::int64_t i, std::int64_t j, std::int64_t k) {
  return t.data<double>()[(i * t.size(1) + j) * t.size(2) + k];
}

// The sums of docs/notation.md, one position at a time; all tensors are f64, contiguous and batched.
Tensor plain_transposed(const Tensor& there_x, const Tensor& there_w, const Tensor& b, const ConvTranspose1dOptions& o) {
  const Tensor x = there_x.detach().cpu(), w = there_w.detach().cpu();
  const std::int64_t in_group = w.size(0) / o.groups;
  const std::int64_t out_group = w.size(1);
  const std::int64_t length =
      (x.size(2) - 1) * o.stride - o.padding.left - o.padding.right + o.dilation * (w.size(2) - 1) + o.output_padding + 1;
  Tensor y = Tensor::zeros({x.size(0), out_group * o.groups, length}, {.dtype = DType::f64, .device = Device::cpu()});
  for (std::int64_t n = 0; n < x.size(0); ++n)
    for (std::int64_t ci = 0; ci < x.size(1); ++ci)
      for (std::int64_t co = 0; co < out_group; ++co)
        for (std::int64_t i = 0; i < x.size(2); ++i)
          for (std::int64_t k = 0; k < w.size(2); ++k) {
            const std::int64_t t = i * o.stride + k * o.dilation - o.padding.left;
            if (t < 0 || t >= length) continue;
            const std::int64_t channel = ci / in_group * out_group + co;
            y.data<double>()[(n * y.size(1) + channel) * length + t] += at(x, n, ci, i) * at(w, ci, co, k);
          }
  y = y.to(there_x.device());
  return b.defined() ? y + b.reshape({b.size(0), 1}) : y;
}

Tensor plain_conv(const Tensor& there_x, const Tensor& there_w, const Tensor& b, const Conv1dOptions& o) {
  const Tensor x = there_x.detach().cpu(), w = there_w.detach().cpu();
  const std::int64_t in_group = w.size(1);
  const std::int64_t out_group = w.size(0) / o.groups;
  const std::int64_t length = (x.size(2) + o.padding.left + o.padding.right - o.dilation * (w.size(2) - 1) - 1) / o.stride + 1;
  Tensor y = Tensor::zeros({x.size(0), w.size(0), length}, {.dtype = DType::f64, .device = Device::cpu()});
  for (std::int64_t n = 0; n < x.size(0); ++n)
    for (std::int64_t co = 0; co < w.size(0); ++co)
      for (std::int64_t ci = 0; ci < in_group; ++ci)
        for (std::int64_t t = 0; t < length; ++t)
          for (std::int64_t k = 0; k < w.size(2); ++k) {
            const std::int64_t i = t * o.stride + k * o.dilation - o.padding.left;
            if (i < 0 || i >= x.size(2)) continue;
            y.data<double>()[(n * y.size(1) + co) * length + t] +=
                at(x, n, co / out_group * in_group + ci, i) * at(w, co, ci, k);
          }
  y = y.to(there_x.device());
  return b.defined() ? y + b.reshape({b.size(0), 1}) : y;
}

struct Sizes {
  std::int64_t K, S, P_l, P_r, OP, D, G, L;
};

// Every parameter at its limits: K below, at and above S; S and D with a common factor (phases without taps); depthwise; L = 1.
const std::vector<Sizes> kGrid = {
    {1, 1, 0, 0, 0, 1, 1, 1}, {1, 1, 0, 0, 0, 1, 1, 5}, {3, 1, 1, 1, 0, 1, 1, 5}, {2, 2, 0, 0, 0, 1, 1, 4},
    {4, 2, 1, 1, 0, 1, 1, 5}, {3, 2, 1, 1, 1, 1, 1, 5}, {5, 3, 2, 0, 2, 1, 1, 4}, {1, 3, 0, 0, 2, 1, 1, 4},
    {2, 4, 0, 1, 3, 1, 1, 3}, {3, 2, 0, 0, 0, 2, 1, 4}, {3, 2, 3, 2, 1, 2, 1, 4}, {2, 2, 0, 0, 3, 4, 1, 3},
    {3, 1, 2, 2, 0, 2, 2, 6}, {4, 2, 1, 1, 0, 1, 2, 4}, {3, 2, 1, 1, 1, 1, 4, 5}, {4, 4, 0, 0, 0, 1, 4, 3},
    {3, 1, 1, 1, 0, 3, 4, 5}, {7, 2, 3, 3, 1, 1, 1, 1}, {6, 3, 5, 0, 0, 1, 2, 3}, {5, 1, 4, 4, 0, 1, 1, 5},
};

std::string text(const Sizes& s) {
  return concat("K=", s.K, " S=", s.S, " P=", s.P_l, ",", s.P_r, " OP=", s.OP, " D=", s.D, " G=", s.G, " L=", s.L);
}

}  // namespace

TEST_CASE("conv_transpose1d: values and gradients over the grid") {
  for (const Sizes& s : kGrid) {
    CAPTURE(text(s));
    const ConvTranspose1dOptions options = {
        .stride = s.S, .padding = {s.P_l, s.P_r}, .output_padding = s.OP, .dilation = s.D, .groups = s.G};
    const Tensor x = leaf_f64({2, 4, s.L}, 1);
    const Tensor w = leaf_f64({4, s.G == 4 ? 1 : 3, s.K}, 2);
    const Tensor b = leaf_f64({w.size(1) * s.G}, 3);
    CHECK(max_difference(conv_transpose1d(x, w, b, options), plain_transposed(x, w, b, options).detach()) <= kDoubleSum);
    CHECK(gradcheck([&](const Inputs& in) { return conv_transpose1d(in[0], in[1], in[2], options); }, {x, w, b}) == "");
  }
}

TEST_CASE("conv1d: values and gradients over the grid") {
  for (const Sizes& s : kGrid) {
    CAPTURE(text(s));
    const Conv1dOptions options = {.stride = s.S, .padding = {s.P_l, s.P_r}, .dilation = s.D, .groups = s.G};
    const std::int64_t reach = s.D * (s.K - 1) + 1;
    const Tensor x = leaf_f64({2, 4, s.L + reach + s.OP}, 1);
    const Tensor w = leaf_f64({s.G == 1 ? 3 : 4, 4 / s.G, s.K}, 2);
    const Tensor b = leaf_f64({w.size(0)}, 3);
    CHECK(max_difference(conv1d(x, w, b, options), plain_conv(x, w, b, options).detach()) <= kDoubleSum);
    CHECK(gradcheck([&](const Inputs& in) { return conv1d(in[0], in[1], in[2], options); }, {x, w, b}) == "");
  }
}

TEST_CASE("only the gradients asked for are made") {
  const Tensor x = random_f64({2, 4, 5}, 1);
  const Tensor w = random_f64({4, 3, 3}, 2);
  const Tensor b = random_f64({3}, 3);
  for (int followed = 0; followed < 3; ++followed) {
    Inputs leaves = {x.detach(), w.detach(), b.detach()};
    leaves[static_cast<std::size_t>(followed)].set_requires_grad(true);
    CHECK(gradcheck([](const Inputs& in) { return conv_transpose1d(in[0], in[1], in[2]); }, leaves) == "");
    sum(conv_transpose1d(leaves[0], leaves[1], leaves[2])).backward();
    for (int i = 0; i < 3; ++i) CHECK(leaves[static_cast<std::size_t>(i)].grad().defined() == (i == followed));
  }
}

TEST_CASE("a bias alone is learned in front of a snake") {
  const Tensor x = random_f64({2, 3, 7}, 1), w = random_f64({4, 3, 3}, 2), alpha = uniform_f64({4}, 0.5, 2, 3);
  const ConvOutputOptions snake{.activation = Activation::snake, .alpha = alpha};
  CHECK(gradcheck([&](const Inputs& in) { return conv1d(x, w, in[0], {.padding = 1}, snake); }, {leaf_f64({4})}) == "");
}

TEST_CASE("unbatched and non-contiguous input") {
  const Tensor x = random_f64({4, 6}, 1);
  const Tensor w = random_f64({4, 3, 3}, 2);
  const Tensor y = conv_transpose1d(x, w);
  CHECK(y.shape() == Shape{3, 8});
  CHECK(max_difference(y.unsqueeze(0), conv_transpose1d(x.unsqueeze(0), w)) == 0);
  CHECK(conv1d(random_f64({3, 6}), w).shape() == Shape{4, 4});
  CHECK(gradcheck([](const Inputs& in) { return conv_transpose1d(in[0], in[1]); },
                  {leaf_f64({4, 3}), leaf_f64({4, 2, 3}, 2)}) == "");
  CHECK(gradcheck([](const Inputs& in) { return conv1d(in[0], in[1]); }, {leaf_f64({2, 5}), leaf_f64({4, 2, 3}, 2)}) == "");

  const Tensor strided = random_f64({2, 12, 4}, 4).transpose(1, 2).slice(2, 0, 12, 2);
  CHECK(max_difference(conv_transpose1d(strided, w), conv_transpose1d(strided.contiguous(), w)) == 0);
  const auto function = [](const Inputs& in) {
    return conv_transpose1d(in[0].transpose(1, 2), in[1].permute({2, 0, 1}), in[2].slice(0, 0, 4, 2)).transpose(0, 2);
  };
  CHECK(gradcheck(function, {leaf_f64({2, 3, 4}), leaf_f64({2, 3, 4}, 2), leaf_f64({4}, 3)}) == "");
}

TEST_CASE("an empty batch") {
  const auto transposed = [](const Inputs& in) { return conv_transpose1d(in[0], in[1], in[2], {.stride = 2}); };
  const auto straight = [](const Inputs& in) { return conv1d(in[0], in[1], in[2]); };
  CHECK(transposed({random_f64({0, 4, 5}), random_f64({4, 3, 3}), random_f64({3})}).shape() == Shape{0, 3, 11});
  CHECK(gradcheck(transposed, {leaf_f64({0, 4, 5}), leaf_f64({4, 3, 3}), leaf_f64({3})}) == "");
  CHECK(gradcheck(straight, {leaf_f64({0, 3, 5}), leaf_f64({4, 3, 3}), leaf_f64({4})}) == "");
}

TEST_CASE("output_size") {
  const Tensor x = random_f64({1, 2, 5});
  const Tensor w = random_f64({2, 2, 4});
  CHECK(conv_transpose1d(x, w, {}, {.stride = 3, .output_size = 18}).size(-1) == 18);
  CHECK(max_difference(conv_transpose1d(x, w, {}, {.stride = 3, .output_size = 18}),
                       conv_transpose1d(x, w, {}, {.stride = 3, .output_padding = 2})) == 0);
}

TEST_CASE("conv1d: same padding and padding modes") {
  const Tensor x = random_f64({2, 3, 7}, 1);
  const Tensor w = random_f64({4, 3, 4}, 2);
  CHECK(max_difference(conv1d(x, w, {}, {.padding = Padding::same()}), conv1d(x, w, {}, {.padding = {1, 2}})) == 0);
  CHECK(conv1d(x, w, {}, {.padding = Padding::same(), .dilation = 3}).size(-1) == 7);
  for (const PaddingMode mode : {PaddingMode::reflect, PaddingMode::replicate}) {
    CAPTURE(mode);
    const Conv1dOptions options = {.stride = 2, .padding = {3, 2}, .padding_mode = mode};
    CHECK(max_difference(conv1d(x, w, {}, options), conv1d(pad1d(x, {3, 2}, mode), w, {}, {.stride = 2})) == 0);
    const auto function = [&](const Inputs& in) { return conv1d(in[0], in[1], in[2], options); };
    CHECK(gradcheck(function, {leaf_f64({1, 2, 5}), leaf_f64({2, 2, 3}, 2), leaf_f64({2}, 3)}) == "");
    CHECK(gradcheck(function, {leaf_f64({2, 5}), leaf_f64({2, 2, 3}, 2), leaf_f64({2}, 3)}) == "");
    CHECK(conv1d(x, w, {}, {.padding = Padding::same(), .padding_mode = mode}).size(-1) == 7);
  }
  CHECK(error_of<ShapeError>([&] {
          return conv1d(x, w, {}, {.padding = {7, 0}, .padding_mode = PaddingMode::reflect});
        }) == "pad1d: expected a reflect padding below L=7, got (7, 0)");
}

TEST_CASE("every dtype, against f64 on the same rounded inputs") {
  const std::vector<std::pair<DType, double>> dtypes = {
      {DType::f32, kFloatSum}, {DType::f16, kHalfRounding}, {DType::bf16, kBFloat16Rounding}};
  for (const auto& entry : dtypes) {
    const DType dtype = entry.first;
    const double tolerance = entry.second;
    CAPTURE(name_of(dtype));
    const Tensor x = uniform_f64({2, 8, 9}, -0.4, 0.4, 1).to(dtype);
    const Tensor w = uniform_f64({8, 8, 4}, -0.4, 0.4, 2).to(dtype);
    const Tensor b = uniform_f64({8}, -0.4, 0.4, 3).to(dtype);
    const auto wide = [](const Tensor& t) { return t.to(DType::f64); };
    const ConvTranspose1dOptions options = {.stride = 2, .padding = 1};
    CHECK(max_difference(conv_transpose1d(x, w, b, options), conv_transpose1d(wide(x), wide(w), wide(b), options)) <=
          tolerance);
    CHECK(max_difference(conv1d(x, w, b), conv1d(wide(x), wide(w), wide(b))) <= tolerance);
  }
}

TEST_CASE("the algorithm is chosen when the operation is recorded, and refused with its reason") {
  if (!default_device().is_cpu()) SKIP_TEST("asks for the CPU's algorithms");
  const Tensor x = leaf_f64({1, 4, 5});
  const Tensor w = leaf_f64({4, 2, 3}, 2);
  Tensor y;
  {
    const AlgorithmGuard guard(Algorithm::reference);
    y = conv_transpose1d(x, w);
  }
  {
    // If the backward pass used this guard, tensor_core would be refused on the CPU.
    const AlgorithmGuard guard(Algorithm::tensor_core);
    sum(y).backward();
    const std::string text = error_of<NotImplemented>([&] { return conv_transpose1d(x, w); });
    CHECK(text.find("conv_transpose1d: algorithm tensor_core cannot compute the forward of N=1 C_in=4 C_out=2") == 0);
    CHECK(error_of<NotImplemented>([&] {
            return conv1d(x.transpose(1, 2), random_f64({2, 5, 3}));
          }).find("conv1d: algorithm") == 0);
  }
  CHECK(x.grad().defined());
  const AlgorithmGuard guard(Algorithm::reference);
  CHECK(max_difference(conv_transpose1d(x, w), y) <= kDoubleSum);
}

TEST_CASE("PaddingMode prints its name") {
  CHECK(concat(PaddingMode::zeros, " ", PaddingMode::reflect, " ", PaddingMode::replicate) == "zeros reflect replicate");
}

namespace {

std::vector<double> values(const Tensor& tensor) { return tensor.detach().to(DType::f64).to_vector<double>(); }

/// An upsampling layer, then two blocks c + conv(act(conv(act(c)))), one fused and one not. `apart`: every activation and sum
/// is also used by another operation, which gets no gradient; this prevents the fusion of backward passes. Returns the
/// gradients of all leaves.
std::vector<std::vector<double>> gradients_through(const std::vector<Tensor>& leaves, Activation activation,
                                                   std::int64_t groups, bool apart) {
  std::vector<Tensor> aside;
  const auto seen = [&](const Tensor& y) {
    if (apart) aside.push_back(y * 2.0);
    return y;
  };
  const auto act = [&](const Tensor& y) {
    return seen(activation == Activation::relu ? relu(y) : activation == Activation::tanh ? tanh(y) : leaky_relu(y, 0.25));
  };
  const ConvOutputOptions output{.activation = activation, .slope = 0.25};
  const Conv1dOptions same{.padding = 1, .groups = groups};
  for (const Tensor& leaf : leaves) Tensor(leaf).set_grad({});
  const Tensor& x = leaves[0];
  const auto w = [&](std::size_t i) { return leaves[i]; };
  const auto b = [&](std::size_t i) { return leaves[i + 5]; };
  const Tensor up = seen(conv_transpose1d(x, w(1), b(1), {.stride = 2, .padding = 1, .groups = groups}, output));
  const Tensor first = conv1d(act(up), w(2), b(2), same, output);
  const Tensor c = up + conv1d(seen(first), w(3), b(3), same);
  const Tensor second = act(conv1d(act(c), w(4), b(4), same));
  const Tensor y = c + conv1d(second, w(5), b(5), same);
  Generator generator(3);
  const Tensor gradient = Tensor::randn(y.shape(), {.dtype = DType::f64, .device = Device::cpu()}, &generator);
  y.backward(gradient.to(y.dtype()).to(y.device()));
  std::vector<std::vector<double>> all;
  for (const Tensor& leaf : leaves) all.push_back(values(leaf.grad()));
  return all;
}

void check_gradients_through(DType dtype, std::int64_t channels, std::int64_t groups, std::int64_t length = 22) {
  const auto leaf = [&](const Shape& shape, std::uint64_t seed) {
    Tensor made = random_f64(shape, seed).to(dtype).to(default_device());
    made.set_requires_grad(true);
    return made;
  };
  const std::int64_t group = channels / groups;
  std::vector<Tensor> leaves{leaf({3, channels, length}, 1), leaf({channels, group, 4}, 2)};
  for (std::uint64_t i = 3; i <= 6; ++i) leaves.push_back(leaf({channels, group, 3}, i));
  for (std::uint64_t i = 7; i <= 11; ++i) leaves.push_back(leaf({channels}, i));
  for (const Activation activation : {Activation::relu, Activation::leaky_relu, Activation::tanh}) {
    const auto together = gradients_through(leaves, activation, groups, false);
    CHECK(together == gradients_through(leaves, activation, groups, true));
    for (const auto& gradient : together) CHECK_FALSE(gradient == std::vector<double>(gradient.size(), 0.0));
  }
}

}  // namespace

TEST_CASE("gradients that include an activation and a sum have the bits of the separate steps") {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    CAPTURE(dtype);
    check_gradients_through(dtype, 6, 1);
    check_gradients_through(dtype, 6, 6);
    check_gradients_through(dtype, 32, 1);
  }
}

TEST_CASE("gradients that take an activation and a sum along: every algorithm") {
  int ran = 0;
  for (const Algorithm algorithm : {Algorithm::direct, Algorithm::gemm, Algorithm::tensor_core, Algorithm::reference})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const AlgorithmGuard guard(algorithm);
      CAPTURE(algorithm);
      try {
        check_gradients_through(dtype, 32, 1);
      } catch (const NotImplemented&) {
        continue;
      }
      ++ran;
    }
  CHECK(ran >= 2);
}

TEST_CASE("gradients that take an activation along: tensors that are large enough for a kernel to do it") {
  if (default_device().is_cpu()) SKIP_TEST("no kernel of this device does it");
  check_gradients_through(DType::f32, 6, 1, 480'000);
  check_gradients_through(DType::f32, 6, 6, 480'000);
}

TEST_CASE("a gradient through an activation whose argument is NaN: fused or not, relu passes it and leaky_relu its share") {
  const auto gradient = [](Activation activation, bool fused) {
    Tensor x = Tensor::from_vector<double>({1, std::nan(""), -1}, {1, 1, 3});
    x.set_requires_grad(true);
    const Tensor w = Tensor::full({1, 1, 1}, 2, {.dtype = DType::f64});
    const ConvOutputOptions output{.activation = activation, .slope = 0.25};
    const auto unfused = [&] {
      const Tensor y = conv1d(x, w);
      return activation == Activation::relu ? relu(y) : leaky_relu(y, 0.25);
    };
    const Tensor active = fused ? conv1d(x, w, {}, {}, output) : unfused();
    sum(conv1d(active, w)).backward();  // its input gradient may include the activation's derivative
    return values(x.grad());
  };
  for (const bool fused : {false, true}) {
    CHECK(gradient(Activation::relu, fused) == std::vector<double>{4, 4, 0});
    CHECK(gradient(Activation::leaky_relu, fused) == std::vector<double>{4, 1, 1});
  }
}

TEST_CASE("a gradient through an activation of non-contiguous values, and through frozen layers") {
  const Tensor x = leaf_f64({2, 9, 4}, 1), w = random_f64({4, 3, 3}, 2);
  const auto through = [&](bool apart) {
    x.set_grad({});
    const Tensor active = leaky_relu(x.transpose(1, 2), 0.25);  // keeps its argument with its strides
    const Tensor aside = apart ? active * 2.0 : Tensor();
    sum(square(conv_transpose1d(active, w))).backward();
    return values(x.grad());
  };
  CHECK(through(false) == through(true));
}
