#include "networks/oobleck.hpp"

#include <doctest/doctest.h>

#include "layers/weight_norm.hpp"
#include "ops/activations.hpp"
#include "ops/antialias.hpp"
#include "ops/conv.hpp"
#include "ops/length.hpp"
#include "support/network_checks.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

OobleckConfig small() {
  return {.channels = 3,
          .c_mults = {1, 2},
          .strides = {2, 3},
          .latent_dim = 4,
          .use_snake = true,
          .final_tanh = false,
          .sample_rate = 44100};
}

std::string error_for(const std::string& json) {
  return error_of<FormatError>([&] { return OobleckConfig::parse(json); });
}

/// A decoder's config, nested as in a model's file.
std::string in_model(const std::string& config) {
  return R"({"model": {"decoder": {"type": "oobleck", "config": )" + config + "}}}";
}

using Activate = std::function<Tensor(const std::string& name, const Tensor& x)>;

/// The decoder of small() step by step.
Tensor plain_decoder(const StateOf& state, const Tensor& latent, const Activate& outer, const Activate& inner,
                     bool is_nearest) {
  const auto conv = [&](const std::string& name, const Tensor& x, std::int64_t dilation) {
    const Tensor w = state[name + ".weight"];
    const Tensor bias = state.has(name + ".bias") ? state[name + ".bias"] : Tensor();
    return conv1d(x, w, bias, {.padding = (w.size(2) - 1) / 2 * dilation, .dilation = dilation});
  };
  Tensor x = conv("decoder.layers.0", latent, 1);
  const std::int64_t strides[] = {3, 2};
  for (std::size_t stage = 0; stage < 2; ++stage) {
    const std::string name = concat("decoder.layers.", stage + 1, ".layers.");
    x = outer(name + "0", x);
    if (is_nearest)
      x = conv1d(upsample1d(x, strides[stage]), state[name + "1.1.weight"], {}, {.padding = Padding::same()});
    else
      x = conv_transpose1d(x, state[name + "1.weight"], state[name + "1.bias"],
                           {.stride = strides[stage], .padding = stage == 0 ? 2 : 1});
    const std::int64_t dilations[] = {1, 3, 9};
    for (std::size_t unit = 0; unit < 3; ++unit) {
      const std::string layers = concat(name, unit + 2, ".layers.");
      const Tensor y = conv(layers + "1", inner(layers + "0", x), dilations[unit]);
      x = x + conv(layers + "3", inner(layers + "2", y), 1);
    }
  }
  return conv("decoder.layers.4", outer("decoder.layers.3", x), 1);
}

}  // namespace

TEST_CASE("the decoder has the original's names") {
  OobleckDecoder decoder(small());
  CHECK(decoder.parameter_count() > 0);
  weight_norm(decoder);
  const StateOf state(decoder);
  for (const char* name : {"decoder.layers.0.weight_g", "decoder.layers.1.layers.0.alpha", "decoder.layers.1.layers.0.beta",
                           "decoder.layers.1.layers.1.weight_v", "decoder.layers.2.layers.4.layers.3.bias",
                           "decoder.layers.2.layers.3.layers.2.beta", "decoder.layers.3.alpha", "decoder.layers.4.weight_v"}) {
    CAPTURE(name);
    CHECK(state.has(name));
  }
  CHECK(!state.has("decoder.layers.4.bias"));
  NamedTensors whole = decoder.state_dict();
  whole.emplace_back("encoder.layers.0.bias", Tensor::ones({1}));
  decoder.load_published(whole);
}

TEST_CASE("the decoder is the formula, in each of its variants") {
  const NoGradGuard no_grad;
  const Tensor latent = random_f64({2, 4, 7});
  for (const bool use_snake : {true, false})
    for (const bool is_antialiased : {false, true})
      for (const bool is_nearest : {false, true})
        for (const bool final_tanh : {false, true}) {
          CAPTURE(use_snake);
          CAPTURE(is_antialiased);
          CAPTURE(is_nearest);
          CAPTURE(final_tanh);
          manual_seed(2);
          OobleckConfig config = small();
          config.use_snake = use_snake;
          config.antialias_activation = is_antialiased;
          config.use_nearest_upsample = is_nearest;
          config.final_tanh = final_tanh;
          OobleckDecoder decoder(config);
          decoder.to(DType::f64);
          const StateOf state(decoder);
          const Activate plain = [&](const std::string& name, const Tensor& x) {
            if (!use_snake) return elu(x);
            const Tensor a = exp(state[name + ".alpha"]).reshape({-1, 1}), b = exp(state[name + ".beta"]).reshape({-1, 1});
            return x + square(sin(x * a)) / (b + 1e-9);
          };
          const Activate outer = [&](const std::string& name, const Tensor& x) {
            if (!is_antialiased) return plain(name, x);
            return antialias(
                x, [&](const Tensor& y) { return plain(name + ".act", y); }, state[name + ".upsample.filter"],
                state[name + ".downsample.lowpass.filter"]);
          };
          Tensor expected = plain_decoder(state, latent, outer, plain, is_nearest);
          if (final_tanh) expected = tanh(expected);
          const Tensor audio = decoder(latent);
          CHECK(audio.shape() == Shape{2, 2, is_nearest ? 42 : 40});
          CHECK(relative_difference(f64_values(audio), f64_values(expected)) < kDoubleSum);
        }
}

TEST_CASE("streams") {
  manual_seed(3);
  OobleckDecoder decoder(small());
  check_stream(decoder, {2, 4, 90});
  OobleckConfig config = small();
  config.antialias_activation = config.use_nearest_upsample = config.final_tanh = true;
  OobleckDecoder other(config);
  check_stream(other, {1, 4, 40});
  OobleckDecoder published({.channels = 1, .c_mults = {1, 2, 4, 8, 16}, .strides = {2, 4, 4, 8, 8}, .use_snake = true});
  CHECK(Stream(published).latency() == 10);
}

TEST_CASE("fine-tuning") {
  check_fine_tuning(
      [] {
        manual_seed(4);
        return std::make_unique<OobleckDecoder>(small());
      },
      random_f64({2, 4, 7}).to(DType::f32).to(default_device()),
      random_f64({2, 2, 40}, 2).to(DType::f32).to(default_device()) * 0.3);
}

TEST_CASE("16 bits") {
  manual_seed(5);
  OobleckDecoder decoder(small());
  check_halves(decoder, random_f64({2, 4, 30}));
}

TEST_CASE("configurations: where a model's file has them, with the original's defaults") {
  const OobleckConfig empty = OobleckConfig::parse(in_model("{}"));
  CHECK(empty.c_mults == std::vector<std::int64_t>{1, 2, 4, 8});
  CHECK(empty.final_tanh);
  CHECK(!empty.use_snake);
  const std::string decoder = R"({"decoder": {"type": "oobleck", "config": {"out_channels": 1, "channels": 2, "c_mults": [1, 2],
      "strides": [4, 8], "latent_dim": 3, "use_snake": true, "final_tanh": false}}})";
  const OobleckConfig inside = OobleckConfig::parse(R"({"sample_rate": 44100, "model_type": "diffusion_cond", "model":
      {"pretransform": {"type": "autoencoder", "config": )" +
                                                    decoder + "}}}");
  const OobleckConfig alone = OobleckConfig::parse(R"({"sample_rate": 44100, "model": )" + decoder + "}");
  for (const OobleckConfig& config : {inside, alone}) {
    const NetworkFormat format = OobleckDecoder(config).format();
    CHECK(format.input == NetworkInput::latent);
    CHECK(format.rows == 3);
    CHECK(format.samples_per_frame == 32);
    CHECK(format.audio_channels == 1);
    CHECK(format.sampling_rate == 44100);
  }
}

TEST_CASE("what does not fit is refused in words") {
  CHECK(error_for("{}") == "oobleck: config: expected model");
  CHECK(error_for(R"({"model": {}})") == "oobleck: config: expected model.decoder");
  CHECK(error_for(R"({"model": {"decoder": {"type": "dac", "config": {}}}})") ==
        "oobleck: config: expected a decoder of type oobleck, got dac");
  CHECK(error_for(in_model(R"({"strides": [2, 3]})")) == "oobleck: config: expected as many c_mults as strides, got 4 and 2");
  CHECK(error_for(in_model(R"({"strides": [2000000, 2, 2, 2]})")).find("a product of at most 1048576") != std::string::npos);
  CHECK(error_for(in_model(R"({"channels": 2000000})")).find("got 2000000") != std::string::npos);
  CHECK(error_for(in_model(R"({"use_snake": 1})")).find("model.decoder.config.use_snake to be true or false") !=
        std::string::npos);
  OobleckDecoder decoder(small());
  CHECK(error_of<ShapeError>([&] {
          return decoder(Tensor::ones({1, 5, 9}));
        }) == "network: expected an input (N, 4, frames >= 1), got (1, 5, 9)");
  CHECK(error_of<Error>([&] { return decoder.load_published({}), 0; }).find("missing: decoder.layers.0.weight (6, 4, 7)") !=
        std::string::npos);
}
