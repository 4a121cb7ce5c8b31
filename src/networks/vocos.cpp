#include "networks/vocos.hpp"

#include "layers/activations.hpp"
#include "layers/containers/channels_last.hpp"
#include "layers/containers/residual.hpp"
#include "layers/conv1d.hpp"
#include "layers/linear.hpp"
#include "layers/norm.hpp"
#include "layers/spectral/istft.hpp"
#include "layers/streaming/module_stream.hpp"
#include "networks/config.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/norm.hpp"

namespace polyphase {
namespace {

constexpr double kEpsilon = 1e-6;  // of all norms
constexpr double kLargestMagnitude = 100;

/// LayerNorm whose scale and shift are one of several rows: scale.weight (bandwidths, C), shift.weight (bandwidths, C).
class AdaLayerNorm : public Module, public layers::EitherLayout {
 public:
  AdaLayerNorm(std::int64_t bandwidths, std::int64_t channels, std::shared_ptr<const std::int64_t> bandwidth_id)
      : scale_(Tensor::ones({bandwidths, channels}, {.requires_grad = true})),
        shift_(Tensor::zeros({bandwidths, channels}, {.requires_grad = true})),
        bandwidth_id_(std::move(bandwidth_id)) {}
  void visit(Visitor& visitor) override {
    visitor.parameter("scale.weight", scale_);
    visitor.parameter("shift.weight", shift_);
  }
  [[nodiscard]] Tensor forward(const Tensor& x) override { return normalised(x, -1); }
  [[nodiscard]] Tensor forward_channels_first(const Tensor& x) override { return normalised(x, 1); }
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override {
    return std::make_unique<layers::PointwiseStream>(
        *this, layers::PointwiseStream::Options{.layout = ModuleStream::Layout::channels_last});
  }

 private:
  [[nodiscard]] Tensor normalised(const Tensor& x, int dim) const {
    return layer_norm(x, scale_.select(0, *bandwidth_id_), shift_.select(0, *bandwidth_id_), kEpsilon, dim);
  }

  Tensor scale_, shift_;
  std::shared_ptr<const std::int64_t> bandwidth_id_;
};

/// (N, 2B, L), logarithms of magnitudes and then phases -> (N, 2B, L), real parts and then imaginary parts.
class FromPolar : public PointwiseModule {
 public:
  [[nodiscard]] Tensor forward(const Tensor& x) override {
    const std::int64_t bins = x.size(1) / 2;
    const Tensor magnitude = clamp(exp(x.narrow(1, 0, bins)), 0, kLargestMagnitude);
    const Tensor phase = x.narrow(1, bins, bins);
    return cat({magnitude * cos(phase), magnitude * sin(phase)}, 1);
  }
};

std::shared_ptr<Module> norm(const VocosConfig& config, const std::shared_ptr<std::int64_t>& bandwidth_id) {
  if (config.adanorm_num_embeddings > 0)
    return std::make_shared<AdaLayerNorm>(config.adanorm_num_embeddings, config.dim, bandwidth_id);
  return std::make_shared<LayerNorm>(LayerNorm::Options{.normalized_shape = config.dim, .epsilon = kEpsilon});
}

Residual convnext_block(const VocosConfig& config, const std::shared_ptr<std::int64_t>& bandwidth_id) {
  const std::int64_t dim = config.dim, hidden = config.intermediate_dim;
  const double gamma =
      config.layer_scale_init_value == 0 ? 1.0 / static_cast<double>(config.num_layers) : config.layer_scale_init_value;
  ChannelsLast pointwise;
  pointwise.push_back("norm", norm(config, bandwidth_id));
  pointwise.push_back(named("pwconv1", Linear({.in_features = dim, .out_features = hidden})));
  pointwise.push_back(GELU());
  pointwise.push_back(named("pwconv2", Linear({.in_features = hidden, .out_features = dim})));
  pointwise.push_back(named("", LayerScale({.channels = dim, .init = gamma})));
  return Residual(
      {.name = ""},
      named("dwconv", Conv1d({.in_channels = dim, .out_channels = dim, .kernel_size = 7, .padding = 3, .groups = dim})),
      named("", std::move(pointwise)));
}

void check(const VocosConfig& config) {
  const auto expect = [](bool condition, const auto&... what) { require<FormatError>(condition, "vocos: config: ", what...); };
  expect(config.n_fft >= 2 && config.n_fft % 2 == 0, "expected an even head.init_args.n_fft, got ", config.n_fft);
  expect(config.hop_length <= config.n_fft, "expected head.init_args.hop_length of at most n_fft=", config.n_fft, ", got ",
         config.hop_length);
}

Sequential layers_of(const VocosConfig& config, const std::shared_ptr<std::int64_t>& bandwidth_id) {
  check(config);
  Sequential net(
      named("backbone.embed",
            Conv1d({.in_channels = config.input_channels, .out_channels = config.dim, .kernel_size = 7, .padding = 3})));
  ChannelsLast first;
  first.push_back("backbone.norm", norm(config, bandwidth_id));
  net.push_back(named("", std::move(first)));
  for (std::int64_t i = 0; i < config.num_layers; ++i)
    net.push_back(named(concat("backbone.convnext.", i), convnext_block(config, bandwidth_id)));
  net.push_back(named(
      "", ChannelsLast(named("backbone.final_layer_norm", LayerNorm({.normalized_shape = config.dim, .epsilon = kEpsilon})),
                       named("head.out", Linear({.in_features = config.dim, .out_features = config.n_fft + 2})))));
  net.push_back(FromPolar());
  net.push_back(
      named("head.istft", ISTFT({.n_fft = config.n_fft, .hop_length = config.hop_length, .padding = config.padding})));
  return net;
}

/// The arguments of a class of the original's configuration.
NetworkConfig arguments_of(const NetworkConfig& json, const char* part, const char* class_name) {
  const NetworkConfig object = json.object(part);
  const std::string kind = object.text("class_path", class_name);
  json.expect(kind.ends_with(class_name), "expected ", part, ".class_path of ", class_name, ", got ", kind);
  return object.object("init_args");
}

void read_features(const NetworkConfig& json, VocosConfig& config) {
  const NetworkConfig features = json.object("feature_extractor");
  config.from_mel = features.text("class_path", "MelSpectrogramFeatures").ends_with("MelSpectrogramFeatures");
  const NetworkConfig arguments = features.has("init_args") ? features.object("init_args") : NetworkConfig("vocos", "{}");
  const bool is_48khz = arguments.text("encodec_model", "encodec_24khz") == "encodec_48khz";
  config.sampling_rate = arguments.count_or("sample_rate", is_48khz ? 48000 : 24000);
}

}  // namespace

VocosConfig VocosConfig::parse(const std::string& text) {
  const NetworkConfig json("vocos", text);
  const NetworkConfig backbone = arguments_of(json, "backbone", "VocosBackbone");
  const NetworkConfig head = arguments_of(json, "head", "ISTFTHead");
  VocosConfig config{.input_channels = backbone.count("input_channels"),
                     .dim = backbone.count("dim"),
                     .intermediate_dim = backbone.count("intermediate_dim"),
                     .num_layers = backbone.count("num_layers"),
                     .layer_scale_init_value = backbone.number("layer_scale_init_value", 0),
                     .adanorm_num_embeddings = backbone.count_or("adanorm_num_embeddings", 0),
                     .n_fft = head.count("n_fft", 2),
                     .hop_length = head.count("hop_length")};
  json.expect(head.count_or("dim", config.dim) == config.dim, "expected head.init_args.dim to be the backbone's ", config.dim,
              ", got ", head.count_or("dim", config.dim));
  const std::string padding = head.text("padding", "same");
  json.expect(padding == "center" || padding == "same", "expected head.init_args.padding center or same, got ", padding);
  config.padding = padding == "center" ? IstftPadding::center : IstftPadding::same;
  config.from_mel = config.adanorm_num_embeddings == 0;
  if (json.has("feature_extractor")) read_features(json, config);
  check(config);
  return config;
}

Vocos::Vocos(const VocosConfig& config) : Vocos(config, std::make_shared<std::int64_t>(0)) {}

Vocos::Vocos(const VocosConfig& config, std::shared_ptr<std::int64_t> bandwidth_id)
    : Network({.input = config.from_mel ? NetworkInput::mel : NetworkInput::latent,
               .rows = config.input_channels,
               .samples_per_frame = config.hop_length,
               .sampling_rate = config.sampling_rate},
              layers_of(config, bandwidth_id)),
      config_(config),
      bandwidth_id_(std::move(bandwidth_id)) {}

void Vocos::set_bandwidth_id(std::int64_t id) {
  require<ShapeError>(id >= 0 && id < config_.adanorm_num_embeddings, "vocos: expected a bandwidth_id in [0, ",
                      config_.adanorm_num_embeddings, "), got ", id);
  *bandwidth_id_ = id;
}

bool Vocos::is_unused(std::string_view key) const { return key.starts_with("feature_extractor."); }

}  // namespace polyphase
