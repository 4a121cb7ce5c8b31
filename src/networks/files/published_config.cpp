#include "networks/files/published_config.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

#include "io/json_reason.hpp"
#include "io/mapped_file.hpp"

namespace polyphase {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostBytes = std::size_t{1} << 24;

std::string text_of(const std::string& path) {
  const MappedFile file("config", path);
  require<FormatError>(file.size() <= kMostBytes, "config: ", path, ": expected at most ", kMostBytes, " bytes, got ",
                       file.size());
  return {file.data(), file.size()};
}

Json parsed(const std::string& place, const std::string& text) {
  try {
    Json json = Json::parse(text);
    require<FormatError>(json.is_object(), "config: ", place, ": expected a JSON object");
    return json;
  } catch (const Json::exception& error) {
    throw FormatError(concat("config: ", place, ": ", json_reason(error)));
  }
}

bool has_key_ending(const NamedTensors& tensors, std::string_view end) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const auto& entry) {
    const std::string_view name = entry.first;
    return name.ends_with(end) && (name.size() == end.size() || name[name.size() - end.size() - 1] == '.');
  });
}

/// The decoder of Piper's voices; the voice's own JSON does not describe it.
/// rhasspy/piper@c0670df:src/python/piper_train/__main__.py: "high" has resblock 1, the others 2.
Json piper(const NamedTensors& tensors) {
  Json json{{"num_mels", 192}, {"sampling_rate", 22050}, {"final_bias", false}};
  const bool is_high = has_key_ending(tensors, "resblocks.0.convs1.0.weight");
  json["resblock"] = is_high ? "1" : "2";
  json["upsample_initial_channel"] = is_high ? 512 : 256;
  json["upsample_rates"] = is_high ? Json{8, 8, 2, 2} : Json{8, 8, 4};
  json["upsample_kernel_sizes"] = is_high ? Json{16, 16, 4, 4} : Json{16, 16, 8};
  json["resblock_kernel_sizes"] = is_high ? Json{3, 7, 11} : Json{3, 5, 7};
  json["resblock_dilation_sizes"] = is_high ? Json{{1, 3, 5}, {1, 3, 5}, {1, 3, 5}} : Json{{1, 2}, {2, 6}, {3, 12}};
  return json;
}

/// facebookresearch/encodec@0e2d0ae:encodec/model.py, encodec_model_24khz() and encodec_model_48khz().
Json encodec(const NamedTensors& tensors) {
  const bool is_48khz = has_key_ending(tensors, "decoder.model.0.conv.norm.weight");
  return {{"target_bandwidths", is_48khz ? Json{3, 6, 12, 24} : Json{1.5, 3, 6, 12, 24}},
          {"sample_rate", is_48khz ? 48000 : 24000},
          {"channels", is_48khz ? 2 : 1},
          {"causal", !is_48khz},
          {"model_norm", is_48khz ? "time_group_norm" : "weight_norm"},
          {"audio_normalize", is_48khz},
          {"segment", is_48khz ? Json(1.0) : Json()},
          {"overlap", 0.01},
          {"seanet", {{"dimension", 128}, {"n_filters", 32}, {"ratios", {8, 5, 4, 2}}}},
          {"quantizer", {{"dimension", 128}, {"n_q", is_48khz ? 16 : 32}, {"bins", 1024}}}};
}

/// `to` gets the entries of `from` under other names; those that are missing stay missing.
struct KeyName {
  const char* theirs;
  const char* original;
};
template <std::size_t N>
Json with_keys(const Json& from, const KeyName (&names)[N]) {
  Json to = Json::object();
  for (const auto& [theirs, original] : names)
    if (from.contains(theirs)) to[original] = from[theirs];
  return to;
}

// transformers@15ea02a:src/transformers/models/dac/configuration_dac.py
constexpr KeyName kDac[] = {
    {"encoder_hidden_size", "encoder_dim"}, {"downsampling_ratios", "encoder_rates"}, {"hidden_size", "latent_dim"},
    {"decoder_hidden_size", "decoder_dim"}, {"upsampling_ratios", "decoder_rates"},   {"n_codebooks", "n_codebooks"},
    {"codebook_size", "codebook_size"},     {"codebook_dim", "codebook_dim"},         {"sampling_rate", "sample_rate"}};
// .../speecht5/configuration_speecht5.py, SpeechT5HifiGanConfig
constexpr KeyName kSpeechT5[] = {{"model_in_dim", "num_mels"},
                                 {"sampling_rate", "sampling_rate"},
                                 {"upsample_initial_channel", "upsample_initial_channel"},
                                 {"upsample_rates", "upsample_rates"},
                                 {"upsample_kernel_sizes", "upsample_kernel_sizes"},
                                 {"resblock_kernel_sizes", "resblock_kernel_sizes"},
                                 {"resblock_dilation_sizes", "resblock_dilation_sizes"},
                                 {"normalize_before", "normalize_before"}};
// .../encodec/configuration_encodec.py
constexpr KeyName kEncodec[] = {{"target_bandwidths", "target_bandwidths"},
                                {"sampling_rate", "sample_rate"},
                                {"audio_channels", "channels"},
                                {"use_causal_conv", "causal"},
                                {"norm_type", "model_norm"},
                                {"normalize", "audio_normalize"},
                                {"chunk_length_s", "segment"},
                                {"overlap", "overlap"}};
constexpr KeyName kEncodecSeanet[] = {{"hidden_size", "dimension"},
                                      {"num_filters", "n_filters"},
                                      {"upsampling_ratios", "ratios"},
                                      {"num_residual_layers", "n_residual_layers"},
                                      {"kernel_size", "kernel_size"},
                                      {"last_kernel_size", "last_kernel_size"},
                                      {"residual_kernel_size", "residual_kernel_size"},
                                      {"dilation_growth_rate", "dilation_base"},
                                      {"compress", "compress"},
                                      {"num_lstm_layers", "lstm"},
                                      {"pad_mode", "pad_mode"}};
// .../mimi/configuration_mimi.py
constexpr KeyName kMimi[] = {{"sampling_rate", "sample_rate"}, {"audio_channels", "channels"}, {"frame_rate", "frame_rate"}};
constexpr KeyName kMimiQuantizer[] = {{"codebook_dim", "dimension"},
                                      {"num_quantizers", "n_q"},
                                      {"num_semantic_quantizers", "n_q_semantic"},
                                      {"codebook_size", "bins"},
                                      {"hidden_size", "input_dimension"}};
constexpr KeyName kMimiTransformer[] = {{"hidden_size", "d_model"},
                                        {"num_attention_heads", "num_heads"},
                                        {"num_hidden_layers", "num_layers"},
                                        {"intermediate_size", "dim_feedforward"},
                                        {"sliding_window", "context"},
                                        {"rope_theta", "max_period"},
                                        {"layer_scale_initial_scale", "layer_scale"}};

Json speecht5(const Json& theirs) {
  Json json = with_keys(theirs, kSpeechT5);
  json["resblock"] = "1";
  const double slope = theirs.value("leaky_relu_slope", 0.1);
  require<FormatError>(slope == 0.1, "config: expected leaky_relu_slope 0.1, as HiFi-GAN has it, got ", slope);
  return json;
}

/// The number of codebooks is that of the highest bandwidth, in kbit/s.
Json encodec_of_transformers(const Json& theirs) {
  Json json = with_keys(theirs, kEncodec);
  json["seanet"] = with_keys(theirs, kEncodecSeanet);
  json["seanet"]["true_skip"] = !theirs.value("use_conv_shortcut", true);
  std::int64_t hop = 1;
  for (const Json& ratio : theirs.at("upsampling_ratios")) hop *= ratio.get<std::int64_t>();
  double highest = 0;
  for (const Json& bandwidth : theirs.at("target_bandwidths")) highest = std::max(highest, bandwidth.get<double>());
  const auto bins = theirs.at("codebook_size").get<double>();
  const double frames = std::ceil(theirs.at("sampling_rate").get<double>() / static_cast<double>(hop));
  const auto codebooks = static_cast<std::int64_t>(1000 * highest / (frames * std::log2(bins)));
  json["quantizer"] = {
      {"dimension", theirs.contains("codebook_dim") && !theirs["codebook_dim"].is_null() ? theirs["codebook_dim"]
                                                                                         : theirs.at("hidden_size")},
      {"n_q", codebooks},
      {"bins", theirs["codebook_size"]}};
  return json;
}

Json mimi_of_transformers(const Json& theirs) {
  Json json = with_keys(theirs, kMimi);
  json["seanet"] = with_keys(theirs, kEncodecSeanet);
  json["seanet"].erase("lstm");
  json["seanet"]["true_skip"] = !theirs.value("use_conv_shortcut", false);
  json["quantizer"] = with_keys(theirs, kMimiQuantizer);
  json["transformer"] = with_keys(theirs, kMimiTransformer);
  return json;
}

/// Stable Audio's form of diffusers' entries.
Json oobleck_of_diffusers(const Json& theirs) {
  const Json decoder{{"out_channels", theirs.at("audio_channels")},
                     {"channels", theirs.at("decoder_channels")},
                     {"c_mults", theirs.at("channel_multiples")},
                     {"strides", theirs.at("downsampling_ratios")},
                     {"latent_dim", theirs.at("decoder_input_channels")},
                     {"use_snake", true},
                     {"final_tanh", false}};
  return {{"model_type", "autoencoder"},
          {"sample_rate", theirs.at("sampling_rate")},
          {"audio_channels", theirs.at("audio_channels")},
          {"model", {{"decoder", {{"type", "oobleck"}, {"config", decoder}}}, {"io_channels", theirs.at("audio_channels")}}}};
}

/// In the original's form, whatever library wrote it.
Json in_original_form(const std::string& network, const std::string& place, const Json& json) {
  try {
    if (network == "dac" && json.contains("decoder_hidden_size")) return with_keys(json, kDac);
    if (network == "hifigan" && json.contains("model_in_dim")) return speecht5(json);
    if (network == "encodec" && json.contains("num_filters")) return encodec_of_transformers(json);
    if (network == "mimi" && json.contains("num_filters")) return mimi_of_transformers(json);
    if (network == "oobleck" && json.contains("decoder_channels")) return oobleck_of_diffusers(json);
    return json;
  } catch (const Json::exception& error) {
    throw FormatError(concat("config: ", place, ": ", json_reason(error)));
  }
}

/// What the file of weights itself says.
std::optional<Json> inside(const std::string& path, const WeightsFile& weights) {
  if (const auto config = weights.metadata.find("config"); config != weights.metadata.end())
    return parsed(path, config->second);
  const auto plain = weights.metadata.find("plain");
  if (plain == weights.metadata.end()) return std::nullopt;
  Json json = parsed(path, plain->second);
  const Json::json_pointer kwargs("/metadata/kwargs");  // DAC's
  if (json.contains(kwargs) && json[kwargs].is_object()) return json[kwargs];
  return std::nullopt;
}

std::optional<Json> from_folder(const std::string& path) {
  const std::string config = (std::filesystem::path(path).parent_path() / "config.json").string();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(config, ignored)) return std::nullopt;
  return parsed(config, text_of(config));
}

/// VITS and Piper have no weight norm in conv_pre, and no bias in conv_post; HiFi-GAN has both.
bool is_vits(const NamedTensors& tensors) {
  return has_key_ending(tensors, "conv_pre.weight") && !has_key_ending(tensors, "conv_post.bias");
}

}  // namespace

std::string published_config(const std::string& network, const std::string& path, const WeightsFile& weights,
                             const std::string& given) {
  const NamedTensors& tensors = weights.tensors;
  std::optional<Json> found = given.empty() ? inside(path, weights) : parsed("--config", given);
  if (!found) found = from_folder(path);
  if (!found && network == "hifigan" && has_key_ending(tensors, "dec.conv_pre.weight")) found = piper(tensors);
  if (!found && network == "encodec") found = encodec(tensors);
  require<FormatError>(found.has_value(), path,
                       ": expected the network's configuration: --config, or config.json next to the file");
  Json config = in_original_form(network, path, *found);
  if (network == "hifigan" && !config.contains("final_bias") && is_vits(tensors)) config["final_bias"] = false;
  return config.dump();
}

}  // namespace polyphase
