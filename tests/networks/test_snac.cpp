#include "networks/snac.hpp"

#include <doctest/doctest.h>

#include "layers/weight_norm.hpp"
#include "networks/blocks/local_attention.hpp"
#include "ops/activations.hpp"
#include "ops/conv.hpp"
#include "ops/embedding.hpp"
#include "ops/length.hpp"
#include "support/network_checks.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

SnacConfig small() {
  return {.sampling_rate = 24000,
          .latent_dim = 6,
          .decoder_dim = 8,
          .decoder_rates = {3, 2},
          .attn_window_size = 0,
          .codebook_size = 16,
          .codebook_dim = 4,
          .vq_strides = {4, 2, 1}};
}

SnacConfig with_attention() {
  SnacConfig config = small();
  config.decoder_dim = 64;
  config.attn_window_size = 12;
  config.vq_strides = {8, 4, 2, 1};
  return config;
}

std::string error_for(const std::string& json) {
  return error_of<FormatError>([&] { return SnacConfig::parse(json); });
}

/// Noise for the two blocks of small(), for this many positions of the latent.
std::vector<Tensor> some_noise(std::int64_t positions) {
  return {random_f64({1, 1, 3 * positions}, 5), random_f64({1, 1, 6 * positions}, 6)};
}

/// A convolution; the weight's shape gives the groups.
Tensor plain_conv(const StateOf& state, const std::string& name, const Tensor& x, std::int64_t dilation = 1) {
  const Tensor w = state[name + ".weight"];
  return conv1d(x, w, state[name + ".bias"],
                {.padding = (w.size(2) - 1) / 2 * dilation, .dilation = dilation, .groups = x.size(1) / w.size(1)});
}

/// The decoder step by step; `noise` may be empty.
Tensor plain_decoder(const StateOf& state, const Tensor& latent, const std::vector<Tensor>& noise, bool is_depthwise,
                     LocalAttention* attention) {
  std::size_t layer = 0;
  const auto name = [&] { return concat("decoder.model.", layer++); };
  Tensor x = plain_conv(state, name(), latent);
  if (is_depthwise) x = plain_conv(state, name(), x);
  if (attention != nullptr) x = (*attention)(x), ++layer;
  const std::int64_t rates[] = {3, 2};
  for (std::size_t stage = 0; stage < 2; ++stage) {
    const std::string block = name() + ".block.";
    x = conv_transpose1d(plain_snake(x, state[block + "0.alpha"]), state[block + "1.weight"], state[block + "1.bias"],
                         {.stride = rates[stage], .padding = stage == 0 ? 2 : 1, .output_padding = stage == 0 ? 1 : 0});
    std::size_t unit = 2;
    if (!noise.empty()) x = x + noise[stage] * conv1d(x, state[concat(block, unit++, ".linear.weight")]);
    for (const std::int64_t dilation : {1, 3, 9}) {
      const std::string inside = concat(block, unit++, ".block.");
      const Tensor y = plain_conv(state, inside + "1", plain_snake(x, state[inside + "0.alpha"]), dilation);
      x = x + plain_conv(state, inside + "3", plain_snake(y, state[inside + "2.alpha"]));
    }
  }
  x = plain_snake(x, state[name() + ".alpha"]);
  return tanh(plain_conv(state, name(), x));
}

}  // namespace

TEST_CASE("the decoder has the original's names") {
  SnacDecoder decoder(with_attention());
  weight_norm(decoder);
  const StateOf state(decoder);
  for (const char* name :
       {"quantizer.quantizers.3.codebook.weight", "quantizer.quantizers.0.out_proj.weight_g", "decoder.model.0.weight_v",
        "decoder.model.1.bias", "decoder.model.2.norm.weight", "decoder.model.2.to_qkv.weight_g",
        "decoder.model.2.rel_pos.inv_freq", "decoder.model.3.block.0.alpha", "decoder.model.3.block.1.weight_g",
        "decoder.model.3.block.2.linear.weight_v", "decoder.model.4.block.5.block.3.bias", "decoder.model.5.alpha",
        "decoder.model.6.bias"}) {
    CAPTURE(name);
    CHECK(state.has(name));
  }
  NamedTensors whole = decoder.state_dict();
  whole.emplace_back("quantizer.quantizers.0.in_proj.parametrizations.weight.original0", Tensor::ones({1}));
  whole.emplace_back("encoder.block.0.bias", Tensor::ones({1}));
  SnacDecoder(with_attention()).load_published(whole);
}

TEST_CASE("the decoder is the formula, step by step, in each of its variants") {
  const NoGradGuard no_grad;
  for (const bool has_noise : {true, false})
    for (const bool is_depthwise : {true, false})
      for (const bool has_attention : {false, true}) {
        CAPTURE(has_noise);
        CAPTURE(is_depthwise);
        CAPTURE(has_attention);
        manual_seed(2);
        SnacConfig config = has_attention ? with_attention() : small();
        config.noise = has_noise;
        config.depthwise = is_depthwise;
        SnacDecoder decoder(config);
        decoder.to(DType::f64);
        decoder.eval();
        const StateOf state(decoder);
        LocalAttention attention(64, 12);
        if (has_attention) {
          NamedTensors own;
          for (const auto& [name, tensor] : decoder.state_dict()) {
            const std::string prefix = is_depthwise ? "decoder.model.2." : "decoder.model.1.";
            if (name.starts_with(prefix)) own.emplace_back(name.substr(prefix.size()), tensor);
          }
          attention.to(DType::f64);
          attention.load_state_dict(own);
        }
        const std::int64_t frames = 3;
        const Tensor codes = random_codes({2, decoder.format().rows, frames}, 16);
        const Tensor latent = decoder.latent(codes);
        const std::vector<Tensor> noise = has_noise ? some_noise(latent.size(2)) : std::vector<Tensor>();
        decoder.set_noise(noise);
        const Tensor audio = decoder(codes);
        CHECK(audio.size(2) == frames * decoder.format().samples_per_frame);
        const Tensor expected = plain_decoder(state, latent, noise, is_depthwise, has_attention ? &attention : nullptr);
        CHECK(relative_difference(f64_values(audio), f64_values(expected)) < kDoubleSum);
      }
}

TEST_CASE("codes of each codebook, packed") {
  manual_seed(3);
  SnacDecoder decoder(small());
  decoder.to(DType::f64);
  const StateOf state(decoder);
  const std::vector<Tensor> codes{random_codes({2, 3}, 16, 1), random_codes({2, 6}, 16, 2), random_codes({2, 12}, 16, 3)};
  const Tensor packed = decoder.pack(codes);
  CHECK(packed.shape() == Shape{2, 7, 3});
  CHECK(decoder.unpack(packed)[1].to_vector<std::int64_t>() == codes[1].to_vector<std::int64_t>());
  Tensor expected;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto of = [&](const char* name) { return state[concat("quantizer.quantizers.", i, ".", name)]; };
    const Tensor v =
        conv1d(embedding(codes[i], of("codebook.weight")).transpose(1, 2), of("out_proj.weight"), of("out_proj.bias"));
    const Tensor repeated = upsample1d(v, 4 >> i);
    expected = i == 0 ? repeated : expected + repeated;
  }
  CHECK(max_difference(decoder.latent(packed), expected) < kDoubleRounding);
}

TEST_CASE("noise: seeded, given, or none") {
  manual_seed(4);
  SnacDecoder decoder(small());
  decoder.eval();
  const NoGradGuard no_grad;
  const Tensor codes = random_codes({2, 7, 3}, 16);
  const Tensor first = decoder(codes);
  CHECK(max_difference(decoder(codes), first) == 0);
  const Tensor alone = decoder(codes.narrow(0, 1, 1));  // as in a batch, except for the order of sums on a GPU
  CHECK(max_difference(alone, first.narrow(0, 1, 1)) <= (default_device().is_cpu() ? 0 : kFloatSum));
  decoder.set_noise_seed(1);
  CHECK(max_difference(decoder(codes), first) > 0);
  decoder.set_noise_seed(0);
  CHECK(max_difference(decoder(codes), first) == 0);
  decoder.without_noise();
  const Tensor quiet = decoder(codes);
  CHECK(max_difference(quiet, first) > 0);
  decoder.set_noise({Tensor::zeros({1, 1, 36}), Tensor::zeros({1, 1, 72})});
  CHECK(max_difference(decoder(codes), quiet) == 0);
  decoder.set_noise({Tensor::zeros({1, 1, 36}), Tensor::zeros({1, 1, 71})});
  CHECK(error_of<ShapeError>([&] { return decoder(codes); }).find("row 1 to be (1 or 2, 1, at least 72)") != std::string::npos);
}

TEST_CASE("streams, of both kinds, with every kind of noise") {
  manual_seed(5);
  for (const SnacConfig& config : {small(), with_attention()})
    for (const DType dtype : {DType::f32, DType::f64}) {
      SnacDecoder decoder(config);
      decoder.to(dtype);
      decoder.eval();
      const std::int64_t frames = 24;
      const Tensor codes = random_codes({2, decoder.format().rows, frames}, 16);
      check_stream_of(decoder, codes);
      decoder.without_noise();
      check_stream_of(decoder, codes);
      decoder.set_noise(some_noise(frames * config.vq_strides.front()));
      check_stream_of(decoder, codes);
    }
}

TEST_CASE("what the published models wait for") {
  SnacDecoder plain({.latent_dim = 8,
                     .decoder_dim = 16,
                     .decoder_rates = {8, 8, 4, 2},
                     .attn_window_size = 0,
                     .codebook_size = 4,
                     .vq_strides = {4, 2, 1}});
  CHECK(Stream(plain).latency() == 3);  // 10 positions of the latent, 4 in a frame
  SnacDecoder attention({.latent_dim = 8, .decoder_dim = 64, .decoder_rates = {8, 8, 3, 2}, .codebook_size = 4});
  CHECK(attention.format().frame_multiple == 4);
  // A sample needs attention's result up to 7 positions later, which may be in the next window of 4 frames. That window's last
  // result needs 3 positions of the window after it.
  CHECK(Stream(attention).latency() == 5);
}

TEST_CASE("fine-tuning") {
  for (const SnacConfig& config : {small(), with_attention()}) {
    const std::int64_t rows = SnacDecoder(config).format().rows, length = 3 * SnacDecoder(config).format().samples_per_frame;
    check_fine_tuning(
        [&] {
          manual_seed(6);
          return std::make_unique<SnacDecoder>(config);
        },
        random_codes({2, rows, 3}, 16), random_f64({2, 1, length}, 2).to(DType::f32).to(default_device()) * 0.3);
    SnacDecoder decoder(config);
    check_mixed_precision(decoder, random_codes({2, rows, 3}, 16), Tensor::zeros({2, 1, length}));
  }
}

TEST_CASE("16 bits") {
  manual_seed(7);
  for (const SnacConfig& config : {small(), with_attention()}) {
    SnacDecoder decoder(config);
    check_halves(decoder, random_codes({2, decoder.format().rows, 6}, 16));
  }
}

TEST_CASE("configurations: the original's keys and defaults") {
  const SnacConfig empty = SnacConfig::parse("{}");
  CHECK(empty.latent_dim == 1024);
  CHECK(empty.attn_window_size == 32);
  CHECK(empty.vq_strides == std::vector<std::int64_t>{8, 4, 2, 1});
  CHECK(empty.noise);
  const SnacConfig config = SnacConfig::parse(
      R"({"sampling_rate": 24000, "encoder_dim": 3, "encoder_rates": [2, 4], "decoder_dim": 16, "decoder_rates": [4, 2],
          "attn_window_size": null, "codebook_size": 8, "codebook_dim": 4, "vq_strides": [4, 2, 1], "noise": false, "depthwise": false})");
  CHECK(config.latent_dim == 12);
  CHECK(config.attn_window_size == 0);
  CHECK(!config.noise);
  CHECK(!config.depthwise);
  const NetworkFormat format = SnacDecoder(config).format();
  CHECK(format.input == NetworkInput::codes);
  CHECK(format.rows == 7);
  CHECK(format.least_rows == 0);
  CHECK(format.samples_per_frame == 32);
  CHECK(format.sampling_rate == 24000);
  CHECK(format.frame_multiple == 1);
}

TEST_CASE("what does not fit is refused in words") {
  CHECK(error_for("[").starts_with("snac: config: "));
  CHECK(error_for(R"({"vq_strides": [4, 3, 1]})") == "snac: config: expected vq_strides that divide the first, 4, got 3");
  CHECK(error_for(R"({"vq_strides": [2048]})").find("got 2048") != std::string::npos);
  CHECK(error_for(R"({"decoder_dim": 96})") ==
        "snac: config: expected decoder_dim to be a multiple of 64 with attention, got 96");
  CHECK(error_for(R"({"decoder_dim": 8})").find("got 8") != std::string::npos);
  CHECK(error_for(R"({"decoder_rates": [2000000, 2]})").find("a product of at most 1048576") != std::string::npos);
  CHECK(error_for(R"({"attn_window_size": 2048})") == "snac: config: expected attn_window_size up to 1024, got 2048");
  CHECK(error_for(R"({"attn_window_size": 0})").find("attn_window_size") != std::string::npos);
  SnacDecoder decoder(with_attention());
  CHECK(error_of<ShapeError>([&] {
          return decoder(random_codes({1, 15, 4}, 16));
        }) == "network: expected a multiple of 3 frames, got 4");
  CHECK(error_of<ShapeError>([&] {
          return decoder(random_codes({1, 14, 3}, 16));
        }).find("(N, 15, frames >= 1)") != std::string::npos);
  if (default_device().is_cpu())
    CHECK(error_of<ShapeError>([&] {
            return decoder(Tensor::full({1, 15, 3}, 16, {DType::i64}));
          }) == "quantizer: expected codes in [0, 16) of codebook 0, got 16");
  CHECK(error_of<ShapeError>([&] {
          return decoder.pack({Tensor::zeros({1, 3}, {DType::i64})});
        }).find("of 4 codebooks, got 1") != std::string::npos);
  CHECK(error_of<Error>([&] {
          return decoder.load_published({}), 0;
        }).find("missing: quantizer.quantizers.0.out_proj.weight") != std::string::npos);
}
