#include "networks/vocos.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ops/activations.hpp"
#include "ops/length.hpp"
#include "ops/linear.hpp"
#include "ops/norm.hpp"
#include "support/fine_tuning.hpp"
#include "support/network_state.hpp"
#include "support/stream.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

VocosConfig small(std::int64_t bandwidths = 0, IstftPadding padding = IstftPadding::center) {
  return {.input_channels = 5,
          .dim = 6,
          .intermediate_dim = 12,
          .num_layers = 2,
          .adanorm_num_embeddings = bandwidths,
          .n_fft = 16,
          .hop_length = 4,
          .padding = padding};
}

// Backbone and head by plain operations.
Tensor plain_vocos(const VocosConfig& config, const NetworkState& of, const Tensor& features, std::int64_t bandwidth) {
  const auto norm = [&](const Tensor& x, const std::string& name) {  // (N, L, C)
    if (config.adanorm_num_embeddings == 0 || name.ends_with("final_layer_norm"))
      return layer_norm(x, of(name + ".weight"), of(name + ".bias"), 1e-6);
    return layer_norm(x, {}, {}, 1e-6) * of(name + ".scale.weight").select(0, bandwidth) +
           of(name + ".shift.weight").select(0, bandwidth);
  };
  Tensor x = of.conv(features, "backbone.embed", {.padding = 3});
  x = norm(x.transpose(1, 2), "backbone.norm").transpose(1, 2).contiguous();
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const std::string name = concat("backbone.convnext.", i);
    Tensor y = of.conv(x, name + ".dwconv", {.padding = 3, .groups = config.dim}).transpose(1, 2);
    y = linear(norm(y, name + ".norm"), of(name + ".pwconv1.weight"), of(name + ".pwconv1.bias"));
    y = linear(gelu(y), of(name + ".pwconv2.weight"), of(name + ".pwconv2.bias"));
    x = x + (y * of(name + ".gamma")).transpose(1, 2);
  }
  x = linear(norm(x.transpose(1, 2), "backbone.final_layer_norm"), of("head.out.weight"), of("head.out.bias"));
  const std::int64_t bins = config.n_fft / 2 + 1;
  const Tensor magnitude = minimum(exp(x.narrow(2, 0, bins)), Tensor::full({}, 100, {.dtype = DType::f64}));
  const Tensor phase = x.narrow(2, bins, bins);
  const Tensor spectrum = stack({magnitude * cos(phase), magnitude * sin(phase)}, -1);
  const IstftOptions options{
      .n_fft = config.n_fft, .hop_length = config.hop_length, .win_length = config.n_fft, .padding = config.padding};
  return istft(spectrum, options, of("head.istft.window")).unsqueeze(1);
}

const std::string kConfig =
    R"({"backbone": {"class_path": "vocos.models.VocosBackbone", "init_args": {"input_channels": 5, "dim": 6,
        "intermediate_dim": 12, "num_layers": 2}}, "head": {"class_path": "vocos.heads.ISTFTHead", "init_args": HEAD}})";

std::string with_head(const std::string& head) {
  std::string json = kConfig;
  return json.replace(json.find("HEAD"), 4, head);
}

std::string error_for(const std::string& json) {
  return error_of<FormatError>([&] { return VocosConfig::parse(json); });
}

}  // namespace

TEST_CASE("Vocos has the original's names, and passes over a feature extractor's") {
  Vocos net(small());
  const NetworkState of(net);
  for (const char* name :
       {"backbone.embed.weight", "backbone.norm.bias", "backbone.convnext.1.dwconv.weight", "backbone.convnext.0.norm.weight",
        "backbone.convnext.0.pwconv1.bias", "backbone.convnext.1.pwconv2.weight", "backbone.convnext.1.gamma",
        "backbone.final_layer_norm.weight", "head.out.bias", "head.istft.window"})
    CHECK_MESSAGE(of.has(name), name);
  CHECK(net.state_dict().size() == 2 + 2 + 2 * 9 + 2 + 2 + 1);
  Vocos many(small(4));
  const NetworkState rows(many);
  CHECK(rows("backbone.norm.scale.weight").shape() == Shape{4, 6});
  CHECK(rows("backbone.convnext.1.norm.shift.weight").shape() == Shape{4, 6});
  NamedTensors state = net.state_dict();
  state.emplace_back("feature_extractor.mel_spec.mel_scale.fb", Tensor::ones({9, 5}));
  Vocos other(small());
  other.load_published(state);
  const Tensor mel = random_f64({1, 5, 9}).to(DType::f32);
  CHECK(max_difference(other(mel), net(mel)) == 0);
  state.emplace_back("head.window", Tensor::ones({16}));
  CHECK(error_of<Error>([&] { return other.load_published(state), 0; }).find("head.window") != std::string::npos);
}

TEST_CASE("Vocos is the original's network, step by step") {
  manual_seed(1);
  for (const std::int64_t bandwidths : {0, 3})
    for (const IstftPadding padding : {IstftPadding::center, IstftPadding::same}) {
      const VocosConfig config = small(bandwidths, padding);
      Vocos net(config);
      net.to(DType::f64);
      randomise(net, -0.8, 0.8);
      net.load_published([&] {
        NamedTensors state = net.state_dict();
        for (auto& [name, tensor] : state) tensor = name == "head.istft.window" ? uniform_f64({16}, 0.5, 1) : tensor.clone();
        return state;
      }());
      const NoGradGuard no_grad;
      const NetworkState of(net);
      const Tensor features = random_f64({2, 5, 9}) * 3.0;
      for (std::int64_t id = 0; id < std::max<std::int64_t>(bandwidths, 1); ++id) {
        if (bandwidths > 0) net.set_bandwidth_id(id);
        const Tensor expected = plain_vocos(config, of, features, id);
        CHECK(expected.size(2) == (padding == IstftPadding::center ? 8 : 9) * 4);
        CHECK(relative_difference(f64_values(net(features)), f64_values(expected)) < kDoubleRounding);
      }
    }
}

TEST_CASE("Vocos bounds magnitudes at 100") {
  Vocos net(small());
  NamedTensors state = net.state_dict();
  for (auto& [name, tensor] : state) tensor = name == "head.out.bias" ? Tensor::full(tensor.shape(), 50) : tensor.clone();
  net.load_published(state);
  for (const float value : net(Tensor::ones({1, 5, 9})).detach().to_vector<float>()) CHECK(std::abs(value) < 200);
}

TEST_CASE("Vocos in pieces") {
  manual_seed(2);
  for (const std::int64_t bandwidths : {0, 2})
    for (const IstftPadding padding : {IstftPadding::center, IstftPadding::same}) {
      Vocos net(small(bandwidths, padding));
      if (bandwidths > 0) net.set_bandwidth_id(1);
      check_stream(net, {2, 5, 40});
      check_stream(net, {1, 5, 3});
      CHECK(receptive_field(net).right >= 3 * 3 + 2);
    }
}

TEST_CASE("Vocos learns, and computes in 16 bits") {
  manual_seed(3);
  Vocos net(small(0, IstftPadding::same));
  const Tensor mel = random_f64({2, 5, 6}).to(DType::f32);
  check_fine_tuning(net, mel, uniform_f64({2, 1, 24}, -0.5, 0.5).to(DType::f32), 1e-2);
  const NoGradGuard no_grad;
  const std::vector<double> exact = f64_values(net(mel));
  for (const DType dtype : {DType::f16, DType::bf16}) {
    net.to(dtype);
    CHECK(net(mel.to(dtype)).dtype() == dtype);
    CHECK(relative_difference(f64_values(net(mel.to(dtype))), exact) < (dtype == DType::f16 ? kNetworkHalf : kNetworkBFloat16));
  }
}

TEST_CASE("a configuration of Vocos") {
  const VocosConfig config = VocosConfig::parse(with_head(R"({"dim": 6, "n_fft": 16, "hop_length": 4})"));
  CHECK(config.padding == IstftPadding::same);
  CHECK(config.adanorm_num_embeddings == 0);
  CHECK(config.sampling_rate == 0);
  CHECK(Vocos(config).format().input == NetworkInput::mel);
  CHECK(error_for("[").starts_with("vocos: config: "));
  CHECK(error_for("{}") == "vocos: config: expected backbone");
  CHECK(error_for(with_head(R"({"dim": 7, "n_fft": 16, "hop_length": 4})")) ==
        "vocos: config: expected head.init_args.dim to be the backbone's 6, got 7");
  CHECK(error_for(with_head(R"({"n_fft": 15, "hop_length": 4})")).find("even head.init_args.n_fft, got 15") !=
        std::string::npos);
  CHECK(error_for(with_head(R"({"n_fft": 16, "hop_length": 17})")).find("got 17") != std::string::npos);
  CHECK(error_for(with_head(R"({"n_fft": 16, "hop_length": 4, "padding": "valid"})")).find("got valid") != std::string::npos);
  CHECK(error_for(R"({"backbone": {"class_path": "vocos.models.VocosResNetBackbone", "init_args": {}}})") ==
        "vocos: config: expected backbone.class_path of VocosBackbone, got vocos.models.VocosResNetBackbone");
}

TEST_CASE("inputs of Vocos that do not fit are refused in words") {
  Vocos net(small());
  CHECK(error_of<ShapeError>([&] {
          return net(Tensor::ones({1, 6, 5}));
        }) == "network: expected an input (N, 5, frames >= 1), got (1, 6, 5)");
  CHECK(error_of<ShapeError>([&] { return net.set_bandwidth_id(0), 0; }) == "vocos: expected a bandwidth_id in [0, 0), got 0");
  Vocos many(small(4));
  CHECK(error_of<ShapeError>([&] { return many.set_bandwidth_id(4), 0; }).find("[0, 4), got 4") != std::string::npos);
}
