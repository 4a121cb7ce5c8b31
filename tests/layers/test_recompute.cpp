#include "layers/recompute.hpp"

#include <doctest/doctest.h>

#include "autograd/autocast.hpp"
#include "layers/activations.hpp"
#include "layers/containers/channels_last.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/dropout.hpp"
#include "layers/lstm.hpp"
#include "layers/norm.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"
#include "tensor/memory.hpp"
#include "tensor/random.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Values = std::vector<std::vector<float>>;

struct Run {
  std::vector<float> y, dx;
  Values gradients;
  bool operator==(const Run&) const = default;
};

// Output and gradients of a network with random numbers, behind and before other operations.
template <class Apply>
Run run_of(const Apply& apply, bool follows_x) {
  Generator generator(3);
  const GeneratorGuard guard(generator);
  Sequential net(Conv1d({.in_channels = 2, .out_channels = 4, .kernel_size = 3, .padding = 1}), LeakyReLU(0.1), Dropout(0.5),
                 Conv1d({.in_channels = 4, .out_channels = 2, .kernel_size = 3, .padding = 1}));
  Tensor x = Tensor::randn({3, 2, 9});
  x.set_requires_grad(follows_x);
  const Tensor y = apply(net, x * 2.0);
  const Tensor other = Tensor::rand({3, 2, 9});  // recompute() must draw as many numbers as the module
  sum(square(y) * other).backward();
  Run run{y.to_vector<float>(), follows_x ? x.grad().to_vector<float>() : std::vector<float>{}, {}};
  for (const Tensor& parameter : net.parameters()) run.gradients.push_back(parameter.grad().to_vector<float>());
  return run;
}

Tensor plain(Module& net, const Tensor& x) { return net(x); }

}  // namespace

TEST_CASE("recompute: the same bits, forward and backward, with random numbers") {
  for (const bool follows_x : {true, false}) CHECK(run_of(recompute, follows_x) == run_of(plain, follows_x));
}

TEST_CASE("recompute: under autocast") {
  const auto under = [](Tensor (*apply)(Module&, const Tensor&)) {
    return [apply](Module& net, const Tensor& x) {
      const AutocastGuard autocast(DType::bf16);
      return apply(net, x).to(DType::f32);
    };
  };
  CHECK(run_of(under(recompute), true) == run_of(under(plain), true));
}

namespace {

// Strides up and down, dilation, and paddings on both sides.
Sequential make_resampling_net() {
  Generator generator(4);
  const GeneratorGuard guard(generator);
  return Sequential(Conv1d({.in_channels = 2, .out_channels = 6, .kernel_size = 5, .stride = 2, .padding = 2}), LeakyReLU(0.1),
                    ConvTranspose1d({.in_channels = 6, .out_channels = 4, .kernel_size = 8, .stride = 4, .padding = 2}),
                    Snake(4),
                    Residual(Conv1d({.in_channels = 4, .out_channels = 4, .kernel_size = 3, .padding = 3, .dilation = 3})),
                    Conv1d({.in_channels = 4, .out_channels = 1, .kernel_size = 7, .padding = 3}), Tanh());
}

struct Gradients {
  Tensor y, dx;
  std::vector<Tensor> parameters{};
};

template <class Apply>
Gradients gradients_of(std::int64_t length, const Apply& apply) {
  Sequential net = make_resampling_net();
  net.to(DType::f64);
  Generator generator(5);
  Tensor x = Tensor::randn({2, 2, length}, {.dtype = DType::f64}, &generator);
  x.set_requires_grad(true);
  const Tensor y = apply(net, x);
  sum(square(y) * Tensor::rand(y.shape(), {.dtype = DType::f64}, &generator)).backward();
  Gradients result{y.detach(), x.grad(), {}};
  for (const Tensor& parameter : net.parameters()) result.parameters.push_back(parameter.grad());
  return result;
}

}  // namespace

TEST_CASE("recompute in pieces: the output's bits, and gradients within rounding, whatever the piece") {
  for (const std::int64_t length : {64, 101}) {
    const Gradients whole = gradients_of(length, plain);
    for (const std::int64_t piece : {1, 7, 16, 50, 1000}) {
      const Gradients pieces =
          gradients_of(length, [&](Module& net, const Tensor& x) { return recompute_in_pieces(net, x, piece); });
      CAPTURE(length);
      CAPTURE(piece);
      CHECK(pieces.y.to_vector<double>() == whole.y.to_vector<double>());
      CHECK(max_difference(pieces.dx, whole.dx) < kDoubleSum);
      for (std::size_t i = 0; i < whole.parameters.size(); ++i)
        CHECK(max_difference(pieces.parameters[i], whole.parameters[i]) < kDoubleSum);
    }
  }
}

TEST_CASE("recompute in pieces: a network that waits for nothing, under autocast, and one that is not trained") {
  Sequential net(Conv1d({.in_channels = 2, .out_channels = 3, .kernel_size = 1}), Tanh());
  Generator generator(6);
  const Tensor x = Tensor::randn({1, 2, 20}, {}, &generator);
  const auto gradient_of = [&](const auto& apply) {
    net.zero_grad();
    const AutocastGuard autocast(DType::bf16);
    sum(apply(net, x).to(DType::f32)).backward();
    return net.parameters().front().grad().clone();
  };
  const Tensor whole = gradient_of(plain);
  const Tensor pieces = gradient_of([](Module& module, const Tensor& input) { return recompute_in_pieces(module, input, 6); });
  CHECK(max_difference(pieces, whole) < kBFloat16Rounding * 10);  // each piece's gradient is rounded to bf16
  net.set_requires_grad(false);
  const Tensor y = recompute_in_pieces(net, x, 6);
  CHECK(!y.requires_grad());
  CHECK(y.to_vector<float>() == net(x).to_vector<float>());
}

TEST_CASE("recompute in pieces: a long sequence needs the memory of a piece") {
  const Device device = default_device();
  const auto peak = [device](const auto& apply) {
    Sequential net = make_resampling_net();
    const Tensor x = Tensor::ones({1, 2, 40000});
    const std::size_t before = memory_stats(device).live_bytes;
    reset_peak_memory(device);
    sum(apply(net, x)).backward();
    return memory_stats(device).peak_bytes - before;
  };
  CHECK(peak([](Module& net, const Tensor& x) { return recompute_in_pieces(net, x, 1000); }) < peak(plain) / 4);
}

TEST_CASE("recompute in pieces: what cannot be cut is refused") {
  Sequential net = make_resampling_net();
  CHECK_THROWS_WITH_AS((void)recompute_in_pieces(net, Tensor::ones({2, 9}), 4),
                       "recompute_in_pieces: expected x (N, C, L >= 1) and a piece of at least 1, got (2, 9) and 4",
                       ShapeError);
  CHECK_THROWS_AS((void)recompute_in_pieces(net, Tensor::ones({1, 2, 9}), 0), ShapeError);
  Sequential normalised(BatchNorm1d({.num_features = 2}));
  CHECK_THROWS_AS((void)recompute_in_pieces(normalised, Tensor::ones({1, 2, 9}), 4), Error);
  ChannelsLast lstm(LSTM({.input_size = 2, .hidden_size = 3}));
  CHECK_THROWS_AS((void)recompute_in_pieces(lstm, Tensor::ones({1, 2, 9}), 4), NotImplemented);
}

TEST_CASE("recompute: nothing is recorded where nothing follows gradients") {
  Sequential net(Conv1d({.in_channels = 1, .out_channels = 1, .kernel_size = 1}));
  net.set_requires_grad(false);
  CHECK(!recompute(net, Tensor::ones({1, 1, 2})).requires_grad());
}
