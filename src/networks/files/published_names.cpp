#include "networks/files/published_names.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_set>
#include <vector>

#include "ops/length.hpp"
#include "ops/norm.hpp"

namespace polyphase {
namespace {

/// A name's beginning and what takes its place. In `from`, # is a number and $ the last number of its list. In `to`, {1} is the
/// second number of `from`, {1+1} one more, {n+1} one more than the length of the list that the name's part has ("decoder").
struct NameRule {
  std::string_view from;
  std::string_view to;
};

// transformers@15ea02a:src/transformers/models/dac/{modeling_dac,convert_dac_checkpoint}.py
constexpr NameRule kDacNames[] = {
    {"decoder.conv1", "decoder.model.0"},
    {"decoder.block.#.snake1", "decoder.model.{0+1}.block.0"},
    {"decoder.block.#.conv_t1", "decoder.model.{0+1}.block.1"},
    {"decoder.block.#.res_unit#.snake1", "decoder.model.{0+1}.block.{1+1}.block.0"},
    {"decoder.block.#.res_unit#.conv1", "decoder.model.{0+1}.block.{1+1}.block.1"},
    {"decoder.block.#.res_unit#.snake2", "decoder.model.{0+1}.block.{1+1}.block.2"},
    {"decoder.block.#.res_unit#.conv2", "decoder.model.{0+1}.block.{1+1}.block.3"},
    {"decoder.snake1", "decoder.model.{n+1}"},
    {"decoder.conv2", "decoder.model.{n+2}"},
    {"encoder.conv1", "encoder.block.0"},
    {"encoder.block.#.res_unit#.snake1", "encoder.block.{0+1}.block.{1-1}.block.0"},
    {"encoder.block.#.res_unit#.conv1", "encoder.block.{0+1}.block.{1-1}.block.1"},
    {"encoder.block.#.res_unit#.snake2", "encoder.block.{0+1}.block.{1-1}.block.2"},
    {"encoder.block.#.res_unit#.conv2", "encoder.block.{0+1}.block.{1-1}.block.3"},
    {"encoder.block.#.snake1", "encoder.block.{0+1}.block.3"},
    {"encoder.block.#.conv1", "encoder.block.{0+1}.block.4"},
    {"encoder.snake1", "encoder.block.{n+1}"},
    {"encoder.conv2", "encoder.block.{n+2}"},
};

// diffusers@11bf2cf:src/diffusers/models/autoencoders/autoencoder_oobleck.py
constexpr NameRule kOobleck[] = {
    {"decoder.conv1", "decoder.layers.0"},
    {"decoder.block.#.snake1", "decoder.layers.{0+1}.layers.0"},
    {"decoder.block.#.conv_t1", "decoder.layers.{0+1}.layers.1"},
    {"decoder.block.#.res_unit#.snake1", "decoder.layers.{0+1}.layers.{1+1}.layers.0"},
    {"decoder.block.#.res_unit#.conv1", "decoder.layers.{0+1}.layers.{1+1}.layers.1"},
    {"decoder.block.#.res_unit#.snake2", "decoder.layers.{0+1}.layers.{1+1}.layers.2"},
    {"decoder.block.#.res_unit#.conv2", "decoder.layers.{0+1}.layers.{1+1}.layers.3"},
    {"decoder.snake1", "decoder.layers.{n+1}"},
    {"decoder.conv2", "decoder.layers.{n+2}"},
};

// transformers@01da412:src/transformers/models/encodec/convert_encodec_checkpoint_to_pytorch.py
constexpr NameRule kEncodecNames[] = {
    {"quantizer.layers.#.codebook", "quantizer.vq.layers.{0}._codebook"},
    {"decoder.layers.0.conv", "decoder.model.0.conv.conv"},
    {"decoder.layers.0.norm", "decoder.model.0.conv.norm"},
    {"decoder.layers.$.conv", "decoder.model.{0}.conv.conv"},
    {"decoder.layers.$.norm", "decoder.model.{0}.conv.norm"},
    {"decoder.layers.#.conv", "decoder.model.{0}.convtr.convtr"},
    {"decoder.layers.#.norm", "decoder.model.{0}.convtr.norm"},
    {"decoder.layers.#.lstm", "decoder.model.{0}.lstm"},
    {"decoder.layers.#.block.#.conv", "decoder.model.{0}.block.{1}.conv.conv"},
    {"decoder.layers.#.block.#.norm", "decoder.model.{0}.block.{1}.conv.norm"},
    {"decoder.layers.#.shortcut.conv", "decoder.model.{0}.shortcut.conv.conv"},
    {"decoder.layers.#.shortcut.norm", "decoder.model.{0}.shortcut.conv.norm"},
    {"encoder.layers.#.conv", "encoder.model.{0}.conv.conv"},
    {"encoder.layers.#.norm", "encoder.model.{0}.conv.norm"},
    {"encoder.layers.#.lstm", "encoder.model.{0}.lstm"},
    {"encoder.layers.#.block.#.conv", "encoder.model.{0}.block.{1}.conv.conv"},
    {"encoder.layers.#.block.#.norm", "encoder.model.{0}.block.{1}.conv.norm"},
    {"encoder.layers.#.shortcut.conv", "encoder.model.{0}.shortcut.conv.conv"},
    {"encoder.layers.#.shortcut.norm", "encoder.model.{0}.shortcut.conv.norm"},
};

// transformers@15ea02a:src/transformers/models/mimi/convert_mimi_checkpoint_to_pytorch.py
constexpr NameRule kMimiNames[] = {
    {"quantizer.semantic_residual_vector_quantizer.layers.#.codebook.embed_sum",
     "quantizer.rvq_first.vq.layers.{0}._codebook.embedding_sum"},
    {"quantizer.semantic_residual_vector_quantizer.layers.#.codebook.cluster_usage",
     "quantizer.rvq_first.vq.layers.{0}._codebook.cluster_usage"},
    {"quantizer.semantic_residual_vector_quantizer.layers.#.codebook.initialized",
     "quantizer.rvq_first.vq.layers.{0}._codebook._initialized"},
    {"quantizer.semantic_residual_vector_quantizer", "quantizer.rvq_first"},
    {"quantizer.acoustic_residual_vector_quantizer.layers.#.codebook.embed_sum",
     "quantizer.rvq_rest.vq.layers.{0}._codebook.embedding_sum"},
    {"quantizer.acoustic_residual_vector_quantizer.layers.#.codebook.cluster_usage",
     "quantizer.rvq_rest.vq.layers.{0}._codebook.cluster_usage"},
    {"quantizer.acoustic_residual_vector_quantizer.layers.#.codebook.initialized",
     "quantizer.rvq_rest.vq.layers.{0}._codebook._initialized"},
    {"quantizer.acoustic_residual_vector_quantizer", "quantizer.rvq_rest"},
    {"upsample.conv", "upsample.convtr.convtr.convtr"},
    {"downsample.conv", "downsample.conv.conv.conv"},
    {"decoder.layers.0.conv", "decoder.model.0.conv.conv"},
    {"decoder.layers.$.conv", "decoder.model.{0}.conv.conv"},
    {"decoder.layers.#.conv", "decoder.model.{0}.convtr.convtr"},
    {"decoder.layers.#.block.#.conv", "decoder.model.{0}.block.{1}.conv.conv"},
    {"encoder.layers.#.conv", "encoder.model.{0}.conv.conv"},
    {"encoder.layers.#.block.#.conv", "encoder.model.{0}.block.{1}.conv.conv"},
    {"decoder_transformer.layers.#.input_layernorm", "decoder_transformer.transformer.layers.{0}.norm1"},
    {"decoder_transformer.layers.#.post_attention_layernorm", "decoder_transformer.transformer.layers.{0}.norm2"},
    {"decoder_transformer.layers.#.mlp.fc1", "decoder_transformer.transformer.layers.{0}.linear1"},
    {"decoder_transformer.layers.#.mlp.fc2", "decoder_transformer.transformer.layers.{0}.linear2"},
    {"decoder_transformer.layers.#.self_attn.o_proj", "decoder_transformer.transformer.layers.{0}.self_attn.out_projs.0"},
    {"decoder_transformer.layers.#.self_attn_layer_scale", "decoder_transformer.transformer.layers.{0}.layer_scale_1"},
    {"decoder_transformer.layers.#.mlp_layer_scale", "decoder_transformer.transformer.layers.{0}.layer_scale_2"},
    {"decoder_transformer.layers.#.self_attn", "decoder_transformer.transformer.layers.{0}.self_attn"},
};

// transformers@15ea02a:src/transformers/models/speecht5/modeling_speecht5.py
constexpr NameRule kSpeechT5Names[] = {{"upsampler.#", "ups.{0}"}};

/// Names of one library for one network. A name that the original does not have identifies them.
struct Dialect {
  std::string_view network;
  std::string_view sign;
  std::span<const NameRule> rules;
};
constexpr Dialect kDialects[] = {
    {"hifigan", "upsampler.#", kSpeechT5Names},
    {"mimi", "quantizer.semantic_residual_vector_quantizer", kMimiNames},
    {"encodec", "quantizer.layers.#.codebook", kEncodecNames},
    {"oobleck", "decoder.block.#.snake1.beta", kOobleck},
    {"dac", "decoder.block.#.conv_t1", kDacNames},
};

/// A name that only one network's original code has, somewhere in a checkpoint's names. The first that is found counts.
struct Sign {
  std::string_view network;
  std::string_view name;
};
constexpr Sign kSigns[] = {
    {"mimi", "quantizer.rvq_first.vq.layers.0._codebook.cluster_usage"},
    {"qwen3_12hz", "pre_transformer.layers.#"},
    {"encodec", "quantizer.vq.layers.0._codebook"},
    {"snac", "decoder.model.#.block.2.linear"},
    {"dac", "decoder.model.1.block.0.alpha"},
    {"oobleck", "decoder.layers.1.layers.0.beta"},
    {"vocos", "backbone.convnext.0"},
    {"bigvgan", "ups.0.0"},
    {"hifigan", "ups.0"},
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The numbers that # and $ stand for where `text` begins with `pattern` and a dot or nothing follows.
struct Match {
  std::vector<std::int64_t> numbers{};
  std::size_t length = 0;  // of the text that the pattern took
};
std::optional<Match> match(std::string_view pattern, std::string_view text, std::int64_t last) {
  Match found;
  std::size_t at = 0;
  for (const char symbol : pattern) {
    if (symbol == '#' || symbol == '$') {
      std::int64_t number = 0;
      const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
      if (error != std::errc() || number < 0 || !is_digit(text[at]) || (symbol == '$' && number != last)) return std::nullopt;
      at = static_cast<std::size_t>(end - text.data());
      found.numbers.push_back(number);
    } else if (at < text.size() && text[at] == symbol) {
      ++at;
    } else {
      return std::nullopt;
    }
  }
  if (at < text.size() && text[at] != '.') return std::nullopt;
  found.length = at;
  return found;
}

/// `to` with its numbers filled in.
std::string filled(std::string_view to, const Match& found, std::int64_t count) {
  std::string text;
  while (!to.empty()) {
    const std::size_t open = std::min(to.find('{'), to.size());
    text += to.substr(0, open);
    to.remove_prefix(open);
    if (to.empty()) break;
    const std::int64_t base = to[1] == 'n' ? count : found.numbers[static_cast<std::size_t>(to[1] - '0')];
    const std::int64_t more = to[2] == '}' ? 0 : (to[2] == '+' ? 1 : -1) * (to[3] - '0');
    text += std::to_string(base + more);
    to.remove_prefix(to.find('}') + 1);
  }
  return text;
}

/// The highest number after each "decoder.block.", "encoder.layers.", ... by the first word.
std::map<std::string, std::int64_t, std::less<>> last_of_lists(const NamedTensors& tensors) {
  std::map<std::string, std::int64_t, std::less<>> last;
  for (const auto& [name, tensor] : tensors)
    for (const std::string_view list : {".block.", ".layers."}) {
      const std::string_view part = std::string_view(name).substr(0, name.find('.'));
      const std::optional<Match> found = match(concat(part, list, "#"), name, 0);
      if (found) last[std::string(part)] = std::max(last[std::string(part)], found->numbers.front());
    }
  return last;
}

const Dialect* dialect_of(const NamedTensors& tensors) {
  for (const Dialect& dialect : kDialects)
    for (const auto& [name, tensor] : tensors)
      if (match(dialect.sign, name, 0)) return &dialect;
  return nullptr;
}

std::string renamed(const Dialect& dialect, const std::string& name, std::int64_t last) {
  for (const NameRule& rule : dialect.rules)
    if (const std::optional<Match> found = match(rule.from, name, last))
      return filled(rule.to, *found, last + 1) + name.substr(found->length);
  return name;
}

/// Rows of a projection of queries or keys whose heads rotate halves, in the order in which they rotate neighbours.
Tensor interleaved(const Tensor& weight, std::int64_t head_rows) {
  const std::int64_t rows = weight.size(0), columns = weight.size(1);
  return weight.reshape({rows / head_rows, 2, head_rows / 2, columns}).transpose(1, 2).reshape({rows, columns});
}

constexpr std::int64_t kMimiHeadRows = 64;  // MimiConfig.head_dim

/// transformers keeps Mimi's three projections apart, its queries and keys for a rotation of halves.
NamedTensors with_joined_attention(const NamedTensors& tensors) {
  std::map<std::string, std::map<char, Tensor>> parts;  // by layer, then q, k, v
  NamedTensors result;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t at = name.rfind(".self_attn.");
    const std::string_view rest = at == name.npos ? std::string_view() : std::string_view(name).substr(at + 11);
    const bool is_part = rest == "q_proj.weight" || rest == "k_proj.weight" || rest == "v_proj.weight";
    if (!is_part) {
      result.emplace_back(name, tensor);
    } else {
      parts[name.substr(0, at + 11)].emplace(rest.front(), tensor);
    }
  }
  for (const auto& [layer, tensor] : parts) {
    const auto fits = [](const auto& part) { return part.second.rank() == 2 && part.second.size(0) % kMimiHeadRows == 0; };
    require<FormatError>(tensor.size() == 3 && std::all_of(tensor.begin(), tensor.end(), fits), layer,
                         "q_proj.weight: expected q_proj, k_proj and v_proj with a multiple of ", kMimiHeadRows, " rows each");
    result.emplace_back(
        layer + "in_projs.0.weight",
        cat({interleaved(tensor.at('q'), kMimiHeadRows), interleaved(tensor.at('k'), kMimiHeadRows), tensor.at('v')}, 0));
  }
  return result;
}

/// The name of the tensor that a weight norm's parts make: "a.weight_g", "a.weight_v" and "a.parametrizations.weight.original0"
/// give "a.weight".
std::string folded_name(std::string_view name) {
  for (const std::string_view half : {"_g", "_v"})
    if (name.ends_with(concat(".weight", half))) return std::string(name.substr(0, name.size() - half.size()));
  constexpr std::string_view kMarker = ".parametrizations.weight.original";
  const std::size_t at = name.rfind(kMarker);
  return at != name.npos && at + kMarker.size() + 1 == name.size() ? concat(name.substr(0, at), ".weight") : std::string(name);
}

}  // namespace

std::string network_of(const NamedTensors& tensors) {
  if (const Dialect* dialect = dialect_of(tensors)) return std::string(dialect->network);
  for (const Sign& sign : kSigns)
    for (const auto& [name, tensor] : tensors)
      for (std::size_t at = 0; at != std::string::npos; at = name.find('.', at)) {
        if (at != 0) ++at;
        if (match(sign.name, std::string_view(name).substr(at), 0)) return std::string(sign.network);
      }
  return "";
}

NamedTensors with_original_names(std::string_view network, const NamedTensors& tensors) {
  const Dialect* const dialect = dialect_of(tensors);
  if (dialect == nullptr || dialect->network != network) return tensors;
  const auto last = last_of_lists(tensors);
  NamedTensors result;
  for (const auto& [name, tensor] : tensors) {
    const auto found = last.find(name.substr(0, name.find('.')));
    const std::string own = renamed(*dialect, name, found == last.end() ? -1 : found->second);
    const bool is_snake = own.ends_with(".alpha") || own.ends_with(".beta");
    const bool is_row = is_snake && tensor.rank() == 3 && tensor.size(0) == 1 && tensor.size(2) == 1;
    result.emplace_back(own, is_row && network == "oobleck" ? tensor.reshape({tensor.size(1)}) : tensor);
  }
  return network == "mimi" ? with_joined_attention(result) : result;
}

NamedTensors without_prefix(const NamedTensors& tensors, const NamedTensors& own) {
  std::unordered_set<std::string> names;
  for (const auto& [name, tensor] : own) names.insert(name);
  std::map<std::string, std::size_t> found;  // names of the network after each prefix
  for (const auto& [name, tensor] : tensors) {
    const std::string folded = folded_name(name);
    for (std::size_t at = 0; at != std::string::npos; at = folded.find('.', at)) {
      if (at != 0) ++at;
      if (names.contains(folded.substr(at))) ++found[folded.substr(0, at)];
    }
  }
  std::string prefix;
  std::size_t most = 0;
  for (const auto& [candidate, count] : found)
    if (count > most || (count == most && candidate.size() < prefix.size())) {
      prefix = candidate;
      most = count;
    }
  NamedTensors result;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(prefix)) result.emplace_back(name.substr(prefix.size()), tensor);
  return result;
}

NamedTensors with_folded_weights(const NamedTensors& tensors) {
  struct Halves {
    const Tensor* g = nullptr;
    const Tensor* v = nullptr;
  };
  std::map<std::string, Halves> halves;
  for (const auto& [name, tensor] : tensors)
    if (const std::string folded = folded_name(name); folded != name) {
      const bool is_g = name.ends_with("_g") || name.ends_with("original0");
      (is_g ? halves[folded].g : halves[folded].v) = &tensor;
    }
  NamedTensors result;
  for (const auto& [name, tensor] : tensors) {
    const std::string folded = folded_name(name);
    const auto pair = halves.find(folded);
    const bool is_whole = pair == halves.end() || pair->second.g == nullptr || pair->second.v == nullptr;
    if (is_whole) {
      result.emplace_back(name, tensor);
    } else if (&tensor == pair->second.v) {  // in its place
      const Tensor weight = weight_norm_of(tensor.to(DType::f64), pair->second.g->to(DType::f64));
      result.emplace_back(folded, weight.to(tensor.dtype()));
    }
  }
  return result;
}

}  // namespace polyphase
