#include "names.hpp"

#include <array>

#include "tensor/error.hpp"

namespace polyphase::python {
namespace {

template <class T>
using Names = std::span<const std::pair<std::string_view, T>>;

constexpr std::array<std::pair<std::string_view, DType>, 5> kDTypes{
    {{"f32", DType::f32}, {"f64", DType::f64}, {"f16", DType::f16}, {"bf16", DType::bf16}, {"i64", DType::i64}}};
constexpr std::array<std::pair<std::string_view, Activation>, 5> kActivations{{{"none", Activation::none},
                                                                               {"relu", Activation::relu},
                                                                               {"leaky_relu", Activation::leaky_relu},
                                                                               {"tanh", Activation::tanh},
                                                                               {"snake", Activation::snake}}};
constexpr std::array<std::pair<std::string_view, PaddingMode>, 3> kPaddingModes{
    {{"zeros", PaddingMode::zeros}, {"reflect", PaddingMode::reflect}, {"replicate", PaddingMode::replicate}}};
constexpr std::array<std::pair<std::string_view, Reduction>, 3> kReductions{
    {{"mean", Reduction::mean}, {"sum", Reduction::sum}, {"none", Reduction::none}}};
constexpr std::array<std::pair<std::string_view, UpsampleMode>, 2> kUpsampleModes{
    {{"nearest", UpsampleMode::nearest}, {"linear", UpsampleMode::linear}}};
constexpr std::array<std::pair<std::string_view, IstftPadding>, 2> kIstftPaddings{
    {{"center", IstftPadding::center}, {"same", IstftPadding::same}}};
constexpr std::array<std::pair<std::string_view, MelScale>, 2> kMelScales{
    {{"slaney", MelScale::slaney}, {"htk", MelScale::htk}}};
constexpr std::array<std::pair<std::string_view, NetworkInput>, 4> kNetworkInputs{{{"mel", NetworkInput::mel},
                                                                                   {"latent", NetworkInput::latent},
                                                                                   {"codes", NetworkInput::codes},
                                                                                   {"audio", NetworkInput::audio}}};

/// Throws E "expected WHAT a, b or c, got 'x'".
template <class E, class T>
T find(const char* what, Names<T> names, std::string_view name) {
  for (const auto& [known, value] : names)
    if (name == known) return value;
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i)
    list += concat(i == 0 ? "" : i + 1 < names.size() ? ", " : " or ", names[i].first);
  throw E(concat("expected ", what, " ", list, ", got '", name, "'"));
}

template <class T>
std::string name_in(Names<T> names, T value) {
  for (const auto& [name, known] : names)
    if (value == known) return std::string(name);
  return {};
}

}  // namespace

#define POLYPHASE_NAMES(T, what, names, E) \
  template <>                              \
  T parse(std::string_view name) {         \
    return find<E, T>(what, names, name);  \
  }                                        \
  template <>                              \
  std::string to_name(T value) {           \
    return name_in<T>(names, value);       \
  }
POLYPHASE_NAMES(DType, "a dtype", kDTypes, DTypeError)
POLYPHASE_NAMES(Activation, "an activation", kActivations, Error)
POLYPHASE_NAMES(PaddingMode, "a padding mode", kPaddingModes, Error)
POLYPHASE_NAMES(Reduction, "a reduction", kReductions, Error)
POLYPHASE_NAMES(UpsampleMode, "a mode", kUpsampleModes, Error)
POLYPHASE_NAMES(IstftPadding, "a padding", kIstftPaddings, Error)
POLYPHASE_NAMES(MelScale, "a scale", kMelScales, Error)
POLYPHASE_NAMES(NetworkInput, "an input", kNetworkInputs, Error)
#undef POLYPHASE_NAMES

template <>
Device parse(std::string_view name) {
  return Device::parse(name);
}
template <>
std::string to_name(Device device) {
  return to_string(device);
}
template <>
Precision parse(std::string_view name) {
  return parse_precision(name);
}
template <>
std::string to_name(Precision precision) {
  return std::string(name_of(precision));
}
template <>
Algorithm parse(std::string_view name) {
  return parse_algorithm(name);
}
template <>
std::string to_name(Algorithm algorithm) {
  return std::string(name_of(algorithm));
}

}  // namespace polyphase::python
