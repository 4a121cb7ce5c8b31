#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "networks/config.hpp"
#include "networks/encodec.hpp"
#include "networks/encodec_seanet.hpp"

namespace polyphase {
namespace {

std::int64_t frame_rate(const EncodecConfig& config) {
  return (config.sample_rate + config.hop_length() - 1) / config.hop_length();
}

// n_q as EncodecModel._get_model derives it from the last bandwidth.
std::int64_t codebooks_of(const NetworkConfig& json, const EncodecConfig& config) {
  const std::vector<double> bandwidths = json.numbers("target_bandwidths");
  const double codebooks = std::floor(1000 * bandwidths.back() / static_cast<double>(frame_rate(config) * 10));
  json.expect(codebooks >= 1 && codebooks <= 1024, "expected target_bandwidths for 1 to 1024 codebooks, got ",
              bandwidths.back());
  return static_cast<std::int64_t>(codebooks);
}

void read_seanet(const NetworkConfig& json, EncodecConfig& config) {
  config.dimension = json.count_or("dimension", config.dimension);
  config.n_filters = json.count_or("n_filters", config.n_filters);
  if (json.has("ratios")) config.ratios = json.counts("ratios");
  config.n_residual_layers = json.count_or("n_residual_layers", config.n_residual_layers, 0);
  config.kernel_size = json.count_or("kernel_size", config.kernel_size);
  config.last_kernel_size = json.count_or("last_kernel_size", config.last_kernel_size);
  config.residual_kernel_size = json.count_or("residual_kernel_size", config.residual_kernel_size);
  config.dilation_base = json.count_or("dilation_base", config.dilation_base);
  config.compress = json.count_or("compress", config.compress);
  config.lstm = json.count_or("lstm", config.lstm, 0);
  config.true_skip = json.flag("true_skip", config.true_skip);
  json.expect(json.text("activation", "ELU") == "ELU", "expected seanet.activation ELU, got ", json.text("activation", ""));
  json.expect(json.text("pad_mode", "reflect") == "reflect", "expected seanet.pad_mode reflect, got ",
              json.text("pad_mode", ""));
  json.expect(json.number("trim_right_ratio", 1) == 1, "expected seanet.trim_right_ratio 1, got ",
              json.number("trim_right_ratio", 1));
  json.expect(!json.has("final_activation"), "expected no seanet.final_activation");
}

}  // namespace

EncodecConfig EncodecConfig::parse(const std::string& text) {
  const NetworkConfig json("encodec", text);
  EncodecConfig config;
  config.sample_rate = json.count_or("sample_rate", config.sample_rate);
  config.channels = json.count_or("channels", config.channels);
  config.causal = json.flag("causal", config.causal);
  const std::string norm = json.text("model_norm", "weight_norm");
  json.expect(norm == "weight_norm" || norm == "time_group_norm" || norm == "none",
              "expected model_norm weight_norm, time_group_norm or none, got ", norm);
  config.time_group_norm = norm == "time_group_norm";
  config.audio_normalize = json.flag("audio_normalize", config.audio_normalize);
  if (json.has("segment")) config.segment = json.number("segment", 0);
  config.overlap = json.number("overlap", config.overlap);
  if (json.has("seanet")) read_seanet(json.object("seanet"), config);
  const bool has_quantizer = json.has("quantizer");
  if (has_quantizer) {
    const NetworkConfig quantizer = json.object("quantizer");
    config.bins = quantizer.count_or("bins", config.bins);
    const std::int64_t dimension = quantizer.count_or("dimension", config.dimension);
    json.expect(dimension == config.dimension, "expected quantizer.dimension to be seanet.dimension=", config.dimension,
                ", got ", dimension);
  }
  if (has_quantizer && json.object("quantizer").has("n_q"))
    config.n_q = json.object("quantizer").count("n_q");
  else if (json.has("target_bandwidths"))
    config.n_q = codebooks_of(json, config);
  networks::check_encodec(config);
  return config;
}

std::int64_t EncodecConfig::hop_length() const {
  return std::accumulate(ratios.begin(), ratios.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t EncodecConfig::codebooks_for(double bandwidth) const {
  const double bits = std::log2(static_cast<double>(bins)) * static_cast<double>(frame_rate(*this));
  const double wanted = std::floor(bandwidth * 1000 / bits);
  return static_cast<std::int64_t>(std::clamp(wanted, 1.0, static_cast<double>(n_q)));
}

std::int64_t EncodecConfig::segment_length() const {
  if (!segment) return 0;
  const double samples = *segment * static_cast<double>(sample_rate);
  return samples < 0x1p53 ? static_cast<std::int64_t>(samples) : std::numeric_limits<std::int64_t>::max() / 4;
}

std::int64_t EncodecConfig::segment_stride() const {
  if (!segment) return 0;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>((1 - overlap) * static_cast<double>(segment_length())));
}

std::int64_t EncodecConfig::segment_frames() const { return (segment_length() + hop_length() - 1) / hop_length(); }

}  // namespace polyphase
