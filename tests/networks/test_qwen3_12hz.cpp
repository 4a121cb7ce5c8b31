#include "networks/qwen3_12hz.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/no_grad.hpp"
#include "networks/blocks/causal_attention.hpp"
#include "ops/activations.hpp"
#include "ops/conv.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/linear.hpp"
#include "ops/norm.hpp"
#include "support/codes.hpp"
#include "support/network_checks.hpp"
#include "support/stream.hpp"
#include "tensor/random.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

Qwen3Tts12HzConfig small() {
  return {.codebook_size = 6,
          .codebook_dim = 8,
          .num_quantizers = 3,
          .latent_dim = 6,
          .hidden_size = 8,
          .num_hidden_layers = 2,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .head_dim = 4,
          .sliding_window = 5,
          .intermediate_size = 10,
          .layer_scale_initial_scale = 0.5,
          .upsampling_ratios = {2},
          .upsample_rates = {3, 2},
          .decoder_dim = 8};
}

const char* const kSmallJson = R"("codebook_size": 6, "codebook_dim": 8, "num_quantizers": 3, "latent_dim": 6, "hidden_size": 8,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 5, "intermediate_size": 10,
    "upsampling_ratios": [2], "upsample_rates": [3, 2], "decoder_dim": 8, "max_position_embeddings": 8000)";

std::string json_with(const std::string& more = "") { return concat("{", kSmallJson, more, "}"); }

std::string error_for(const std::string& json) {
  return error_of<FormatError>([&] { return Qwen3Tts12HzConfig::parse(json); });
}

Qwen3Tts12Hz network(std::uint64_t seed) {
  manual_seed(seed);
  Qwen3Tts12Hz net(small());
  // Scales that are not almost 0, and different frequencies.
  for (auto& [name, tensor] : net.state_dict())
    if (name.ends_with("gamma") || name.ends_with("alpha") || name.ends_with("beta"))
      tensor.copy_(Tensor::uniform(tensor.shape(), -0.5, 0.5));
  return net;
}

/// The layers after the codebooks in plain operations.
class Plain {
 public:
  explicit Plain(Module& net) : state_(net.state_dict()) {}

  Tensor operator()(const Tensor& quantized) const {
    Tensor x = transformer(conv(quantized, "pre_conv.conv").transpose(1, 2)).transpose(1, 2);
    x = convnext(up(x, "upsample.0.0.conv", 2));
    x = conv(x, "decoder.0.conv");
    std::int64_t number = 1;
    for (const std::int64_t rate : {3, 2}) {
      const std::string block = concat("decoder.", number++, ".block.");
      x = up(snake(x, block + "0"), block + "1.conv", rate);
      std::int64_t unit = 2;
      for (const std::int64_t dilation : {1, 3, 9}) {
        const std::string name = concat(block, unit++, ".");
        const Tensor inner = conv(snake(x, name + "act1"), name + "conv1.conv", dilation);
        x = x + conv(snake(inner, name + "act2"), name + "conv2.conv");
      }
    }
    return clamp(conv(snake(x, "decoder.3"), "decoder.4.conv"), -1, 1);
  }

  Tensor of(const std::string& name) const {
    const auto found = std::find_if(state_.begin(), state_.end(), [&](const auto& entry) { return entry.first == name; });
    REQUIRE_MESSAGE(found != state_.end(), name);
    return found->second;
  }

 private:
  Tensor conv(const Tensor& x, const std::string& name, std::int64_t dilation = 1, std::int64_t groups = 1) const {
    const Tensor weight = of(name + ".weight");
    return conv1d(x, weight, of(name + ".bias"),
                  {.padding = {(weight.size(2) - 1) * dilation, 0}, .dilation = dilation, .groups = groups});
  }
  Tensor up(const Tensor& x, const std::string& name, std::int64_t rate) const {
    return conv_transpose1d(x, of(name + ".weight"), of(name + ".bias"), {.stride = rate}).narrow(2, 0, x.size(2) * rate);
  }
  Tensor snake(const Tensor& x, const std::string& name) const {
    const Tensor alpha = exp(of(name + ".alpha")).unsqueeze(1), beta = exp(of(name + ".beta")).unsqueeze(1);
    return x + square(sin(x * alpha)) / (beta + 1e-9);
  }
  Tensor dense(const Tensor& x, const std::string& name, bool bias = true) const {
    return linear(x, of(name + ".weight"), bias ? of(name + ".bias") : Tensor());
  }
  Tensor transformer(const Tensor& latent) const {
    Tensor x = dense(latent, "pre_transformer.input_proj");
    for (const char* number : {"0", "1"}) {
      const std::string name = concat("pre_transformer.layers.", number, ".");
      CausalAttention attention({.channels = 8,
                                 .heads = 4,
                                 .key_heads = 2,
                                 .head_size = 4,
                                 .window = 5,
                                 .inputs = {"q_proj", "k_proj", "v_proj"},
                                 .output = "o_proj"});
      attention.to(DType::f64);
      NamedTensors weights;
      for (const char* part : {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"})
        weights.emplace_back(part, of(name + "self_attn." + part));
      attention.load_state_dict(weights);
      const Tensor seen = attention(rms_norm(x, of(name + "input_layernorm.weight"), 1e-5));
      x = x + seen * of(name + "self_attn_layer_scale.scale");
      const Tensor normal = rms_norm(x, of(name + "post_attention_layernorm.weight"), 1e-5);
      const Tensor gated = silu(dense(normal, name + "mlp.gate_proj", false)) * dense(normal, name + "mlp.up_proj", false);
      x = x + dense(gated, name + "mlp.down_proj", false) * of(name + "mlp_layer_scale.scale");
    }
    return dense(rms_norm(x, of("pre_transformer.norm.weight"), 1e-5), "pre_transformer.output_proj");
  }
  Tensor convnext(const Tensor& x) const {
    const std::string name = "upsample.0.1.";
    const Tensor wide = conv(x, name + "dwconv.conv", 1, x.size(1)).transpose(1, 2);
    const Tensor normal = layer_norm(wide, of(name + "norm.weight"), of(name + "norm.bias"), 1e-6);
    const Tensor out = dense(gelu(dense(normal, name + "pwconv1")), name + "pwconv2") * of(name + "gamma");
    return x + out.transpose(1, 2);
  }

  NamedTensors state_;
};

}  // namespace

TEST_CASE("Qwen3-TTS' decoder has the original's names and is the formula, step by step") {
  Qwen3Tts12Hz net = network(1);
  net.to(DType::f64);
  const NoGradGuard no_grad;
  const Tensor codes = some_codes({2, 3, 7}, 6);
  // The codebooks are computed by their own module, which has a separate test.
  const Tensor quantized = [&] {
    const Plain w(net);
    const auto part = [&](std::int64_t row, const std::string& book, const std::string& projection) {
      const Tensor usage = w.of(book + "cluster_usage"), sum = w.of(book + "embedding_sum");
      std::vector<Tensor> rows;
      for (const std::int64_t code : codes.select(1, row).contiguous().reshape({14}).to_vector<std::int64_t>())
        rows.push_back(sum.select(0, code) / usage.narrow(0, code, 1));
      return conv1d(stack(rows).reshape({2, 7, 4}).transpose(1, 2), w.of(projection + ".output_proj.weight"));
    };
    const std::string rest = "quantizer.rvq_rest";
    return part(0, "quantizer.rvq_first.vq.layers.0._codebook.", "quantizer.rvq_first") +
           part(1, rest + ".vq.layers.0._codebook.", rest) + part(2, rest + ".vq.layers.1._codebook.", rest);
  }();
  const Tensor audio = net(codes);
  CHECK(audio.shape() == Shape{2, 1, 7 * 12});
  CHECK(net.format().samples_per_frame == 12);
  CHECK(relative_difference(f64_values(audio), f64_values(Plain(net)(quantized))) < 1e-13);
  // In each of 2 layers 4 projections, 3 of the MLP, 2 norms, 2 scales; 5 around them. 2 for each of 3 codebooks, 2
  // projections. 2 for pre_conv; 2 + 9 of the upsampling; in each of 2 blocks 2 + 2 + 3*8; 2 + 2 + 2.
  CHECK(net.state_dict().size() == 2 * 11 + 5 + 8 + 2 + 11 + 2 * 28 + 6);
}

TEST_CASE("Qwen3-TTS in pieces has the bits of the whole") {
  Qwen3Tts12Hz net = network(2);
  check_causal_stream_of_codes(net, {some_codes({2, 3, 70}, 6)});
}

TEST_CASE("chunks with the past cut off, as the original decodes") {
  Qwen3Tts12Hz net = network(3);
  net.to(DType::f64);
  const NoGradGuard no_grad;
  const Tensor codes = some_codes({1, 3, 9}, 6), whole = net(codes), chunked = net.chunked_decode(codes, 4, 3);
  CHECK(chunked.shape() == whole.shape());
  CHECK(max_difference(chunked.narrow(2, 0, 48), net(codes.narrow(2, 0, 4))) == 0);
  CHECK(max_difference(chunked.narrow(2, 48, 48), net(codes.narrow(2, 1, 7)).narrow(2, 36, 48)) == 0);
  CHECK(max_difference(chunked.narrow(2, 96, 12), net(codes.narrow(2, 5, 4)).narrow(2, 36, 12)) == 0);
  CHECK(max_difference(chunked, whole) > 1e-6);
  CHECK(max_difference(net.chunked_decode(codes), whole) == 0);
  CHECK(max_difference(net.chunked_decode(codes, 2, 9), whole) < 1e-12);
  CHECK(error_of<ShapeError>([&] { return net.chunked_decode(codes, 0, 1); }) ==
        "chunked_decode: expected chunk_size >= 1 and left_context_size >= 0, got 0 and 1");
}

TEST_CASE("the tokenizer's checkpoint loads as the decoder's does") {
  Qwen3Tts12Hz source = network(4), target = network(5);
  NamedTensors state;
  for (const auto& [name, tensor] : source.state_dict()) state.emplace_back("decoder." + name, tensor.clone());
  state.emplace_back("encoder.encoder.layers.0.conv.weight", Tensor::ones({1}));
  state.emplace_back("decoder.quantizer.rvq_rest.input_proj.weight", Tensor::ones({1}));
  target.load_published(state);
  const NoGradGuard no_grad;
  const Tensor codes = some_codes({1, 3, 4}, 6);
  CHECK(max_difference(target(codes), source(codes)) == 0);
  target.load_published(source.state_dict());
  state.emplace_back("decoder.post_conv.weight", Tensor::ones({1}));
  CHECK(error_of<Error>([&] { return target.load_published(state), 0; }).find("post_conv.weight") != std::string::npos);
}

TEST_CASE("Qwen3-TTS learns") {
  Qwen3Tts12Hz net = network(6);
  const Losses losses = fine_tuned(net, some_codes({2, 3, 6}, 6), Tensor::uniform({2, 1, 72}, -0.5, 0.5), 20);
  CHECK(losses.last < 0.95 * losses.first);
}

TEST_CASE("Qwen3-TTS in 16 bits") {
  Qwen3Tts12Hz net = network(7);
  check_halves(net, some_codes({1, 3, 6}, 6));
}

TEST_CASE("a configuration of Qwen3-TTS is read with the original's defaults") {
  const Qwen3Tts12HzConfig config = Qwen3Tts12HzConfig::parse(json_with());
  CHECK(config.head_dim == 2);
  CHECK(config.rms_norm_eps == 1e-5);
  CHECK(config.hidden_act == Qwen3Tts12HzConfig::HiddenAct::silu);
  CHECK(config.sampling_rate == 24000);
  CHECK(Qwen3Tts12HzConfig::parse(R"({"codebook_dim": 512})").upsample_rates == std::vector<std::int64_t>{8, 5, 4, 3});
  const Qwen3Tts12HzConfig whole =
      Qwen3Tts12HzConfig::parse(concat(R"({"output_sample_rate": 48000, "encoder_config": {}, "decoder_config": )",
                                       json_with(R"(, "hidden_act": "gelu", "head_dim": 6)"), "}"));
  CHECK(whole.sampling_rate == 48000);
  CHECK(whole.head_dim == 6);
  CHECK(whole.hidden_act == Qwen3Tts12HzConfig::HiddenAct::gelu);
}

TEST_CASE("a configuration of Qwen3-TTS that does not fit is refused in words") {
  CHECK(error_for("{}") == "qwen3_12hz: config: expected codebook_dim");
  CHECK(error_for(json_with(R"(, "codebook_dim": 7)")) == "qwen3_12hz: config: expected an even codebook_dim, got 7");
  CHECK(error_for(json_with(R"(, "num_quantizers": 1)")) == "qwen3_12hz: config: expected num_quantizers of at least 2, got 1");
  CHECK(error_for(json_with(R"(, "hidden_size": 9)")).find("got 9 and 4") != std::string::npos);
  CHECK(error_for(json_with(R"(, "hidden_size": 12)")) == "qwen3_12hz: config: expected an even head_dim, got 3");
  CHECK(error_for(json_with(R"(, "num_key_value_heads": 3)")).find("got 4 and 3") != std::string::npos);
  CHECK(error_for(json_with(R"(, "decoder_dim": 3)")).find("got 3") != std::string::npos);
  CHECK(error_for(json_with(R"(, "hidden_act": "tanh")")) ==
        "qwen3_12hz: config: expected hidden_act silu, gelu or relu, got tanh");
  CHECK(error_for(json_with(R"(, "rope_scaling": {"rope_type": "yarn"})")).find("rope_scaling") != std::string::npos);
  CHECK(error_for(json_with(R"(, "upsample_rates": [2147483648, 2147483648, 2147483648])")).find("at most 1048576") !=
        std::string::npos);
}

TEST_CASE("codes of Qwen3-TTS that do not fit are refused in words") {
  Qwen3Tts12Hz net = network(8);
  CHECK(error_of<ShapeError>([&] {
          return net(some_codes({1, 2, 2}, 6));
        }) == "network: expected an input (N, 3, frames >= 1), got (1, 2, 2)");
  check_refuses_code(net, {1, 3, 2}, -1);
}
