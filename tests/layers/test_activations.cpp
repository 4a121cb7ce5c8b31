#include "layers/activations.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "autograd/no_grad.hpp"
#include "layers/containers/channels_last.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/stream.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

const std::vector<double> kPoints{-3.0, -1.0, -0.25, 0.5, 1.0, 4.0};

void check_pointwise(Module& layer, const std::function<double(double)>& formula) {
  const auto y = layer(Tensor::from_vector(kPoints, {1, 1, 6})).to_vector<double>();
  for (std::size_t i = 0; i < y.size(); ++i) {
    CAPTURE(kPoints[i]);
    CHECK(y[i] == doctest::Approx(formula(kPoints[i])).epsilon(testing::kDoubleSum));
  }
  CHECK(layer.parameters().empty());
  CHECK(testing::layer_gradcheck(layer, {2, 1, 3}) == "");
}

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

TEST_CASE("activation layers: formulas and gradients") {
  ReLU relu;
  check_pointwise(relu, [](double x) { return x > 0 ? x : 0; });
  LeakyReLU leaky;
  check_pointwise(leaky, [](double x) { return x > 0 ? x : 0.01 * x; });
  LeakyReLU steep(0.2);
  check_pointwise(steep, [](double x) { return x > 0 ? x : 0.2 * x; });
  ELU elu;
  check_pointwise(elu, [](double x) { return x > 0 ? x : std::expm1(x); });
  ELU half(0.5);
  check_pointwise(half, [](double x) { return x > 0 ? x : 0.5 * std::expm1(x); });
  GELU gelu;
  check_pointwise(gelu, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); });
  GELU approximate(true);
  check_pointwise(approximate, [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
  });
  SiLU silu;
  check_pointwise(silu, [](double x) { return x * sigmoid_of(x); });
  Tanh tanh_layer;
  check_pointwise(tanh_layer, [](double x) { return std::tanh(x); });
  Sigmoid sigmoid_layer;
  check_pointwise(sigmoid_layer, sigmoid_of);
  Clamp clamp_layer(-1.5, 0.75);
  check_pointwise(clamp_layer, [](double x) { return x < -1.5 ? -1.5 : x > 0.75 ? 0.75 : x; });
  CHECK(error_of<ShapeError>([] { return Clamp(1, 0), 0; }) == "Clamp: expected low <= high, got 1 and 0");
}

TEST_CASE("snake layers: one alpha for each channel, starting at 1 as in BigVGAN") {
  Snake snake(3);
  CHECK(snake.state_dict()[0].first == "alpha");
  CHECK(snake.state_dict()[0].second.to_vector<float>() == std::vector<float>{1, 1, 1});
  SnakeBeta beta(2, {.alpha_logscale = true});
  REQUIRE(beta.state_dict().size() == 2);
  CHECK(beta.state_dict()[1].first == "beta");
  CHECK(beta.state_dict()[0].second.to_vector<float>() == std::vector<float>{0, 0});
  CHECK(beta.state_dict()[1].second.to_vector<float>() == std::vector<float>{0, 0});
  CHECK(Snake(1, {.alpha = 0.5}).state_dict()[0].second.item<float>() == 0.5F);
}

TEST_CASE("snake layers: formulas") {
  const std::vector<double> x{0.3, -1.2, 2.5, 0.7};
  const Tensor input = Tensor::from_vector(x, {1, 2, 2});
  const std::vector<double> a{0.5, 2.0};
  const std::vector<double> b{4.0, 0.25};
  const auto expected = [&](std::size_t i, bool logscale, bool with_beta) {
    const double alpha = logscale ? std::exp(a[i / 2]) : a[i / 2];
    const double beta = logscale ? std::exp(b[i / 2]) : b[i / 2];
    const double s = std::sin(alpha * x[i]);
    return x[i] + s * s / ((with_beta ? beta : alpha) + 1e-9);
  };
  for (const bool logscale : {false, true}) {
    Snake snake(2, {.alpha_logscale = logscale, .dtype = DType::f64});
    snake.load_state_dict({{"alpha", Tensor::from_vector(a)}});
    SnakeBeta snake_beta(2, {.alpha_logscale = logscale, .dtype = DType::f64});
    snake_beta.load_state_dict({{"alpha", Tensor::from_vector(a)}, {"beta", Tensor::from_vector(b)}});
    const auto y = snake(input).to_vector<double>();
    const auto z = snake_beta(input).to_vector<double>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      CHECK(y[i] == doctest::Approx(expected(i, logscale, false)).epsilon(testing::kDoubleSum));
      CHECK(z[i] == doctest::Approx(expected(i, logscale, true)).epsilon(testing::kDoubleSum));
    }
  }
}

TEST_CASE("snake layers: in f16 the protection of beta changes nothing, and is left out without gradients") {
  Snake snake(2, {.dtype = DType::f16});
  snake.load_state_dict({{"alpha", Tensor::from_vector(std::vector<double>{6e-8, 0.7}).to(DType::f16)}});
  const std::vector<double> with = snake.output_options().beta.to(DType::f64).detach().to_vector<double>();
  const NoGradGuard no_grad;
  const ConvOutputOptions without = snake.output_options();
  CHECK(without.beta.is_same(without.alpha));
  CHECK(without.beta.to(DType::f64).to_vector<double>() == with);
  SnakeBeta f32(2);
  CHECK_FALSE(f32.output_options().beta.is_same(f32.parameters()[1]));
}

TEST_CASE("snake layers: gradients, also of the learned parameters") {
  for (const bool logscale : {false, true}) {
    Snake snake(2, {.alpha = 0.7, .alpha_logscale = logscale});
    CHECK(testing::layer_gradcheck(snake, {2, 2, 3}) == "");
    SnakeBeta snake_beta(2, {.alpha = 1.3, .alpha_logscale = logscale});
    CHECK(testing::layer_gradcheck(snake_beta, {2, 3}) == "");
  }
}

TEST_CASE("snake layers: a channel whose alpha has fallen to 0 passes through") {
  Snake snake(1);
  snake.load_state_dict({{"alpha", Tensor::zeros({1})}});
  CHECK(snake(Tensor::full({1, 1, 1}, 2)).item<float>() == 2.0F);
}

TEST_CASE("snake layers: errors") {
  CHECK_THROWS_WITH_AS(Snake(2, {.dtype = DType::i64}), "Snake: expected a floating-point dtype, got i64", DTypeError);
  CHECK_THROWS_WITH_AS(SnakeBeta(2, {.dtype = DType::i64}), "SnakeBeta: expected a floating-point dtype, got i64", DTypeError);
  CHECK_THROWS_WITH_AS(Snake(0), "Snake: expected channels >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(SnakeBeta(2, {.alpha = 0}), "SnakeBeta: expected alpha > 0, got 0", ShapeError);
}

TEST_CASE("GLU is glu") {
  const Tensor x = Tensor::from_vector<double>({2, 4, 0, 0}, {1, 4, 1});
  CHECK(GLU(1)(x).to_vector<double>() == std::vector<double>{1, 2});
  CHECK_THROWS_AS((void)GLU()(x), ShapeError);
}

TEST_CASE("activations in pieces: GLU over channels first and last, and every other") {
  manual_seed(8);
  Sequential net(Conv1d({.in_channels = 3, .out_channels = 16, .kernel_size = 3, .padding = 1}), GLU(1), ReLU(), GELU(true),
                 SiLU(), ChannelsLast(GLU(), ELU(), Sigmoid()), Tanh(), LeakyReLU(0.2), GLU(-2), Snake(2), SnakeBeta(2));
  check_stream(net, {2, 3, 70});
  ChannelsLast last(GLU(2));
  check_stream(last, {2, 6, 20});
}

TEST_CASE("activations that a stream refuses: GLU over the length, Snake with the channels last") {
  const auto refusal = [](auto net) { return error_of<NotImplemented>([&] { return Stream(net).latency(); }); };
  CHECK(refusal(GLU()).find("polyphase::GLU takes (N, L, C) where it gets (N, C, L)") != std::string::npos);
  CHECK(refusal(GLU(0)).find("polyphase::GLU cannot") != std::string::npos);
  CHECK(refusal(ChannelsLast(GLU(1))).find("polyphase::GLU takes (N, C, L) where it gets (N, L, C)") != std::string::npos);
  CHECK(refusal(ChannelsLast(Snake(4))).find("polyphase::Snake takes (N, C, L)") != std::string::npos);
}
