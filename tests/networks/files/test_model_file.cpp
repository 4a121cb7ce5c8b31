#include "networks/files/model_file.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "autograd/no_grad.hpp"
#include "io/safetensors.hpp"
#include "layers/weight_norm.hpp"
#include "networks/hifigan.hpp"
#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr const char* kConfig = R"({"resblock": "1", "upsample_rates": [4, 2], "upsample_kernel_sizes": [8, 4],
  "upsample_initial_channel": 8, "resblock_kernel_sizes": [3, 5], "resblock_dilation_sizes": [[1, 3], [1]], "num_mels": 6, "sampling_rate": 8000})";

HifiGan random_generator(std::uint64_t seed = 4) {
  manual_seed(seed);
  HifiGan net(HifiGanConfig::parse(kConfig));
  net.eval();
  return net;
}

/// Its state as training code saves it: weight norm, the prefix "generator.", a discriminator's tensor first.
NamedTensors checkpoint_of(HifiGan& net) {
  weight_norm(net);
  NamedTensors state{{"mpd.0.weight", Tensor::ones({1})}};
  for (const auto& [name, tensor] : net.state_dict()) state.emplace_back("generator." + name, tensor.clone());
  return state;
}

std::string error_for(const std::string& path, const ModelOptions& options = {}) {
  return error_of<FormatError>([&] { return load_model(path, options); });
}

}  // namespace

TEST_CASE("a checkpoint and the config.json next to it give the network") {
  const TemporaryDirectory directory;
  HifiGan source = random_generator();
  const Tensor mel = random_f64({1, 6, 9}).to(DType::f32);
  const NoGradGuard no_grad;
  const Tensor expected = source(mel);
  save_safetensors(directory.file("g_1"), checkpoint_of(source));
  CHECK(error_for(directory.file("g_1")).find("g_1: expected the network's configuration") != std::string::npos);
  write_bytes(directory.file("config.json"), kConfig);
  const Model model = load_model(directory.file("g_1"));
  CHECK(model.network == "hifigan");
  CHECK(model.net->format().sampling_rate == 8000);
  CHECK(!model.net->is_training());
  CHECK(max_difference((*model.net)(mel), expected) < kFloatRounding);

  static_cast<void>(convert_model(directory.file("g_1"), directory.file("converted")));
  save_model(directory.file("saved"), model);
  std::filesystem::remove(directory.file("config.json"));
  for (const char* name : {"converted", "saved"}) {
    const Model again = load_model(directory.file(name));
    CHECK(max_difference((*again.net)(mel), (*model.net)(mel)) == 0);
    CHECK(load_safetensors(directory.file(name)).find("conv_pre.weight") != nullptr);
  }
}

TEST_CASE("the decoder of a VITS voice has no bias in its last layer, and no weight norm in its first") {
  const TemporaryDirectory directory;
  HifiGanConfig config = HifiGanConfig::parse(kConfig);
  config.final_bias = false;
  HifiGan source(config);
  NamedTensors state{{"enc_p.emb.weight", Tensor::ones({2})}};
  for (const auto& [name, tensor] : source.state_dict()) state.emplace_back("dec." + name, tensor);
  save_safetensors(directory.file("voice"), state);
  const Model model = load_model(directory.file("voice"), {.config = kConfig});
  CHECK(model.config.find("\"final_bias\":false") != std::string::npos);
  CHECK(model.net->parameter_count() == source.parameter_count());
}

TEST_CASE("tensors that do not go with the configuration are listed by name, and so are numbers that are not finite") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("g");
  HifiGan source = random_generator();
  NamedTensors state = source.state_dict();
  for (auto& [name, tensor] : state) tensor = tensor.clone();
  const ModelOptions options{.config = kConfig};

  NamedTensors broken = state;
  broken.erase(broken.begin());
  for (auto& [name, tensor] : broken)
    if (name == "conv_post.weight") tensor = Tensor::ones({1, 2, 9});
  broken.emplace_back("ups.7.weight", Tensor::ones({1}));
  save_safetensors(path, broken);
  const std::string error = error_for(path, options);
  for (const char* name : {"conv_pre.weight", "conv_post.weight", "ups.7.weight", "g: "})
    CHECK(error.find(name) != std::string::npos);

  broken = state;
  broken[3].second.fill_(std::numeric_limits<double>::quiet_NaN());
  save_safetensors(path, broken);
  CHECK(error_for(path, options).find("expected finite numbers, got others in " + broken[3].first) != std::string::npos);

  save_safetensors(path, {{"a", Tensor::ones({1})}});
  CHECK(error_for(path, options).find("expected the tensors of one of ") != std::string::npos);
  CHECK(error_for(path, {.network = "nonesuch", .config = kConfig}).find("got nonesuch") != std::string::npos);
  save_safetensors(path, state);
  CHECK(error_for(path, {.config = "{"}).starts_with("config: --config: "));
  CHECK(error_for(path, {.config = "{}"}) == "hifigan: config: expected resblock");
  CHECK(error_for(path, {.config = "[]"}).find("expected a JSON object") != std::string::npos);
}
