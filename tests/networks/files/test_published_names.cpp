#include "networks/files/published_names.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

NamedTensors named_ones(const std::vector<std::string>& names, const Shape& shape = {2}) {
  NamedTensors tensors;
  for (const std::string& name : names) tensors.emplace_back(name, Tensor::ones(shape));
  return tensors;
}

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a network is recognised by its tensors' names, with any prefix") {
  const auto network = [](const Names& names) { return network_of(named_ones(names)); };
  CHECK(network({"generator.conv_pre.weight_g", "generator.ups.0.weight_v"}) == "hifigan");
  CHECK(network({"dec.ups.0.weight"}) == "hifigan");
  CHECK(network({"generator.ups.0.0.weight_v"}) == "bigvgan");
  CHECK(network({"state_dict.decoder.model.1.block.0.alpha", "state_dict.quantizer.quantizers.0.codebook.weight"}) == "dac");
  CHECK(network({"decoder.model.1.block.0.alpha", "decoder.model.3.block.2.linear.parametrizations.weight.original0"}) ==
        "snac");
  CHECK(network({"quantizer.vq.layers.0._codebook.embed"}) == "encodec");
  CHECK(network({"quantizer.rvq_first.vq.layers.0._codebook.cluster_usage"}) == "mimi");
  CHECK(network({"pretransform.model.decoder.layers.1.layers.0.beta"}) == "oobleck");
  CHECK(network({"backbone.convnext.0.gamma"}) == "vocos");
  CHECK(network({"decoder.block.0.conv_t1.weight"}) == "dac");
  CHECK(network({"decoder.block.0.conv_t1.weight_g", "decoder.block.0.snake1.beta"}) == "oobleck");
  CHECK(network({"quantizer.layers.3.codebook.embed"}) == "encodec");
  CHECK(network({"upsampler.0.weight"}) == "hifigan");
  CHECK(network({"groups.0.weight", "layer.weight"}).empty());
}

TEST_CASE("DAC as transformers names it") {
  const Names theirs{"decoder.conv1.bias",
                     "decoder.block.0.snake1.alpha",
                     "decoder.block.3.conv_t1.weight",
                     "decoder.block.1.res_unit3.conv2.bias",
                     "decoder.snake1.alpha",
                     "decoder.conv2.weight",
                     "encoder.conv1.weight",
                     "encoder.block.2.res_unit1.snake2.alpha",
                     "encoder.block.0.conv1.weight",
                     "encoder.conv2.bias",
                     "quantizer.quantizers.4.in_proj.weight"};
  const Names original{"decoder.model.0.bias",
                       "decoder.model.1.block.0.alpha",
                       "decoder.model.4.block.1.weight",
                       "decoder.model.2.block.4.block.3.bias",
                       "decoder.model.5.alpha",
                       "decoder.model.6.weight",
                       "encoder.block.0.weight",
                       "encoder.block.3.block.0.block.2.alpha",
                       "encoder.block.1.block.4.weight",
                       "encoder.block.5.bias",
                       "quantizer.quantizers.4.in_proj.weight"};
  CHECK(names_of(with_original_names("dac", named_ones(theirs))) == original);
  CHECK(names_of(with_original_names("dac", named_ones(original))) == original);
}

TEST_CASE("Oobleck as diffusers names it, its parameters of Snake as rows") {
  NamedTensors theirs = named_ones({"decoder.block.4.res_unit2.snake1.alpha", "decoder.block.0.snake1.beta"}, {1, 3, 1});
  theirs.emplace_back("decoder.block.1.conv_t1.weight_g", Tensor::ones({3, 1, 1}));
  theirs.emplace_back("decoder.conv2.weight_v", Tensor::ones({2, 3, 7}));
  const NamedTensors original = with_original_names("oobleck", theirs);
  CHECK(names_of(original) == Names{"decoder.layers.5.layers.3.layers.0.alpha", "decoder.layers.1.layers.0.beta",
                                    "decoder.layers.2.layers.1.weight_g", "decoder.layers.7.weight_v"});
  CHECK(original[0].second.shape() == Shape{3});
  CHECK(original[2].second.shape() == Shape{3, 1, 1});
}

TEST_CASE("EnCodec as transformers names it: the first and the last layer are no transposed ones") {
  const Names theirs{
      "decoder.layers.0.conv.weight_g",     "decoder.layers.3.conv.weight_v",      "decoder.layers.3.norm.bias",
      "decoder.layers.15.conv.bias",        "decoder.layers.15.norm.weight",       "decoder.layers.1.lstm.weight_ih_l0",
      "decoder.layers.4.block.3.conv.bias", "decoder.layers.4.shortcut.conv.bias", "quantizer.layers.31.codebook.embed",
      "encoder.layers.3.conv.bias",         "encoder.layers.13.lstm.bias_hh_l1"};
  const Names original{"decoder.model.0.conv.conv.weight_g",     "decoder.model.3.convtr.convtr.weight_v",
                       "decoder.model.3.convtr.norm.bias",       "decoder.model.15.conv.conv.bias",
                       "decoder.model.15.conv.norm.weight",      "decoder.model.1.lstm.weight_ih_l0",
                       "decoder.model.4.block.3.conv.conv.bias", "decoder.model.4.shortcut.conv.conv.bias",
                       "quantizer.vq.layers.31._codebook.embed", "encoder.model.3.conv.conv.bias",
                       "encoder.model.13.lstm.bias_hh_l1"};
  CHECK(names_of(with_original_names("encodec", named_ones(theirs))) == original);
}

TEST_CASE(
    "Mimi as transformers names it: three projections become one, with the rows of queries and keys in the original's order") {
  const std::int64_t rows = 128, columns = 3;
  const Tensor q = random_f64({rows, columns}, 1), k = random_f64({rows, columns}, 2), v = random_f64({rows, columns}, 3);
  // The original's rows in the order of transformers' converter: in each head of 64 the even rows first.
  const auto halves = [&](const Tensor& w) { return w.reshape({2, 32, 2, columns}).transpose(1, 2).reshape({rows, columns}); };
  const std::string layer = "decoder_transformer.layers.5.self_attn.";
  const NamedTensors original = with_original_names(
      "mimi", {{"quantizer.semantic_residual_vector_quantizer.layers.0.codebook.embed_sum", Tensor::ones({2})},
               {layer + "q_proj.weight", halves(q)},
               {layer + "k_proj.weight", halves(k)},
               {layer + "v_proj.weight", v},
               {layer + "o_proj.weight", v},
               {"decoder.layers.2.conv.weight", v},
               {"decoder.layers.14.conv.weight", v},
               {"upsample.conv.weight", v},
               {"decoder_transformer.layers.5.mlp_layer_scale.scale", v}});
  CHECK(names_of(original) == Names{"quantizer.rvq_first.vq.layers.0._codebook.embedding_sum",
                                    "decoder_transformer.transformer.layers.5.self_attn.out_projs.0.weight",
                                    "decoder.model.2.convtr.convtr.weight", "decoder.model.14.conv.conv.weight",
                                    "upsample.convtr.convtr.convtr.weight",
                                    "decoder_transformer.transformer.layers.5.layer_scale_2.scale",
                                    "decoder_transformer.transformer.layers.5.self_attn.in_projs.0.weight"});
  const Tensor joined = original.back().second;
  CHECK(max_difference(joined.narrow(0, 0, rows), q) == 0);
  CHECK(max_difference(joined.narrow(0, rows, rows), k) == 0);
  CHECK(max_difference(joined.narrow(0, 2 * rows, rows), v) == 0);
  CHECK(error_of<FormatError>([&] {
          return with_original_names("mimi", {{"quantizer.semantic_residual_vector_quantizer.layers.0.codebook.embed_sum", v},
                                              {layer + "q_proj.weight", q}});
        }).find("q_proj, k_proj and v_proj") != std::string::npos);
}

TEST_CASE("the prefix of most of the network's names is removed, other parts are ignored") {
  const NamedTensors own = named_ones({"conv.weight", "conv.bias", "ups.0.weight"});
  const NamedTensors file =
      named_ones({"mpd.conv.weight", "generator.conv.weight_g", "generator.conv.weight_v", "generator.conv.bias",
                  "generator.ups.0.parametrizations.weight.original1", "generator.more", "steps"});
  CHECK(names_of(without_prefix(file, own)) ==
        Names{"conv.weight_g", "conv.weight_v", "conv.bias", "ups.0.parametrizations.weight.original1", "more"});
  CHECK(names_of(without_prefix(own, own)) == names_of(own));
  CHECK(names_of(without_prefix(named_ones({"a.b"}), own)) == Names{"a.b"});
}

TEST_CASE("a weight norm becomes one weight in v's place, in either spelling") {
  const Tensor g = Tensor::full({2, 1, 1}, 3), v = Tensor::ones({2, 2, 2});
  const NamedTensors folded = with_folded_weights({{"a.weight_g", g},
                                                   {"a.bias", g},
                                                   {"a.weight_v", v},
                                                   {"b.parametrizations.weight.original0", g},
                                                   {"b.parametrizations.weight.original1", v},
                                                   {"c.weight_g", g}});
  CHECK(names_of(folded) == Names{"a.bias", "a.weight", "b.weight", "c.weight_g"});
  CHECK(folded[1].second.to_vector<float>() == std::vector<float>(8, 1.5F));
  CHECK(folded[2].second.to_vector<float>() == std::vector<float>(8, 1.5F));
}
