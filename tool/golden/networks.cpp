#include "golden/networks.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "autograd/no_grad.hpp"
#include "golden/compare.hpp"
#include "golden/tolerance.hpp"
#include "io/weights.hpp"
#include "networks/files/published_names.hpp"
#include "networks/hifigan.hpp"
#include "networks/registry.hpp"

namespace polyphase::golden {
namespace {

// clang-format off
constexpr NetworkCheck kChecks[] = {
    {"BigVgan", kBigVganF32, bigvgan_outputs},
    {"DacDecoder", kDacF32, dac_decoder_outputs},
    {"DacEncoder", kDacF32, dac_encoder_outputs},
    {"Encodec", kEncodecF32, encodec_outputs},
    {"EncodecEncoder", kEncodecF32, encodec_encoder_outputs},
    {"HifiGan (VITS decoder)", kHifiGanF32, hifigan_outputs},
    {"HifiGan", kHifiGanF32, hifigan_outputs, kHifiGanPublishedF32},
    {"Mimi", kMimiF32, mimi_outputs},
    {"Oobleck", kOobleckF32, oobleck_outputs},
    {"Qwen3", kQwen3F32, qwen3_12hz_outputs},
    {"Snac", kSnacF32, snac_outputs},
    {"Vocos", kVocosF32, vocos_outputs},
    {"mel_spectrogram", kMelF32, mel_outputs},
};
// clang-format on

/// max |result - expected| / max |expected|; infinite on NaN and if the sizes differ.
double error_by_peak(const std::vector<double>& result, const std::vector<double>& expected) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (result.size() != expected.size()) return kInfinity;
  double worst = 0, peak = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(result[i] - expected[i]);
    if (std::isnan(difference)) return kInfinity;
    worst = std::max(worst, difference);
    peak = std::max(peak, std::abs(expected[i]));
  }
  return worst == 0 ? 0 : worst / peak;
}

Result compared(const std::string& name, const Tensor* got, const Tensor& expected, double tolerance) {
  Result result{.name = name, .what = concat(expected.dtype() == DType::i64 ? "codes " : "", expected.shape())};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // Codes must be equal.
  const bool are_codes = expected.dtype() == DType::i64;
  double error = got == nullptr ? kInfinity : error_by_peak(as_doubles(*got), as_doubles(expected));
  if (are_codes && error > 0) error = kInfinity;
  keep_worse(result, name, error, are_codes ? 0.5 : tolerance);
  return result;
}

/// Empty if the file is of a layer without weights: a mel front end.
NamedTensors weights_of(const File& file) {
  const auto& tensors = file.content.tensors;
  const bool has_weights =
      std::any_of(tensors.begin(), tensors.end(), [](const auto& one) { return one.first.starts_with("weights/"); });
  return has_weights ? file.under("weights/") : NamedTensors{};
}

double tolerance_of(const NetworkCheck& check, const NetworkFile& file, const Options& options) {
  if (file.dtype == DType::f64) return kNetworkF64;
  if (options.precision == Precision::tf32) return kGeneratorTf32;
  const bool is_published = file.file.content.metadata.contains("weights_package");
  return is_published && check.published_f32 > 0 ? check.published_f32 : check.f32;
}

/// The network's tensors of a published file, with the names of the golden file.
NamedTensors published_weights(const std::string& path, const std::string& config) {
  const WeightsFile file = load_weights(path);
  const std::string network = network_of(file.tensors);
  require<FormatError>(!network.empty(), path, ": expected the weights of a published network");
  return without_prefix(with_original_names(network, file.tensors), make_network(network, config)->state_dict());
}

}  // namespace

Tensor NetworkFile::input(const std::string& name) const {
  const Tensor& found = file.tensor("input/" + name);
  return (found.dtype() == DType::i64 ? found : found.to(dtype)).to(device);
}

void NetworkFile::prepare(Network& network) const {
  network.to(dtype);
  network.load_published(weights);
  network.to(device);
  network.eval();
}

NamedTensors hifigan_outputs(const NetworkFile& file) {
  HifiGanConfig config = HifiGanConfig::parse(file.config());
  const auto is_final_bias = [](const auto& entry) { return entry.first == "conv_post.bias"; };
  config.final_bias = std::any_of(file.weights.begin(), file.weights.end(), is_final_bias);
  HifiGan net(config);
  file.prepare(net);
  return {{"audio", net(file.input(file.has_input("mel") ? "mel" : "latent"))}};
}

bool is_network(const File& file) { return file.content.metadata.contains("network"); }

void check_network(const File& file, const Options& options, const Report& report) {
  const std::string& name = file.metadata("network");
  const auto check =
      std::find_if(std::begin(kChecks), std::end(kChecks), [&](const NetworkCheck& c) { return c.network == name; });
  std::string known;
  for (const NetworkCheck& one : kChecks) known += concat(known.empty() ? "" : ", ", one.network);
  require<NotImplemented>(check != std::end(kChecks), "expected one of ", known, ", got the network ", name);
  const bool stores_none = file.content.metadata.contains("weights_package");
  require<NotImplemented>(!stores_none || !options.weights.empty(), "the file stores no weights; --weights takes ",
                          stores_none ? file.metadata("weights_member") : "");
  require<FormatError>(stores_none || options.weights.empty(), "--weights: expected a file that stores no weights");
  const NoGradGuard no_grad;
  const NetworkFile network{file, stores_none ? published_weights(options.weights, file.metadata("config")) : weights_of(file),
                            network_dtype(options), options.device};
  const NamedTensors outputs = check->outputs(network);
  constexpr std::string_view kPrefix = "output/";
  for (const auto& [key, expected] : file.content.tensors) {
    if (!key.starts_with(kPrefix)) continue;
    const std::string output = key.substr(kPrefix.size());
    if (output == "smallest_gap") continue;  // the smallest distance between two codes, no output
    const auto got = std::find_if(outputs.begin(), outputs.end(), [&](const auto& one) { return one.first == output; });
    report(compared(output, got == outputs.end() ? nullptr : &got->second, expected, tolerance_of(*check, network, options)));
  }
}

}  // namespace polyphase::golden
