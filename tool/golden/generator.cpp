// Generators: a published network with given weights, from mel spectrogram to audio.

#include <algorithm>

#include "autograd/no_grad.hpp"
#include "golden/compare.hpp"
#include "golden/forms.hpp"
#include "golden/hifigan.hpp"
#include "golden/tolerance.hpp"
#include "layers/weight_norm.hpp"

namespace polyphase::golden {
namespace {

// Newer PyTorch writes the two parts of a normalised weight under other names.
std::string with_classic_name(std::string name) {
  for (const auto& [newer, classic] : {std::pair<std::string, std::string>{".parametrizations.weight.original0", ".weight_g"},
                                       {".parametrizations.weight.original1", ".weight_v"}}) {
    if (name.ends_with(newer)) return name.substr(0, name.size() - newer.size()) + classic;
  }
  return name;
}

double tolerance_for(DType dtype, Precision precision) {
  if (dtype == DType::f64) return kGeneratorF64;
  return precision == Precision::tf32 ? kGeneratorTf32 : kGeneratorF32;
}

}  // namespace

bool is_generator(const File& file) { return file.content.metadata.contains("config"); }

void check_generator(const File& file, const Options& options, const Report& report) {
  const NoGradGuard no_grad;
  const DType dtype = network_dtype(options);
  HifiganGenerator generator(parse_hifigan_config(file.metadata("config")));
  NamedTensors state = file.under("state_dict/");
  for (auto& [name, tensor] : state) name = with_classic_name(std::move(name));
  const auto is_normalised = [](const auto& entry) { return entry.first.ends_with(".weight_g"); };
  if (std::any_of(state.begin(), state.end(), is_normalised)) weight_norm(generator);
  generator.to(dtype);
  generator.load_state_dict(state);
  generator.to(options.device);

  const Tensor audio = generator(file.tensor("mel").to(dtype).to(options.device));
  const Tensor& expected = file.tensor("audio");
  Result result{.name = "audio", .what = concat("HiFi-GAN generator ", expected.shape(), " ", dtype)};
  keep_worse(result, "audio", relative_error(as_doubles(audio), as_doubles(expected)), tolerance_for(dtype, options.precision));
  report(result);
}

}  // namespace polyphase::golden
