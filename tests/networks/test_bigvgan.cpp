#include "networks/bigvgan.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "layers/weight_norm.hpp"
#include "ops/activations.hpp"
#include "ops/antialias.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/fine_tuning.hpp"
#include "support/generator.hpp"
#include "support/network_state.hpp"
#include "support/stream.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

BigVganConfig small(bool two_convolutions) { return {small_generator(two_convolutions)}; }

const std::string kStart = R"({"resblock":"1","upsample_initial_channel":8,"upsample_rates":[2],"upsample_kernel_sizes":[4],)"
                           R"("resblock_kernel_sizes":[3],"resblock_dilation_sizes":[[1]])";

std::string error_for(const std::string& json) {
  return error_of<FormatError>([&] { return BigVganConfig::parse(json); });
}

// Every module, written out.
Tensor plain_generator(const BigVganConfig& config, const NetworkState& of, const Tensor& mel) {
  const auto activation = [&](const Tensor& x, const std::string& name) {
    const auto read = [&](const char* key) {
      const Tensor values = of(name + ".act." + key);
      return config.log_scale ? exp(values) : values;
    };
    const Tensor up = antialias_up2(x, of(name + ".upsample.filter"));
    const Tensor alpha = read("alpha"), beta = config.has_beta ? read("beta") : alpha;
    return antialias_down2(snake_beta(up, alpha, beta + 1e-9), of(name + ".downsample.lowpass.filter"));
  };
  const auto conv = [&](const Tensor& x, const std::string& name, std::int64_t dilation) {
    return of.conv(x, name, {.padding = (of(name + ".weight").size(2) - 1) * dilation / 2, .dilation = dilation});
  };
  Tensor x = conv(mel, "conv_pre", 1);
  std::size_t block = 0;
  for (std::size_t stage = 0; stage < config.upsample_rates.size(); ++stage) {
    const std::string up = concat("ups.", stage, ".0");
    const std::int64_t rate = config.upsample_rates[stage];
    x = conv_transpose1d(x, of(up + ".weight"), of(up + ".bias"),
                         {.stride = rate, .padding = (config.upsample_kernel_sizes[stage] - rate) / 2});
    Tensor sum;
    for (const std::vector<std::int64_t>& dilations : config.resblock_dilation_sizes) {
      const std::string name = concat("resblocks.", block++, ".");
      Tensor y = x;
      for (std::size_t i = 0; i < dilations.size(); ++i) {
        const auto act = [&](const Tensor& z, std::size_t number) {
          return activation(z, concat(name, "activations.", number));
        };
        if (config.two_convolutions)
          y = y + conv(act(conv(act(y, 2 * i), concat(name, "convs1.", i), dilations[i]), 2 * i + 1),
                       concat(name, "convs2.", i), 1);
        else
          y = y + conv(act(y, i), concat(name, "convs.", i), dilations[i]);
      }
      sum = sum.defined() ? sum + y : y;
    }
    x = sum / static_cast<double>(config.resblock_dilation_sizes.size());
  }
  x = conv(activation(x, "activation_post"), "conv_post", 1);
  return config.final_tanh ? tanh(x) : clamp(x, -1, 1);
}

}  // namespace

TEST_CASE("BigVGAN has the original's names, and filters among its buffers") {
  BigVgan net(small(true));
  weight_norm(net);
  const NetworkState of(net);
  for (const char* name :
       {"conv_pre.weight_g", "ups.1.0.weight_v", "ups.0.0.bias", "resblocks.3.convs1.0.bias", "resblocks.2.convs2.1.weight_v",
        "resblocks.0.activations.3.act.beta", "resblocks.1.activations.1.upsample.filter",
        "resblocks.1.activations.0.downsample.lowpass.filter", "activation_post.act.alpha", "conv_post.bias"})
    CHECK_MESSAGE(of.has(name), name);
  // 3 for each convolution and 4 for each activation; two of both in each of 3 residual units of 2 stages.
  CHECK(net.state_dict().size() == 3 * (2 + 2 + 2 * 6) + 4 * (2 * 6 + 1));
  CHECK(net.parameters().size() == 3 * (2 + 2 + 2 * 6) + 2 * (2 * 6 + 1));
  BigVganConfig second = small(false);
  second.has_beta = false;
  second.final_bias = false;
  BigVgan other(second);
  CHECK(NetworkState(other).has("resblocks.0.convs.1.weight"));
  CHECK(!NetworkState(other).has("resblocks.0.activations.0.act.beta"));
  CHECK(!NetworkState(other).has("conv_post.bias"));
}

TEST_CASE("BigVGAN is the formula of the paper, step by step") {
  manual_seed(3);
  for (const bool two_convolutions : {true, false})
    for (const bool log_scale : {true, false})
      for (const bool final_tanh : {true, false}) {
        BigVganConfig config = small(two_convolutions);
        config.log_scale = log_scale;
        config.final_tanh = final_tanh;
        config.final_bias = config.has_beta = !log_scale;
        BigVgan net(config);
        net.to(DType::f64);
        randomise(net);
        for (auto& [name, tensor] : net.state_dict())
          if (name.find(".act.") != std::string::npos) tensor.copy_(uniform_f64(tensor.shape(), 0.5, 1));
        const Tensor mel = random_f64({2, 6, 7});
        const NoGradGuard no_grad;
        const Tensor expected = plain_generator(config, NetworkState(net), mel);
        CHECK(relative_difference(f64_values(net(mel)), f64_values(expected)) < kDoubleRounding);
        CHECK(expected.shape() == Shape{2, 1, 56});
        CHECK(max(abs(expected)).item() < 1);  // it never reaches 1
      }
}

TEST_CASE("BigVGAN uses the filters of a checkpoint") {
  manual_seed(4);
  BigVgan net(small(true));
  net.to(DType::f64);
  const Tensor mel = random_f64({1, 6, 5});
  const NoGradGuard no_grad;
  const Tensor before = net(mel);
  NamedTensors state = net.state_dict();
  for (auto& [name, tensor] : state) tensor = name == "activation_post.upsample.filter" ? tensor * 0.5 : tensor.clone();
  net.load_published(state);
  CHECK(max_difference(net(mel), before) > kFloatSum);
  CHECK(max_difference(net(mel), plain_generator(small(true), NetworkState(net), mel)) < kDoubleRounding);
  state.pop_back();
  CHECK(error_of<Error>([&] { return net.load_published(state), 0; }).find("conv_post.bias (1,)") != std::string::npos);
}

TEST_CASE("BigVGAN in pieces, also with kernels that are odd where their rates are even") {
  manual_seed(5);
  BigVganConfig config = small(true);
  BigVgan net(config);
  check_stream(net, {2, 6, 25});
  check_stream(net, {1, 6, 1});
  config.upsample_kernel_sizes = {7, 4};
  config.final_tanh = false;
  BigVgan odd(config);
  check_stream(odd, {1, 6, 25});
}

TEST_CASE("BigVGAN learns, and computes in 16 bits") {
  manual_seed(6);
  BigVgan net(small(true));
  const Tensor mel = random_f64({2, 6, 5}).to(DType::f32);
  const Tensor target = uniform_f64({2, 1, 40}, -0.5, 0.5).to(DType::f32);
  check_fine_tuning(net, mel, target);
  const NoGradGuard no_grad;
  const std::vector<double> exact = f64_values(net(mel));
  for (const DType dtype : {DType::f16, DType::bf16}) {
    net.to(dtype);
    const Tensor audio = net(mel.to(dtype));
    CHECK(audio.dtype() == dtype);
    CHECK(relative_difference(f64_values(audio), exact) < (dtype == DType::f16 ? kNetworkHalf : kNetworkBFloat16));
  }
}

TEST_CASE("a configuration of BigVGAN that does not fit is refused in words") {
  CHECK(error_for("[").starts_with("bigvgan: config: "));
  CHECK(error_for("{}") == "bigvgan: config: expected resblock");
  CHECK(error_for(kStart + "}") == "bigvgan: config: expected activation");
  CHECK(error_for(kStart + R"(,"activation":"relu"})") == "bigvgan: config: expected activation snake or snakebeta, got relu");
  CHECK(error_for(kStart + R"(,"activation":"snake","snake_logscale":1})").find("snake_logscale") != std::string::npos);
  CHECK(error_for(R"({"resblock":"1","upsample_initial_channel":8,"upsample_rates":[2,2],"upsample_kernel_sizes":[4],)"
                  R"("resblock_kernel_sizes":[3],"resblock_dilation_sizes":[[1]],"activation":"snake"})") ==
        "bigvgan: config: expected as many upsample_kernel_sizes as upsample_rates");
  const BigVganConfig config = BigVganConfig::parse(kStart + R"(,"activation":"snake"})");
  CHECK(!config.has_beta);
  CHECK(config.final_tanh);
  CHECK(config.final_bias);
  CHECK(config.log_scale);
  CHECK(!BigVganConfig::parse(kStart + R"(,"activation":"snakebeta","use_tanh_at_final":false})").final_tanh);
}
