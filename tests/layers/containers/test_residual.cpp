#include "layers/containers/residual.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <memory>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "conv/algorithm.hpp"
#include "layers/activations.hpp"
#include "layers/containers/channels_last.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/dropout.hpp"
#include "layers/norm.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "support/layer_gradcheck.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

std::vector<double> values(const Tensor& tensor) { return tensor.detach().to(DType::f64).to_vector<double>(); }

/// The output and the gradients of x and of all parameters, with `forward`.
std::vector<std::vector<double>> results(Module& net, const Tensor& x, const std::function<Tensor(const Tensor&)>& forward) {
  Tensor leaf = x.clone();
  leaf.set_requires_grad(true);
  net.zero_grad();
  const Tensor y = forward(leaf);
  Generator generator(3);
  y.backward(Tensor::randn(y.shape(), {.dtype = DType::f64, .device = Device::cpu()}, &generator).to(y.dtype()).to(y.device()));
  std::vector<std::vector<double>> all{values(y), values(leaf.grad())};
  for (const Tensor& parameter : net.parameters()) all.push_back(values(parameter.grad()));
  return all;
}

/// `net` has the bits of its modules called one after another plus a sum, with and without recording.
void check_residual(Residual& net, const Tensor& x) {
  const auto apart = [&](const Tensor& in) {
    Tensor y = in;
    for (const auto& module : net.block()) y = module->forward(y);
    return net.scale() == 1 ? in + y : add_scaled(in, y, net.scale());
  };
  const auto together = [&](const Tensor& in) { return net(in); };
  CHECK(results(net, x, together) == results(net, x, apart));
  const NoGradGuard no_grad;
  CHECK(values(together(x)) == values(apart(x)));
  CHECK_FALSE(values(together(x)).empty());
}

template <class M>
std::shared_ptr<Module> share(M module) {
  return std::make_shared<M>(std::move(module));
}

/// Convolutions that keep (N, 6, L).
std::vector<std::shared_ptr<Module>> convolutions(DType dtype) {
  return {
      share(Conv1d({.in_channels = 6, .out_channels = 6, .kernel_size = 3, .padding = 3, .dilation = 3, .dtype = dtype})),
      share(Conv1d({.in_channels = 6, .out_channels = 6, .kernel_size = 1, .bias = false, .dtype = dtype})),
      share(Conv1d({.in_channels = 6,
                    .out_channels = 6,
                    .kernel_size = 5,
                    .padding = 2,
                    .groups = 2,
                    .padding_mode = PaddingMode::replicate,
                    .dtype = dtype})),
      share(Conv1d({.in_channels = 6, .out_channels = 6, .kernel_size = 7, .padding = 3, .groups = 6, .dtype = dtype})),
      share(ConvTranspose1d({.in_channels = 6, .out_channels = 6, .kernel_size = 3, .padding = 1, .dtype = dtype})),
      share(ConvTranspose1d(
          {.in_channels = 6, .out_channels = 6, .kernel_size = 3, .padding = 2, .groups = 6, .dilation = 2, .dtype = dtype})),
  };
}

std::vector<std::shared_ptr<Module>> activations(DType dtype) {
  return {share(ReLU()),
          share(LeakyReLU(0.1)),
          share(LeakyReLU(-0.5)),
          share(Tanh()),
          share(Sigmoid()),
          share(Snake(6, {.alpha = 0.7, .dtype = dtype})),
          share(SnakeBeta(6, {.alpha = 0.7, .alpha_logscale = true, .dtype = dtype}))};
}

Residual block_of(double scale, const std::vector<std::shared_ptr<Module>>& modules) {
  Sequential block;
  for (const auto& module : modules) block.push_back(module);
  return Residual({.scale = scale}, block);
}

void check_all(DType dtype) {
  manual_seed(1);
  const auto input = [&](const Shape& shape) { return random_f64(shape, 2).to(dtype).to(default_device()); };
  const auto all = convolutions(dtype);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const double scale : {1.0, 0.3}) {
      for (const Shape& shape : {Shape{3, 6, 37}, Shape{6, 37}}) {
        Residual plain = block_of(scale, {all[i]});
        check_residual(plain, input(shape));
      }
      Residual deep = block_of(scale, {share(LeakyReLU(0.1)), all[(i + 1) % all.size()], share(LeakyReLU(0.1)), all[i]});
      check_residual(deep, input({37, 2, 6}).permute({1, 2, 0}));
      for (const auto& activation : activations(dtype)) {
        Residual with = block_of(scale, {all[i], activation});
        check_residual(with, input({2, 6, 37}));
      }
    }
}

}  // namespace

TEST_CASE("residual, f32: output and all gradients have the bits of the separate modules and the sum") {
  check_all(DType::f32);
}
TEST_CASE("residual, f64: output and all gradients have the bits of the separate modules and the sum") {
  check_all(DType::f64);
}
TEST_CASE("residual, f16: output and all gradients have the bits of the separate modules and the sum") {
  check_all(DType::f16);
}
TEST_CASE("residual, bf16: output and all gradients have the bits of the separate modules and the sum") {
  check_all(DType::bf16);
}

TEST_CASE("residual: every algorithm and precision, strides and phases without taps") {
  manual_seed(1);
  int ran = 0;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t channels : {16, 40}) {
      // Rows of the same length before and after: 40 = (40 - 1) + 3 - 2, 40 = (20 - 1)*2 + 4 - 2.
      Residual same =
          Residual({.scale = 0.5},
                   Conv1d({.in_channels = channels, .out_channels = channels, .kernel_size = 3, .padding = 1, .dtype = dtype}));
      const auto down = Conv1d(
          {.in_channels = channels, .out_channels = channels, .kernel_size = 4, .stride = 2, .padding = 1, .dtype = dtype});
      Residual up(down, ConvTranspose1d({.in_channels = channels,
                                         .out_channels = channels,
                                         .kernel_size = 4,
                                         .stride = 2,
                                         .padding = 1,
                                         .dtype = dtype}));
      Residual holes(down, ConvTranspose1d({.in_channels = channels,
                                            .out_channels = channels,
                                            .kernel_size = 1,
                                            .stride = 2,
                                            .output_padding = 1,
                                            .dtype = dtype}));
      const Tensor x = random_f64({2, channels, 520}, 2).to(dtype).to(default_device());
      for (const Algorithm algorithm : {Algorithm::direct, Algorithm::tensor_core, Algorithm::gemm, Algorithm::reference})
        for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::ieee}) {
          const AlgorithmGuard guard(algorithm);
          const PrecisionGuard precise(precision);
          for (Residual* net : {&same, &up, &holes}) {
            try {
              (void)net->block()(x);
            } catch (const NotImplemented&) {
              continue;
            }
            ++ran;
            const NoGradGuard no_grad;
            CHECK(values((*net)(x)) == values(add_scaled(x, net->block()(x), net->scale())));
          }
        }
    }
  CHECK(ran > 0);
}

TEST_CASE("residual: rows of many lengths, long and short") {
  manual_seed(1);
  const NoGradGuard no_grad;
  for (const std::int64_t L : {1, 2, 63, 1000, 1001, 4099})
    for (const std::int64_t channels : {1, 3, 64}) {
      Residual net(Conv1d({.in_channels = channels, .out_channels = channels, .kernel_size = 3, .padding = 1}), Tanh());
      Residual depthwise(
          Conv1d({.in_channels = channels, .out_channels = channels, .kernel_size = 3, .padding = 1, .groups = channels}));
      const Tensor x = random_f64({2, channels, L}, 2).to(DType::f32).to(default_device());
      CHECK(values(net(x)) == values(x + net.block()[1](net.block()[0](x))));
      CHECK(values(depthwise(x)) == values(x + depthwise.block()[0](x)));
    }
}

TEST_CASE("residual: gradients agree with differences") {
  const DeviceGuard on_host(Device::cpu());
  Sequential net(Conv1d({.in_channels = 2, .out_channels = 3, .kernel_size = 3, .padding = 1}),
                 Residual({.scale = 0.7}, LeakyReLU(0.3),
                          Conv1d({.in_channels = 3, .out_channels = 3, .kernel_size = 3, .padding = 2, .dilation = 2}), Tanh(),
                          Conv1d({.in_channels = 3, .out_channels = 3, .kernel_size = 1})),
                 Residual(Conv1d({.in_channels = 3, .out_channels = 3, .kernel_size = 3, .padding = 1}), Snake(3)),
                 Residual({.scale = 2}, Conv1d({.in_channels = 3, .out_channels = 3, .kernel_size = 1}), Tanh()));
  CHECK(layer_gradcheck(net, {2, 2, 6}) == "");
}

TEST_CASE("residual: nested, shared, without a convolution, empty") {
  manual_seed(1);
  const auto conv = share(Conv1d({.in_channels = 2, .out_channels = 2, .kernel_size = 3, .padding = 1}));
  const Tensor x = random_f64({2, 2, 9}, 2).to(DType::f32).to(default_device());
  Sequential inner;
  inner.push_back(conv).push_back(Sequential());
  Residual nested = block_of(0.5, {conv, share(inner)});
  check_residual(nested, x);
  Residual twice = block_of(1, {conv, conv, share(ReLU()), conv});
  check_residual(twice, x);
  Residual residuals = block_of(1, {share(Residual(LeakyReLU(), Tanh())), share(twice)});
  check_residual(residuals, x);
  Residual alone{Tanh()};
  check_residual(alone, x);
  Residual nothing{Sequential()};
  CHECK(values(nothing(x)) == values(x + x));
}

TEST_CASE("residual: autocast, an empty batch") {
  manual_seed(1);
  const auto conv = share(Conv1d({.in_channels = 6, .out_channels = 6, .kernel_size = 3, .padding = 1}));
  const Tensor x = random_f64({2, 6, 9}, 2).to(DType::f32).to(default_device());
  {
    const AutocastGuard guard(DType::bf16);
    // A kernel may add a residual of bf16, but not one of f32, because that sum is of f32. Nothing casts f64.
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Residual plain = block_of(0.5, {conv});
      check_residual(plain, x.to(dtype));
      for (const auto& activation : activations(DType::f32)) {
        Residual with = block_of(1, {conv, activation});
        check_residual(with, x.to(dtype));
      }
    }
    const auto wide = share(Conv1d({.in_channels = 6, .out_channels = 6, .kernel_size = 3, .padding = 1}));
    Residual exact = block_of(1, {wide});
    exact.to(DType::f64);
    check_residual(exact, x.to(DType::f64));
  }
  Residual net = block_of(0.5, {conv, share(Snake(6))});
  net.zero_grad();
  const Tensor y = net(Tensor::zeros({0, 6, 9}));
  CHECK(y.shape() == Shape{0, 6, 9});
  sum(y).backward();
  for (const Tensor& parameter : net.parameters()) CHECK(max_difference(parameter.grad(), Tensor::zeros_like(parameter)) == 0);
}

TEST_CASE("residual: keys, options, training mode") {
  Residual net({.scale = 0.25}, Conv1d({.in_channels = 2, .out_channels = 2, .kernel_size = 1}), Dropout(0.5), Snake(2));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : net.state_dict()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"block.0.weight", "block.0.bias", "block.2.alpha"});
  CHECK(net.scale() == 0.25);
  CHECK(net.block().size() == 3);
  net.eval();
  CHECK_FALSE(net.block()[1].is_training());
  CHECK(Residual(ReLU()).scale() == 1);
}

TEST_CASE("residual: the keys of HiFi-GAN's blocks, by names") {
  const auto conv = [](std::int64_t dilation) {
    return Conv1d({.in_channels = 2, .out_channels = 2, .kernel_size = 3, .padding = dilation, .dilation = dilation});
  };
  const auto pair = [&](const std::string& i, std::int64_t dilation) {
    return named("", Residual({.name = ""}, LeakyReLU(0.1), named("convs1." + i, conv(dilation)), LeakyReLU(0.1),
                              named("convs2." + i, conv(1))));
  };
  Sequential block(pair("0", 1), pair("1", 3));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : block.state_dict()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"convs1.0.weight", "convs1.0.bias", "convs2.0.weight", "convs2.0.bias",
                                          "convs1.1.weight", "convs1.1.bias", "convs2.1.weight", "convs2.1.bias"});
  Residual other({.scale = 0.5, .name = "body"}, named("conv", conv(1)), Snake(2));
  CHECK(other.state_dict()[0].first == "body.conv.weight");
  CHECK(other.state_dict()[2].first == "body.1.alpha");
  Residual positions({.name = ""}, conv(1));
  CHECK(positions.state_dict()[1].first == "0.bias");
  check_residual(static_cast<Residual&>(block[1]), Tensor::randn({2, 2, 9}));
}

TEST_CASE("residual: a block that changes the shape is refused") {
  const Tensor x = Tensor::ones({2, 2, 9});
  Residual shorter(Conv1d({.in_channels = 2, .out_channels = 2, .kernel_size = 3}));
  CHECK_THROWS_WITH_AS((void)shorter(x), "conv1d: expected a residual of the output's shape (2, 2, 7), got (2, 2, 9)",
                       ShapeError);
  Residual activated(Conv1d({.in_channels = 2, .out_channels = 1, .kernel_size = 1}), ReLU());
  CHECK_THROWS_WITH_AS((void)activated(x), "conv1d: expected a residual of the output's shape (2, 1, 9), got (2, 2, 9)",
                       ShapeError);
  Residual longer(ConvTranspose1d({.in_channels = 2, .out_channels = 2, .kernel_size = 2, .stride = 2}));
  CHECK_THROWS_WITH_AS((void)longer(Tensor::ones({2, 9})),
                       "conv_transpose1d: expected a residual of the output's shape (2, 18), got (2, 9)", ShapeError);
  Residual apart(ConvTranspose1d({.in_channels = 2, .out_channels = 2, .kernel_size = 2, .stride = 2}), ReLU());
  CHECK_THROWS_WITH_AS((void)apart(Tensor::ones({2, 9})),
                       "conv_transpose1d: expected a residual of the output's shape (2, 18), got (2, 9)", ShapeError);
  Residual plain(Conv1d({.in_channels = 2, .out_channels = 3, .kernel_size = 1}), Sigmoid());
  CHECK_THROWS_WITH_AS((void)plain(x), "Residual: expected its modules to keep the shape (2, 2, 9), got (2, 3, 9)", ShapeError);
}

TEST_CASE("residual whose block ends with a scale of channels: one pass, rounded once, of the same gradients") {
  manual_seed(5);
  const auto layer_scale = [](int dim) { return LayerScale({.channels = 6, .init = 0.3, .dim = dim, .dtype = DType::f64}); };
  const auto check = [&](Residual net, const LayerScale& last, int dim) {
    CAPTURE(net.block().size());
    const auto apart = [&](const Tensor& x) {
      Tensor y = x;
      for (const auto& module : net.block()) y = module->forward(y);
      return add_scaled(x, y, net.scale());
    };
    const Tensor x = random_f64({2, 6, 37});
    const auto together = results(net, x, [&](const Tensor&in) { return net(in); }), steps = results(net, x, apart);
    REQUIRE(together.size() == steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i)
      for (std::size_t j = 0; j < steps[i].size(); ++j) CHECK(together[i][j] == doctest::Approx(steps[i][j]).epsilon(1e-13));
    if (net.scale() != 1 || net.block().size() > 1) return;
    CHECK(values(net(x)) == values(addcmul(x, x, last.gamma_for(x, dim))));
  };
  const Conv1d conv({.in_channels = 6, .out_channels = 6, .kernel_size = 3, .padding = 1, .dtype = DType::f64});
  for (const double scale : {1.0, 0.3}) {
    const LayerScale first = layer_scale(1), last = layer_scale(-1);
    check(Residual({.scale = scale}, first), first, 1);
    check(Residual({.scale = scale}, conv, first), first, 1);
    check(Residual({.scale = scale}, ChannelsLast(last)), last, -2);
    check(Residual({.scale = scale}, conv, ChannelsLast(Tanh(), last)), last, -2);
  }
  Residual inside(ChannelsLast(Residual(Tanh(), layer_scale(-1))));
  CHECK(layer_gradcheck(inside, {2, 6, 4}) == "");
  Residual growing(Conv1d({.in_channels = 6, .out_channels = 6, .kernel_size = 3, .dtype = DType::f64}), layer_scale(1));
  CHECK(error_of<ShapeError>([&] {
          return growing(random_f64({2, 6, 9}));
        }) == "Residual: expected its modules to keep the shape (2, 6, 9), got (2, 6, 7)");
}
