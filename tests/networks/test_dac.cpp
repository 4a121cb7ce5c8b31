#include "networks/dac.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "layers/activations.hpp"
#include "layers/weight_norm.hpp"
#include "ops/activations.hpp"
#include "ops/conv.hpp"
#include "ops/length.hpp"
#include "support/network_checks.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

/// An odd rate, and codebooks of different sizes.
DacConfig small() {
  return {.encoder_dim = 2,
          .encoder_rates = {2, 3},
          .latent_dim = 6,
          .decoder_dim = 8,
          .decoder_rates = {3, 2},
          .n_codebooks = 3,
          .codebook_size = 16,
          .codebook_dim = {4, 3, 5},
          .sample_rate = 24000};
}

std::string error_for(const std::string& json) {
  return error_of<FormatError>([&] { return DacConfig::parse(json); });
}

/// A residual unit under `name`.
Tensor plain_unit(const StateOf& state, const std::string& name, const Tensor& x, std::int64_t dilation) {
  const auto of = [&](const char* key) { return state[concat(name, ".block.", key)]; };
  const Tensor y =
      conv1d(plain_snake(x, of("0.alpha")), of("1.weight"), of("1.bias"), {.padding = 3 * dilation, .dilation = dilation});
  return x + conv1d(plain_snake(y, of("2.alpha")), of("3.weight"), of("3.bias"));
}

Tensor plain_conv(const StateOf& state, const std::string& name, const Tensor& x, std::int64_t padding) {
  return conv1d(x, state[name + ".weight"], state[name + ".bias"], {.padding = padding});
}

Tensor plain_decoder(const StateOf& state, const Tensor& latent) {
  Tensor x = plain_conv(state, "decoder.model.0", latent, 3);
  const std::int64_t rates[] = {3, 2};
  for (std::size_t stage = 0; stage < 2; ++stage) {
    const std::string name = concat("decoder.model.", stage + 1, ".block.");
    x = conv_transpose1d(plain_snake(x, state[name + "0.alpha"]), state[name + "1.weight"], state[name + "1.bias"],
                         {.stride = rates[stage], .padding = stage == 0 ? 2 : 1});
    x = plain_unit(state, name + "2", x, 1);
    x = plain_unit(state, name + "3", x, 3);
    x = plain_unit(state, name + "4", x, 9);
  }
  return tanh(plain_conv(state, "decoder.model.4", plain_snake(x, state["decoder.model.3.alpha"]), 3));
}

}  // namespace

TEST_CASE("the decoder has the original's names, and loads whole checkpoints and decoders alone") {
  manual_seed(1);
  DacDecoder decoder(small());
  Dac codec(small());
  decoder.to(DType::f64);
  codec.to(DType::f64);
  weight_norm(codec);
  const StateOf state(codec);
  for (const char* name : {"encoder.block.0.weight_g", "encoder.block.1.block.2.block.3.weight_v",
                           "encoder.block.2.block.3.alpha", "encoder.block.2.block.4.bias", "encoder.block.3.alpha",
                           "encoder.block.4.weight_v", "quantizer.quantizers.2.in_proj.weight_v",
                           "quantizer.quantizers.0.out_proj.bias", "quantizer.quantizers.1.codebook.weight",
                           "decoder.model.0.weight_g", "decoder.model.1.block.0.alpha", "decoder.model.1.block.1.weight_v",
                           "decoder.model.2.block.4.block.2.alpha", "decoder.model.3.alpha", "decoder.model.4.bias"}) {
    CAPTURE(name);
    CHECK(state.has(name));
  }
  decoder.load_published(codec.state_dict());
  DacEncoder encoder(small());
  encoder.to(DType::f64);
  encoder.load_published(codec.state_dict());
  const Tensor codes = random_codes({2, 3, 7}, 16);
  CHECK(max_difference(decoder(codes), codec.decode(codes)) < kDoubleSum);
  const Tensor audio = random_f64({2, 1, 100});
  CHECK(encoder(audio).to_vector<std::int64_t>() == codec.encode(audio).to_vector<std::int64_t>());
  NamedTensors half = codec.state_dict();
  half.erase(std::remove_if(half.begin(), half.end(), [](const auto& e) { return e.first.starts_with("encoder."); }),
             half.end());
  decoder.load_published(half);
  CHECK(error_of<Error>([&] { return encoder.load_published(half), 0; }).find("missing: encoder.block.0.weight") !=
        std::string::npos);
  CHECK(error_of<Error>([&] { return codec.load_published(half), 0; }).find("encoder.block.0") != std::string::npos);
}

TEST_CASE("the decoder is the formula, step by step") {
  manual_seed(2);
  DacDecoder decoder(small());
  decoder.to(DType::f64);
  const NoGradGuard no_grad;
  const Tensor codes = random_codes({2, 3, 7}, 16);
  const Tensor audio = decoder(codes);
  CHECK(audio.shape() == Shape{2, 1, 2 * (3 * 7 - 1)});
  CHECK(relative_difference(f64_values(audio), f64_values(plain_decoder(StateOf(decoder), decoder.latent(codes)))) <
        kDoubleRounding);
  CHECK(decoder.format().samples_per_frame == 6);
  CHECK(decoder(codes.narrow(1, 0, 2)).shape() == audio.shape());
}

TEST_CASE("the encoder is the formula, step by step") {
  manual_seed(3);
  DacEncoder encoder(small());
  encoder.to(DType::f64);
  const NoGradGuard no_grad;
  const StateOf state(encoder);
  const Tensor audio = random_f64({2, 1, 40});
  Tensor x = plain_conv(state, "encoder.block.0", pad1d(audio, {0, 2}), 3);
  for (std::size_t stage = 0; stage < 2; ++stage) {
    const std::string name = concat("encoder.block.", stage + 1, ".block.");
    x = plain_unit(state, name + "0", x, 1);
    x = plain_unit(state, name + "1", x, 3);
    x = plain_unit(state, name + "2", x, 9);
    x = conv1d(plain_snake(x, state[name + "3.alpha"]), state[name + "4.weight"], state[name + "4.bias"],
               {.stride = stage == 0 ? 2 : 3, .padding = stage == 0 ? 1 : 2});
  }
  x = plain_conv(state, "encoder.block.4", plain_snake(x, state["encoder.block.3.alpha"]), 1);
  const DacEncoder::Encoded encoded = encoder.encode(audio);
  CHECK(encoded.encoded.shape() == Shape{2, 6, 7});
  CHECK(relative_difference(f64_values(encoded.encoded), f64_values(x)) < kDoubleRounding);
  CHECK(encoded.codes.shape() == Shape{2, 3, 7});
  CHECK(encoded.latents.shape() == Shape{2, 12, 7});
  CHECK(encoder(audio).to_vector<std::int64_t>() == encoded.codes.to_vector<std::int64_t>());
}

TEST_CASE("audio to codes to audio, cut to the length") {
  manual_seed(4);
  Dac codec(small());
  codec.to(DType::f64);
  const NoGradGuard no_grad;
  for (const std::int64_t length : {37, 42}) {
    const Tensor audio = random_f64({2, 1, length});
    const Tensor whole = codec.decode(codec.encode(audio));
    const Tensor cut = whole.narrow(2, 0, std::min(length, whole.size(2)));
    CHECK(codec(audio).shape() == cut.shape());
    CHECK(relative_difference(f64_values(codec(audio)), f64_values(cut)) < kDoubleSum);
  }
}

TEST_CASE("streams: codes to audio and audio to codes") {
  manual_seed(5);
  for (const DType dtype : {DType::f32, DType::f64}) {
    DacDecoder decoder(small());
    DacEncoder encoder(small());
    decoder.to(dtype);
    encoder.to(dtype);
    check_stream_of(decoder, random_codes({2, 3, 90}, 16));
    check_stream_of(decoder, random_codes({1, 2, 1}, 16));
    check_stream_of(encoder, random_f64({2, 1, 400}).to(dtype));
  }
  Dac codec(small());
  CHECK(error_of<NotImplemented>([&] { return Stream(codec).latency(); }).find("Dac") != std::string::npos);
}

TEST_CASE("the published models wait for 10 frames") {
  for (const std::vector<std::int64_t>& rates : {std::vector<std::int64_t>{8, 8, 4, 2}, {8, 5, 4, 2}}) {
    DacDecoder decoder({.encoder_dim = 1, .decoder_dim = 16, .decoder_rates = rates, .codebook_size = 4});
    CHECK(receptive_field(decoder).left == 10);
    CHECK(Stream(decoder).latency() == 10);
  }
}

TEST_CASE("fine-tuning, of the decoder and of the whole") {
  const Tensor codes = random_codes({2, 3, 7}, 16);
  check_fine_tuning(
      [] {
        manual_seed(6);
        return std::make_unique<DacDecoder>(small());
      },
      codes, random_f64({2, 1, 40}, 3).to(DType::f32).to(default_device()) * 0.3);
  const Tensor audio = random_f64({2, 1, 40}, 4).to(DType::f32).to(default_device()) * 0.3;
  check_fine_tuning(
      [] {
        manual_seed(7);
        return std::make_unique<Dac>(small());
      },
      audio, audio);
  Dac codec(small());
  mse_loss(codec(audio), audio).backward();
  for (const auto& entry : codec.named_parameters()) CHECK_MESSAGE(entry.second.grad().defined(), entry.first);
  codec.zero_grad();
  check_mixed_precision(codec, audio, audio);
}

TEST_CASE("16 bits") {
  manual_seed(8);
  DacDecoder decoder(small());
  check_halves(decoder, random_codes({2, 3, 30}, 16));
}

TEST_CASE("configurations: the original's keys and defaults") {
  const DacConfig empty = DacConfig::parse("{}");
  CHECK(empty.decoder_rates == std::vector<std::int64_t>{8, 8, 4, 2});
  CHECK(empty.n_codebooks == 9);
  CHECK(empty.sample_rate == 44100);
  const DacConfig config = DacConfig::parse(
      R"({"encoder_dim": 4, "encoder_rates": [2, 5], "latent_dim": null, "decoder_dim": 32, "decoder_rates": [5, 2], "n_codebooks": 2,
          "codebook_size": 8, "codebook_dim": [3, 4], "quantizer_dropout": 0.5, "sample_rate": 16000})");
  CHECK(config.codebook_dim == std::vector<std::int64_t>{3, 4});
  DacDecoder decoder(config);
  CHECK(decoder.latent(random_codes({1, 2, 3}, 8)).shape() == Shape{1, 16, 3});
  CHECK(decoder.format().sampling_rate == 16000);
  CHECK(decoder.format().rows == 2);
  CHECK(decoder.format().least_rows == 1);
}

TEST_CASE("what does not fit is refused in words") {
  CHECK(error_for("[").starts_with("dac: config: "));
  CHECK(error_for(R"({"decoder_dim": 8})") ==
        "dac: config: expected decoder_dim of at least 2 to the power of the number of decoder_rates, got 8");
  CHECK(error_for(R"({"decoder_rates": [0]})") == "dac: config: expected decoder_rates to be a whole number from 1 on, got 0");
  CHECK(error_for(R"({"decoder_rates": [2000000000, 2000000000]})").find("a product of at most 1048576") != std::string::npos);
  CHECK(error_for(R"({"encoder_rates": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]})").find("got 17") != std::string::npos);
  CHECK(error_for(R"({"n_codebooks": 3, "codebook_dim": [8, 8]})") ==
        "dac: config: expected one codebook_dim, or one for each of 3 codebooks, got 2");
  CHECK(error_for(R"({"n_codebooks": 100000})").find("got 100000") != std::string::npos);
  DacDecoder decoder(small());
  DacEncoder encoder(small());
  CHECK(error_of<ShapeError>([&] {
          return decoder(random_codes({1, 4, 3}, 16));
        }) == "network: expected an input (N, 1 to 3, frames >= 1), got (1, 4, 3)");
  if (default_device().is_cpu())
    CHECK(error_of<ShapeError>([&] {
            return decoder(Tensor::full({1, 3, 3}, 16, {DType::i64}));
          }) == "quantizer: expected codes in [0, 16) of codebook 0, got 16");
  CHECK(error_of<DTypeError>([&] { return decoder(Tensor::ones({1, 3, 3})); }).find("codes, i64") != std::string::npos);
  CHECK(error_of<ShapeError>([&] { return encoder(Tensor::ones({1, 2, 30})); }).find("(N, 1, frames") != std::string::npos);
  NamedTensors state = decoder.state_dict();
  state.emplace_back("decoder.model.9.bias", Tensor::ones({1}));
  state.front().second = Tensor::ones({2});
  const std::string error = error_of<Error>([&] { return decoder.load_published(state), 0; });
  CHECK(error.find("unexpected: decoder.model.9.bias") != std::string::npos);
  CHECK(error.find("misshapen: quantizer.quantizers.0.out_proj.weight") != std::string::npos);
}
