#include "io/checkpoint.hpp"

#include <array>
#include <charconv>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "io/json_reason.hpp"
#include "io/safetensors.hpp"
#include "io/safetensors_header.hpp"
#include "tensor/error.hpp"

namespace polyphase {
namespace {

using Json = nlohmann::json;

constexpr const char* kMetadataKey = "polyphase_checkpoint";
constexpr int kVersion = 1;
constexpr std::string_view kModelPrefix = "model/";
constexpr std::string_view kStatePrefix = "state/";

// The shortest decimal text that reads back as the same bits; unlike a JSON number it can also be inf or nan.
std::string text_of(double value) {
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), result.ptr};
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  Checkpoint read() {
    SafetensorsFile file = load_safetensors(path_);
    const auto found = file.metadata.find(kMetadataKey);
    if (found == file.metadata.end()) {
      fail(concat("not a checkpoint: no ", kMetadataKey, " in the metadata; load_safetensors reads plain weights"));
    }
    try {
      read_json(parse(found->second));
    } catch (const nlohmann::json::exception& error) {
      fail(concat("malformed ", kMetadataKey, " in the metadata: ", json_reason(error)));
    }
    for (auto& [name, tensor] : file.tensors) place(name, std::move(tensor));
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw FormatError(concat("load_checkpoint: ", path_, ": ", what)); }

  Json parse(const std::string& text) const {
    constexpr int kDeepest = 5;
    return Json::parse(text, [&](int depth, Json::parse_event_t, Json&) {
      if (depth > kDeepest) fail(concat("malformed ", kMetadataKey, " in the metadata: nested too deep"));
      return true;
    });
  }

  // The integer of that name. JSON's own conversion would truncate 2.7, wrap -1 and accept true as 1.
  template <class T>
  T whole(const Json& json, const char* name) const {
    const Json& value = json.at(name);
    const bool fits = value.is_number_unsigned() ? std::in_range<T>(value.get<std::uint64_t>())
                                                 : value.is_number_integer() && std::in_range<T>(value.get<std::int64_t>());
    if (!fits) {
      fail(concat("malformed ", kMetadataKey, " in the metadata: expected a whole number ",
                  std::is_unsigned_v<T> ? "of at least 0 for " : "for ", name, ", got ", io::in_quotes(value.dump())));
    }
    return value.get<T>();
  }

  double number(const Json& json) const {
    const std::string& text = json.get_ref<const std::string&>();
    double value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc{} || result.ptr != text.data() + text.size()) {
      fail(concat("malformed ", kMetadataKey, " in the metadata: expected a number, got ", io::in_quotes(text)));
    }
    return value;
  }

  void read_json(const Json& json) {
    const auto version = whole<std::int64_t>(json, "version");
    if (version != kVersion) fail(concat("checkpoint version ", version, ", this library reads version ", kVersion));
    result_.step = whole<std::int64_t>(json, "step");
    for (const auto& [name, value] : json.at("numbers").items()) result_.numbers[name] = number(value);
    for (const auto& [name, value] : json.at("texts").items()) result_.texts[name] = value.get<std::string>();
    for (const auto& [name, value] : json.at("generators").items()) {
      result_.generators[name] = {whole<std::uint64_t>(value, "seed"), whole<std::uint64_t>(value, "offset")};
    }
    for (const auto& [name, value] : json.at("states").items()) {
      OptimizerState& state = result_.states[name];
      for (const Json& pair : value) state.numbers.emplace_back(pair.at(0).get<std::string>(), number(pair.at(1)));
    }
  }

  void place(const std::string& name, Tensor tensor) {
    if (name.starts_with(kModelPrefix)) {
      result_.model.emplace_back(name.substr(kModelPrefix.size()), std::move(tensor));
      return;
    }
    const std::size_t slash = name.find('/', kStatePrefix.size());
    const bool is_state = name.starts_with(kStatePrefix) && slash != std::string::npos;
    const auto state =
        is_state ? result_.states.find(name.substr(kStatePrefix.size(), slash - kStatePrefix.size())) : result_.states.end();
    if (state == result_.states.end()) fail(concat("tensor ", io::in_quotes(name), " belongs to nothing in the checkpoint"));
    state->second.tensors.emplace_back(name.substr(slash + 1), std::move(tensor));
  }

  const std::string& path_;
  Checkpoint result_;
};

template <class Value>
const Value& entry(const std::map<std::string, Value>& map, const std::string& name, const char* kind) {
  const auto found = map.find(name);
  require<Error>(found != map.end(), "checkpoint: no ", kind, " ", io::in_quotes(name), " among its ", map.size());
  return found->second;
}

Json describe(const Checkpoint& checkpoint) {
  Json json = {{"version", kVersion},       {"step", checkpoint.step},      {"numbers", Json::object()},
               {"texts", checkpoint.texts}, {"generators", Json::object()}, {"states", Json::object()}};
  for (const auto& [name, value] : checkpoint.numbers) json["numbers"][name] = text_of(value);
  for (const auto& [name, state] : checkpoint.generators) {
    json["generators"][name] = {{"seed", state.seed}, {"offset", state.offset}};
  }
  for (const auto& [name, state] : checkpoint.states) {
    Json& numbers = json["states"][name] = Json::array();
    for (const auto& [key, value] : state.numbers) numbers.push_back(Json::array({key, text_of(value)}));
  }
  return json;
}

}  // namespace

const OptimizerState& Checkpoint::state(const std::string& name) const { return entry(states, name, "state"); }
const GeneratorState& Checkpoint::generator(const std::string& name) const { return entry(generators, name, "generator"); }
double Checkpoint::number(const std::string& name) const { return entry(numbers, name, "number"); }
const std::string& Checkpoint::text(const std::string& name) const { return entry(texts, name, "text"); }

void save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  NamedTensors tensors;
  for (const auto& [name, tensor] : checkpoint.model) tensors.emplace_back(concat(kModelPrefix, name), tensor);
  for (const auto& [owner, state] : checkpoint.states) {
    require<FormatError>(owner.find('/') == std::string::npos, "save_checkpoint: ", path, ": the name of state ",
                         io::in_quotes(owner), " contains '/'");
    for (const auto& [name, tensor] : state.tensors) tensors.emplace_back(concat(kStatePrefix, owner, "/", name), tensor);
  }
  std::string text;
  try {
    text = describe(checkpoint).dump();
  } catch (const nlohmann::json::exception&) {
    throw FormatError(concat("save_checkpoint: ", path, ": a name or text is not valid UTF-8"));
  }
  save_safetensors(path, tensors, {{kMetadataKey, text}});
}

Checkpoint load_checkpoint(const std::string& path) { return Reader(path).read(); }

}  // namespace polyphase
