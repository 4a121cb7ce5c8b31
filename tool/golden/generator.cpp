// Generators: a published network with given weights, from mel spectrogram to audio.

#include "autograd/no_grad.hpp"
#include "golden/compare.hpp"
#include "golden/forms.hpp"
#include "golden/tolerance.hpp"
#include "networks/hifigan.hpp"

namespace polyphase::golden {
namespace {

double generator_tolerance(DType dtype, Precision precision) {
  if (dtype == DType::f64) return kGeneratorF64;
  return precision == Precision::tf32 ? kGeneratorTf32 : kGeneratorF32;
}

}  // namespace

bool is_generator(const File& file) { return file.content.metadata.contains("config"); }

void check_generator(const File& file, const Options& options, const Report& report) {
  const NoGradGuard no_grad;
  const DType dtype = network_dtype(options);
  HifiGan generator(HifiGanConfig::parse(file.metadata("config")));
  generator.to(dtype);
  generator.load_published(file.under("state_dict/"));
  generator.to(options.device);

  const Tensor audio = generator(file.tensor("mel").to(dtype).to(options.device));
  const Tensor& expected = file.tensor("audio");
  Result result{.name = "audio", .what = concat("HiFi-GAN generator ", expected.shape(), " ", dtype)};
  keep_worse(result, "audio", relative_error(as_doubles(audio), as_doubles(expected)),
             generator_tolerance(dtype, options.precision));
  report(result);
}

}  // namespace polyphase::golden
