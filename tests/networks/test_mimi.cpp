#include "networks/mimi.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "autograd/no_grad.hpp"
#include "device/backend.hpp"
#include "layers/streaming/stream.hpp"
#include "networks/blocks/causal_attention.hpp"
#include "ops/activations.hpp"
#include "ops/conv.hpp"
#include "ops/elementwise.hpp"
#include "ops/linear.hpp"
#include "ops/norm.hpp"
#include "support/codes.hpp"
#include "support/network_checks.hpp"
#include "support/stream.hpp"
#include "tensor/random.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

MimiConfig small() {
  return {
      .seanet = {.dimension = 8, .n_filters = 2, .ratios = {4, 3}},
      .quantizer = {.dimension = 4, .n_q = 3, .bins = 6},
      .transformer = {.d_model = 8, .num_heads = 2, .num_layers = 2, .dim_feedforward = 12, .context = 5, .layer_scale = 0.5},
      .sample_rate = 24000,
      .frame_rate = 1000};
}

std::string small_json(const std::string& seanet = "", const std::string& quantizer = "", const std::string& transformer = "",
                       const std::string& frame_rate = "1000") {
  return R"({"sample_rate": 24000, "channels": 1, "frame_rate": )" + frame_rate +
         R"(, "seanet": {"dimension": 8, "causal": true, "n_filters": 2, "n_residual_layers": 1, "ratios": [4, 3],
             "last_kernel_size": 3, "pad_mode": "constant", "true_skip": true)" +
         seanet + R"(}, "quantizer": {"dimension": 4, "n_q": 3, "bins": 6, "output_dimension": 8)" + quantizer +
         R"(}, "transformer": {"d_model": 8, "num_heads": 2, "num_layers": 2, "causal": true, "layer_scale": 0.5, "context": 5,
             "conv_layout": true, "positional_embedding": "rope", "dim_feedforward": 12, "input_dimension": 8,
             "output_dimensions": [8])" +
         transformer + "}}";
}

std::string error_for(const std::string& json) {
  return error_of<FormatError>([&] { return MimiConfig::parse(json); });
}

/// The layers after the codebooks in plain operations, from the latent on.
Tensor plain(const StateOf& w, const Tensor& latent) {
  const auto up = [&](const Tensor& x, const std::string& name, std::int64_t stride, std::int64_t groups, bool bias) {
    return conv_transpose1d(x, w[name + ".weight"], bias ? w[name + ".bias"] : Tensor(), {.stride = stride, .groups = groups})
        .narrow(2, 0, x.size(2) * stride);
  };
  const auto conv = [&](const Tensor& x, const std::string& name) {
    const Tensor weight = w[name + ".weight"];
    return conv1d(x, weight, w[name + ".bias"], {.padding = {weight.size(2) - 1, 0}});
  };
  Tensor x = up(latent, "upsample.convtr.convtr.convtr", 2, 8, false).transpose(1, 2);
  for (const char* layer : {"0", "1"}) {
    const std::string name = concat("decoder_transformer.transformer.layers.", layer, ".");
    CausalAttention attention({.channels = 8,
                               .heads = 2,
                               .key_heads = 2,
                               .head_size = 4,
                               .window = 5,
                               .interleaved = true,
                               .inputs = {"in"},
                               .output = "out"});
    attention.to(DType::f64);
    attention.load_state_dict(
        {{"in.weight", w[name + "self_attn.in_projs.0.weight"]}, {"out.weight", w[name + "self_attn.out_projs.0.weight"]}});
    const auto normalised = [&](const char* norm) {
      return layer_norm(x, w[name + norm + ".weight"], w[name + norm + ".bias"]);
    };
    x = x + mul(attention(normalised("norm1")), w[name + "layer_scale_1.scale"]);
    const Tensor hidden = gelu(linear(normalised("norm2"), w[name + "linear1.weight"]));
    x = x + mul(linear(hidden, w[name + "linear2.weight"]), w[name + "layer_scale_2.scale"]);
  }
  x = conv(x.transpose(1, 2), "decoder.model.0.conv.conv");
  const auto stage = [&](int number, std::int64_t stride) {
    x = up(elu(x), concat("decoder.model.", number, ".convtr.convtr"), stride, 1, true);
    const std::string block = concat("decoder.model.", number + 1, ".block.");
    x = x + conv(elu(conv(elu(x), block + "1.conv.conv")), block + "3.conv.conv");
  };
  stage(2, 4);
  stage(5, 3);
  return conv(elu(x), "decoder.model.8.conv.conv");
}

}  // namespace

TEST_CASE("Mimi has the original's names") {
  Mimi net(small());
  const StateOf state(net);
  CHECK(state.has("quantizer.rvq_first.vq.layers.0._codebook.embedding_sum"));
  CHECK(state.has("quantizer.rvq_rest.vq.layers.1._codebook.cluster_usage"));
  CHECK(state.has("quantizer.rvq_rest.output_proj.weight"));
  CHECK(state.has("upsample.convtr.convtr.convtr.weight"));
  CHECK(state.has("decoder_transformer.transformer.layers.1.layer_scale_2.scale"));
  CHECK(state.has("decoder.model.6.block.3.conv.conv.bias"));
  // 2 for each of 3 codebooks, 2 projections, the upsampling; in each of 2 layers 2 projections, 2 norms of 2, 2 linear layers,
  // 2 scales; in SEANet 2 for the first and the last convolution and, in 2 stages, 1 + 2.
  CHECK(state.size() == 6 + 2 + 1 + 2 * (2 + 4 + 2 + 2) + 2 * (2 + 2 * 3));
}

TEST_CASE("Mimi is the formula, step by step") {
  manual_seed(3);
  Mimi net(small());
  net.to(DType::f64);
  const NoGradGuard no_grad;
  const Tensor codes = some_codes({2, 3, 6}, 6);
  const Tensor audio = net(codes);
  CHECK(audio.shape() == Shape{2, 1, 6 * 24});
  CHECK(net.format().samples_per_frame == 24);
  CHECK(net.latent(codes).shape() == Shape{2, 8, 6});
  CHECK(relative_difference(f64_values(audio), f64_values(plain(StateOf(net), net.latent(codes)))) < 1e-13);
}

TEST_CASE("fewer codebooks than there are decode what they have") {
  manual_seed(4);
  Mimi net(small());
  net.to(DType::f64);
  const NoGradGuard no_grad;
  const Tensor codes = some_codes({1, 3, 4}, 6);
  CHECK(relative_difference(f64_values(net(codes.narrow(1, 0, 2))),
                            f64_values(plain(StateOf(net), net.latent(codes.narrow(1, 0, 2))))) < 1e-13);
  CHECK(max_difference(net(codes), net(codes.narrow(1, 0, 2))) > 1e-6);
}

TEST_CASE("Mimi in pieces has the bits of the whole") {
  manual_seed(5);
  Mimi net(small());
  check_causal_stream_of_codes(net, {some_codes({2, 3, 70}, 6), some_codes({1, 2, 1}, 6)});
}

TEST_CASE("pushes of a fixed size take no more memory once the context has passed") {
  manual_seed(10);
  Mimi net(small());
  const NoGradGuard no_grad;
  Allocator& allocator = backend_of(default_device()).allocator();
  for (const std::int64_t frames : {1, 4}) {
    CAPTURE(frames);
    Stream stream(net);
    stream.reserve(frames);
    const Tensor codes = some_codes({2, 3, frames}, 6);
    for (std::int64_t i = 0; i < 6; ++i) static_cast<void>(stream.push(codes));
    const MemoryStats before = allocator.stats();
    for (int i = 0; i < 20; ++i) CHECK(stream.push(codes).size(2) == 24 * frames);
    CHECK(allocator.stats().live_bytes == before.live_bytes);
    CHECK(allocator.stats().cached_bytes == before.cached_bytes);
  }
}

TEST_CASE("the original's streaming parts from the whole where the context is full") {
  manual_seed(6);
  MimiConfig config = small();
  Mimi whole(config);
  config.streams_as_original = true;
  Mimi original(config);
  whole.to(DType::f64);
  original.to(DType::f64);
  original.load_state_dict(whole.state_dict());
  const NoGradGuard no_grad;
  const Tensor codes = some_codes({1, 3, 5}, 6);
  const Tensor audio = whole(codes);
  CHECK(max_difference(original(codes), audio) == 0);
  for (const std::int64_t frames : {1, 2}) {
    CAPTURE(frames);
    const Tensor pieces = streamed(original, codes, {frames});
    // Step q of a push that ends with step e sees the keys from e - 4 on, so the push with step 5 is the first that misses a
    // key.
    const std::int64_t same = (5 / (2 * frames)) * 2 * frames * 12;
    CHECK(relative_difference(f64_values(pieces.narrow(2, 0, same)), f64_values(audio.narrow(2, 0, same))) < 1e-13);
    CHECK(max_difference(pieces, audio) > 1e-6);
  }
  Stream stream(original);
  CHECK(error_of<ShapeError>([&] { return stream.push(codes.narrow(2, 0, 3)); }) ==
        "attention: expected at most 5 positions in a push, the context, got 6");
}

TEST_CASE("both spellings of the projections load, and what decoding does not need is passed over") {
  manual_seed(7);
  Mimi source(small()), target(small());
  NamedTensors older;
  for (const auto& [name, tensor] : source.state_dict()) {
    std::string key = name;
    const auto renamed = [&](const std::string& from, const std::string& to) {
      const std::size_t place = key.find(from);
      if (place != std::string::npos) key.replace(place, from.size(), to);
    };
    renamed("in_projs.0.weight", "in_proj_weight");
    renamed("out_projs.0.weight", "out_proj.weight");
    renamed("cluster_usage", "cluster_size");
    renamed("embedding_sum", "embed_avg");
    older.emplace_back(key, tensor.clone());
  }
  for (const char* name : {"encoder.model.0.conv.conv.weight", "encoder_transformer.x", "downsample.conv.conv.conv.weight",
                           "quantizer.rvq_first.input_proj.weight", "quantizer.rvq_rest.vq.layers.0._codebook._initialized"})
    older.emplace_back(name, Tensor::ones({1}));
  target.load_published(older);
  const NoGradGuard no_grad;
  const Tensor codes = some_codes({1, 3, 4}, 6);
  CHECK(max_difference(target(codes), source(codes)) == 0);
  older.emplace_back("decoder.model.9.weight", Tensor::ones({1}));
  CHECK(error_of<Error>([&] { return target.load_published(older), 0; }).find("decoder.model.9.weight") != std::string::npos);
}

TEST_CASE("Mimi learns") {
  manual_seed(8);
  Mimi net(small());
  const Tensor codes = some_codes({2, 3, 6}, 6);
  const Losses losses = fine_tuned(net, codes, Tensor::randn({2, 1, 144}), 20);
  CHECK(losses.last < 0.95 * losses.first);
}

TEST_CASE("Mimi in 16 bits") {
  manual_seed(9);
  Mimi net(small());
  check_halves(net, some_codes({1, 3, 6}, 6));
}

TEST_CASE("a configuration of Mimi is read with the original's defaults") {
  const MimiConfig config = MimiConfig::parse(small_json());
  CHECK(config.seanet.kernel_size == 7);
  CHECK(config.seanet.last_kernel_size == 3);
  CHECK(config.quantizer.n_q_semantic == 1);
  CHECK(config.transformer.context == 5);
  CHECK(config.transformer.layer_scale == 0.5);
  CHECK(config.transformer.interleaved);
  CHECK(MimiConfig::parse(small_json("", "", R"(, "context": null, "layer_scale": null)")).transformer.context == 0);
  CHECK(!MimiConfig::parse(small_json("", "", R"(, "layer_scale": null)")).transformer.layer_scale);
  CHECK(Mimi(MimiConfig::parse(small_json("", "", "", "2000"))).format().samples_per_frame == 12);
  const MimiConfig odd = MimiConfig::parse(small_json(R"(, "n_residual_layers": 2, "pad_mode": "replicate")"));
  CHECK(odd.seanet.n_residual_layers == 2);
  CHECK(odd.seanet.pads_by_replicating);
  Mimi net(odd);
  CHECK(StateOf(net).has("decoder.model.7.block.1.conv.conv.weight"));
  check_stream_of(net, some_codes({1, 3, 20}, 6));
}

TEST_CASE("a configuration of Mimi that does not fit is refused in words") {
  CHECK(error_for("{}") == "mimi: config: expected seanet");
  CHECK(error_for(small_json(R"(, "activation": "ReLU")")) == "mimi: config: expected seanet.activation ELU, got ReLU");
  CHECK(error_for(small_json(R"(, "true_skip": false)")) == "mimi: config: expected seanet.true_skip true, got false");
  CHECK(error_for(small_json(R"(, "compress": 3)")) ==
        "mimi: config: expected seanet.n_filters of at least seanet.compress, got 2 and 3");
  CHECK(error_for(small_json(R"(, "ratios": [2147483648, 2147483648, 2147483648])")).find("seanet.ratios") !=
        std::string::npos);
  CHECK(error_for(small_json("", R"(, "n_q": 1)")) ==
        "mimi: config: expected quantizer.n_q above quantizer.n_q_semantic, got 1 and 1");
  CHECK(error_for(small_json("", R"(, "output_dimension": 9)")).find("quantizer.output_dimension") != std::string::npos);
  CHECK(error_for(small_json("", "", R"(, "gating": "silu")")) == "mimi: config: expected transformer.gating none, got silu");
  CHECK(error_for(small_json("", "", R"(, "num_heads": 3)")).find("got 8 and 3") != std::string::npos);
  CHECK(error_for(small_json("", "", R"(, "causal": false)")) == "mimi: config: expected transformer.causal true, got false");
  CHECK(error_for(small_json("", "", R"(, "input_dimension": 9)")).find("transformer.input_dimension") != std::string::npos);
  CHECK(error_for(small_json("", "", "", "1001")).find("got 24000, 1001 and 12") != std::string::npos);
  CHECK(error_for(small_json("", "", "", "0")) == "mimi: config: expected frame_rate above 0, got 0");
  MimiConfig config = small();
  config.streams_as_original = true;
  config.transformer.context = 1;
  CHECK(error_of<FormatError>([&] { return Mimi(config).format().rows; }).find("at least the 2 steps") != std::string::npos);
}

TEST_CASE("codes of Mimi that do not fit are refused in words") {
  Mimi net(small());
  CHECK(error_of<ShapeError>([&] {
          return net(some_codes({1, 4, 2}, 6));
        }) == "network: expected an input (N, 1 to 3, frames >= 1), got (1, 4, 2)");
  CHECK(error_of<DTypeError>([&] { return net.latent(Tensor::ones({1, 3, 2})); }).find("codes, i64") != std::string::npos);
  check_refuses_code(net, {1, 3, 2}, 6);
}
