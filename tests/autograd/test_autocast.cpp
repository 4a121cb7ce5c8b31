#include "autograd/autocast.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <thread>

#include "autograd/no_grad.hpp"
#include "layers/activations.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/losses.hpp"
#include "layers/norm.hpp"
#include "layers/weight_norm.hpp"
#include "ops/activations.hpp"
#include "ops/conv.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/linear.hpp"
#include "ops/norm.hpp"
#include "ops/reduce.hpp"
#include "ops/spectral.hpp"
#include "optim/sgd.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

Tensor random_f32(const Shape& shape, std::uint64_t seed = 1) { return random_f64(shape, seed).to(DType::f32); }
Tensor leaf_f32(const Shape& shape, std::uint64_t seed = 1) { return random_f32(shape, seed).detach().set_requires_grad(true); }

struct Named {
  const char* name;
  std::function<Tensor(const Tensor&)> apply;
};

// Every operation that autocast lowers, with its inputs: 8 x 3 x 4 elements, few enough to compare all.
const std::vector<Named> kLowered = {
    {"conv1d",
     [](const Tensor& x) {
       return conv1d(x, leaf_f32({2, 3, 3}), leaf_f32({2}), {.padding = 1});
     }},
    {"conv1d reflect",
     [](const Tensor& x) {
       return conv1d(x, leaf_f32({2, 3, 3}), {}, {.padding = 1, .padding_mode = PaddingMode::reflect});
     }},
    {"conv_transpose1d",
     [](const Tensor& x) {
       return conv_transpose1d(x, leaf_f32({3, 2, 4}), {}, {.stride = 2});
     }},
    {"linear",
     [](const Tensor& x) {
       return linear(x, leaf_f32({5, 4}), leaf_f32({5}));
     }},
    {"matmul",
     [](const Tensor& x) {
       return matmul(x, leaf_f32({4, 2}));
     }},
};
const std::vector<Named> kRaised = {
    {"sum", [](const Tensor& x) { return sum(x, {2}); }},
    {"mean", [](const Tensor& x) { return mean(x); }},
    {"var",
     [](const Tensor& x) {
       return var(x, {0, 2});
     }},
    {"norm", [](const Tensor& x) { return norm(x); }},
    {"exp", [](const Tensor& x) { return exp(x); }},
    {"log", [](const Tensor& x) { return log(add(square(x), 1)); }},
    {"pow", [](const Tensor& x) { return pow(x, 3); }},
    {"rsqrt", [](const Tensor& x) { return rsqrt(add(square(x), 1)); }},
    {"reciprocal", [](const Tensor& x) { return reciprocal(add(square(x), 1)); }},
    {"softplus", [](const Tensor& x) { return softplus(x); }},
    {"group_norm", [](const Tensor& x) { return group_norm(x, 3, leaf_f32({3}), leaf_f32({3})); }},
    {"batch_norm", [](const Tensor& x) { return batch_norm(x, {}, {}, leaf_f32({3}), {}, {.training = true}); }},
    {"batch_norm alone", [](const Tensor& x) { return batch_norm(x, {}, {}, {}, {}, {.training = true}); }},
    {"rfft", [](const Tensor& x) { return rfft(x); }},
    {"power_spectrogram", [](const Tensor& x) { return power_spectrogram(x, {.n_fft = 4, .hop_length = 1, .win_length = 4}); }},
    {"mse_loss", [](const Tensor& x) { return mse_loss(x, mul(x, 0.5)); }},
    {"l1_loss", [](const Tensor& x) { return l1_loss(x, mul(x, 0.5)); }},
    {"smooth_l1_loss", [](const Tensor& x) { return smooth_l1_loss(x, mul(x, 0.5)); }},
    {"stft loss",
     [](const Tensor& x) {
       return multi_resolution_stft_loss(x, mul(x, 0.5), {.resolutions = {{4, 1, 4}}});
     }},
};
const std::vector<Named> kKept = {
    {"relu", [](const Tensor& x) { return relu(x); }},
    {"tanh", [](const Tensor& x) { return tanh(x); }},
    {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.1); }},
    {"add", [](const Tensor& x) { return x + x; }},
    {"mul", [](const Tensor& x) { return x * 2.0; }},
    {"cat",
     [](const Tensor& x) {
       return cat({x, x}, 0);
     }},
};
const std::vector<Named> kPromoted = {
    {"add", [](const Tensor& x) { return x + leaf_f32(x.shape()); }},
    {"sub", [](const Tensor& x) { return leaf_f32(x.shape()) - x; }},
    {"mul", [](const Tensor& x) { return x * leaf_f32({1}); }},
    {"div", [](const Tensor& x) { return x / add(square(leaf_f32(x.shape())), 1); }},
    {"add_scaled", [](const Tensor& x) { return add_scaled(leaf_f32(x.shape()), x, 2); }},
    {"addcmul", [](const Tensor& x) { return addcmul(leaf_f32(x.shape()), x, x); }},
    {"addcmul", [](const Tensor& x) { return addcmul(x, leaf_f32(x.shape()), leaf_f32({1})); }},
    {"maximum", [](const Tensor& x) { return maximum(x, leaf_f32(x.shape())); }},
    {"minimum", [](const Tensor& x) { return minimum(leaf_f32(x.shape()), x); }},
    {"where", [](const Tensor& x) { return where(relu(x), x, leaf_f32(x.shape())); }},
    {"snake", [](const Tensor& x) { return snake(x, Tensor::ones({3})); }},
    {"snake_beta", [](const Tensor& x) { return snake_beta(x, Tensor::ones({3}), Tensor::ones({3})); }},
    {"cat",
     [](const Tensor& x) {
       return cat({x, leaf_f32(x.shape()), x}, 1);
     }},
};

// Compares the operation's result in `dtype` and its gradient with f32.
void check(const Named& operation, DType guard, DType in, DType out, double tolerance) {
  CAPTURE(operation.name);
  CAPTURE(guard);
  CAPTURE(in);
  Tensor x = leaf_f32({8, 3, 4}, 5), plain = leaf_f32({8, 3, 4}, 5);
  const Tensor expected = operation.apply(plain);
  const Tensor got = [&] {
    const AutocastGuard autocast(guard);
    return operation.apply(x.to(in));
  }();
  CHECK(got.dtype() == out);
  const Tensor difference = got.detach().to(DType::f32) - expected.detach();
  CHECK(norm(difference).item() <= tolerance * (1 + norm(expected.detach()).item()));
  const Tensor weights = random_f32(expected.shape(), 6);
  expected.backward(weights);
  got.backward(weights.to(out));
  CHECK(x.grad().dtype() == DType::f32);
  CHECK(norm(x.grad() - plain.grad()).item() <= tolerance * (1 + norm(plain.grad()).item()));
}

}  // namespace

TEST_CASE("autocast: what is lowered, raised, kept and promoted, and its gradients in f32") {
  for (const DType half : {DType::bf16, DType::f16}) {
    const double tolerance = half == DType::bf16 ? 4 * kBFloat16Rounding : 4 * kHalfRounding;
    for (const Named& operation : kLowered) {
      check(operation, half, DType::f32, half, tolerance);
      check(operation, half, half, half, tolerance);
    }
    for (const Named& operation : kRaised) {
      check(operation, half, half, DType::f32, tolerance);
      check(operation, half, DType::f32, DType::f32, tolerance);
    }
    for (const Named& operation : kKept) {
      check(operation, half, half, half, tolerance);
      check(operation, half, DType::f32, DType::f32, tolerance);
    }
    for (const Named& operation : kPromoted) check(operation, half, half, DType::f32, tolerance);
  }
}

TEST_CASE("autocast: f64 is left alone, and without a guard nothing is cast") {
  const Tensor x = random_f64({2, 3}), w = random_f64({4, 3});
  {
    const AutocastGuard autocast(DType::bf16);
    CHECK(linear(x, w).dtype() == DType::f64);
    CHECK(sum(x).dtype() == DType::f64);
    CHECK((x + x.to(DType::bf16)).dtype() == DType::f64);
  }
  CHECK(linear(x.to(DType::f32), w.to(DType::f32)).dtype() == DType::f32);
  CHECK(sum(x.to(DType::bf16)).dtype() == DType::bf16);
  CHECK_THROWS_AS((void)(x + x.to(DType::f32)), DTypeError);
}

TEST_CASE("autocast: batch norm whose tensors are all of 16 bits keeps them; spectra have the bits of f32") {
  const AutocastGuard autocast(DType::bf16);
  const Tensor x = random_f32({2, 3, 40}).to(DType::bf16), mean = x.select(0, 0).select(1, 0), var = Tensor::ones_like(mean);
  CHECK(batch_norm(x, mean, var, {}, {}, {}).dtype() == DType::bf16);
  CHECK(batch_norm(x, mean.to(DType::f32), var.to(DType::f32), {}, {}, {}).dtype() == DType::f32);
  const StftOptions options{.n_fft = 16, .hop_length = 4, .win_length = 12};
  CHECK(power_spectrogram(x, options).to_vector<float>() == power_spectrogram(x.to(DType::f32), options).to_vector<float>());
}

TEST_CASE("autocast: f16 and bf16 meet in f32; comparisons too") {
  const AutocastGuard autocast(DType::bf16);
  const Tensor a = Tensor::ones({2}, {.dtype = DType::f16}), b = Tensor::full({2}, 2, {.dtype = DType::bf16});
  CHECK((a + b).dtype() == DType::f32);
  CHECK((a + b).to_vector<float>() == std::vector<float>{3, 3});
  CHECK(less(a, b).to_vector<float>() == std::vector<float>{1, 1});
  CHECK(cat({a, b}).dtype() == DType::f32);
  CHECK(cat({a, b, Tensor::full({1}, 1.0 / 3, {.dtype = DType::f64})}).to_vector<double>() ==
        std::vector<double>{1, 1, 2, 2, 1.0 / 3});
}

TEST_CASE("autocast: guards nest, end, switch off and are of one thread") {
  CHECK_FALSE(autocast_dtype().has_value());
  {
    const AutocastGuard outer(DType::bf16);
    CHECK(autocast_dtype() == DType::bf16);
    {
      const AutocastGuard off(std::nullopt);
      CHECK_FALSE(autocast_dtype().has_value());
      const AutocastGuard inner(DType::f16);
      CHECK(autocast_dtype() == DType::f16);
    }
    CHECK(autocast_dtype() == DType::bf16);
    bool other = true;
    std::thread([&] { other = autocast_dtype().has_value(); }).join();
    CHECK_FALSE(other);
  }
  CHECK_FALSE(autocast_dtype().has_value());
  CHECK_THROWS_WITH_AS(AutocastGuard{DType::f32}, "AutocastGuard: expected bf16 or f16, got f32", DTypeError);
  CHECK_FALSE(autocast_dtype().has_value());
}

TEST_CASE("autocast: a parameter is cast once, and again when it was written") {
  Tensor w = leaf_f32({3, 3});
  const AutocastGuard autocast(DType::bf16);
  const Tensor first = autograd::lowered(w), second = autograd::lowered(w);
  CHECK(first.raw() == second.raw());
  CHECK(first.dtype() == DType::bf16);
  {
    const NoGradGuard no_grad;
    CHECK(autograd::lowered(w).raw() == first.raw());
    CHECK_FALSE(autograd::lowered(w).requires_grad());
    w.fill_(3);
  }
  const Tensor third = autograd::lowered(w);
  CHECK(third.to(DType::f32).to_vector<float>()[0] == 3);
  CHECK(first.to(DType::f32).to_vector<float>()[0] != 3);
  w.set_grad(Tensor::ones({3, 3}));
  SGD optimizer({w}, {.learning_rate = 1});
  optimizer.step();
  CHECK(autograd::lowered(w).to(DType::f32).to_vector<float>()[0] == 2);
  // Only parameters are cached.
  const Tensor x = random_f32({2});
  CHECK(autograd::lowered(x).raw() != autograd::lowered(x).raw());
}

TEST_CASE("autocast: several uses of a parameter and several backward passes under one guard add up in f32") {
  Tensor w = Tensor::ones({2, 2}).set_requires_grad(true), b = Tensor::zeros({2}).set_requires_grad(true);
  const Tensor x = Tensor::from_vector<float>({1, 256}, {1, 2});
  const AutocastGuard autocast(DType::bf16);
  for (int pass = 0; pass < 2; ++pass) sum(linear(x, w, b) + linear(mul(x, 1.0 / 256), w, b)).backward();
  CHECK(b.grad().to_vector<float>() == std::vector<float>{4, 4});
  // In bf16 256 + 1 would be 256.
  CHECK(w.grad().to_vector<float>() == std::vector<float>{2 * (1 + 1.0F / 256), 2 * 257, 2 * (1 + 1.0F / 256), 2 * 257});
}

TEST_CASE("autocast: a network trains as in f32, with weight norm and batch norm, backward under the guard or not") {
  const auto losses = [](bool cast, bool inside) {
    manual_seed(5);
    Sequential net(Conv1d({.in_channels = 1, .out_channels = 8, .kernel_size = 5, .padding = 2}),
                   BatchNorm1d({.num_features = 8}), LeakyReLU(0.1),
                   ConvTranspose1d({.in_channels = 8, .out_channels = 1, .kernel_size = 4, .stride = 2, .padding = 1}));
    weight_norm(net);
    net.to(default_device());
    SGD optimizer(net.parameters(), {.learning_rate = 0.05});
    const Tensor x = random_f32({4, 1, 32}, 1), y = random_f32({4, 1, 64}, 2);
    std::vector<double> result;
    for (int step = 0; step < 8; ++step) {
      std::optional<AutocastGuard> guard;
      if (cast) guard.emplace(DType::bf16);
      const Tensor loss = mse_loss(net(x), y);
      CHECK(loss.dtype() == DType::f32);
      if (!inside) guard.reset();
      optimizer.zero_grad();
      loss.backward();
      guard.reset();
      optimizer.step();
      result.push_back(loss.item());
    }
    return result;
  };
  const std::vector<double> plain = losses(false, false), cast = losses(true, false);
  CHECK(losses(true, true) == cast);
  CHECK(cast != plain);
  for (std::size_t i = 0; i < plain.size(); ++i) CHECK(cast[i] == doctest::Approx(plain[i]).epsilon(kBFloat16Rounding));
  CHECK(plain.back() < plain.front());
}
