#include "networks/encodec.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "layers/weight_norm.hpp"
#include "networks/blocks/encodec_layers.hpp"
#include "networks/blocks/segment_overlap.hpp"
#include "ops/activations.hpp"
#include "ops/length.hpp"
#include "ops/lstm.hpp"
#include "ops/norm.hpp"
#include "support/fine_tuning.hpp"
#include "support/network_state.hpp"
#include "support/stream.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

EncodecConfig small(bool is_48khz = false) {
  EncodecConfig config{.dimension = 6, .n_filters = 2, .ratios = {4, 2}, .n_q = 3, .bins = 16};
  if (!is_48khz) return config;
  config.sample_rate = 40;
  config.channels = 2;
  config.causal = false;
  config.time_group_norm = config.audio_normalize = true;
  config.segment = 1.0;
  config.overlap = 0.1;
  return config;
}

Tensor some_codes(const Shape& shape, std::int64_t bins = 16) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < shape.numel(); ++i) numbers.push_back(i * i % 31 % bins);
  return Tensor::from_vector(numbers, shape);
}

std::string error_for(const std::string& json) {
  return error_of<FormatError>([&] { return EncodecConfig::parse(json); });
}

// SEANet by plain operations.
struct Plain {
  const EncodecConfig& config;
  const NetworkState& of;

  Tensor normed(const Tensor& x, const std::string& name) const {
    return config.time_group_norm ? group_norm(x, 1, of(name + ".norm.weight"), of(name + ".norm.bias")) : x;
  }
  Tensor conv(const Tensor& x, const std::string& name, std::int64_t stride = 1, std::int64_t dilation = 1) const {
    const std::int64_t total = (of(name + ".conv.conv.weight").size(2) - 1) * dilation + 1 - stride;
    const std::int64_t right = config.causal ? 0 : total / 2, over = x.size(2) % stride;
    const Tensor padded = networks::reflect_padded(x, total - right, right + (over == 0 ? 0 : stride - over));
    return normed(of.conv(padded, name + ".conv.conv", {.stride = stride, .dilation = dilation}), name + ".conv");
  }
  Tensor up(const Tensor& x, const std::string& name, std::int64_t ratio) const {
    const Tensor whole =
        normed(conv_transpose1d(x, of(name + ".convtr.convtr.weight"), of(name + ".convtr.convtr.bias"), {.stride = ratio}),
               name + ".convtr");
    const std::int64_t left = config.causal ? 0 : ratio - ratio / 2;
    return whole.narrow(2, left, ratio * x.size(2));
  }
  // Residual units from number `index` on; increments `index`.
  Tensor residuals(Tensor x, const std::string& at, std::int64_t& index) const {
    std::int64_t dilation = 1;
    for (std::int64_t i = 0; i < config.n_residual_layers; ++i, dilation *= config.dilation_base) {
      const std::string name = concat(at, index++);
      const Tensor block = conv(elu(conv(elu(x), name + ".block.1", 1, dilation)), name + ".block.3");
      x = (config.true_skip ? x : conv(x, name + ".shortcut")) + block;
    }
    return x;
  }
  Tensor recurrent(const Tensor& x, const std::string& name) const {
    Tensor y = x.transpose(1, 2).contiguous();
    for (const char* layer : {"_l0", "_l1"}) {
      const auto own = [&](const char* what) { return of(concat(name, ".lstm.", what, layer)); };
      y = lstm(y, {own("weight_ih"), own("weight_hh"), own("bias_ih"), own("bias_hh")}).y;
    }
    return y.transpose(1, 2) + x;
  }
  Tensor decoder(const Tensor& latent) const {
    const std::string at = "decoder.model.";
    Tensor x = recurrent(conv(latent, at + "0"), at + "1");
    std::int64_t index = 3;
    for (const std::int64_t ratio : config.ratios) {
      x = up(elu(x), concat(at, index++), ratio);
      x = residuals(x, at, index);
      ++index;
    }
    return conv(elu(x), concat(at, index));
  }
  Tensor encoder(const Tensor& audio) const {
    const std::string at = "encoder.model.";
    Tensor x = conv(audio, at + "0");
    std::int64_t index = 1;
    for (auto ratio = config.ratios.rbegin(); ratio != config.ratios.rend(); ++ratio) {
      x = residuals(x, at, index);
      x = conv(elu(x), concat(at, index + 1), *ratio);
      index += 2;
    }
    return conv(elu(recurrent(x, concat(at, index))), concat(at, index + 2));
  }
};

}  // namespace

TEST_CASE("EnCodec's decoder and encoder have the original's names, and take a whole checkpoint") {
  Encodec decoder(small());
  EncodecEncoder encoder(small());
  weight_norm(decoder);
  weight_norm(encoder);
  const NetworkState of(decoder), in(encoder);
  for (const char* name :
       {"decoder.model.0.conv.conv.weight_g", "decoder.model.1.lstm.bias_hh_l1", "decoder.model.3.convtr.convtr.weight_v",
        "decoder.model.4.block.1.conv.conv.bias", "decoder.model.4.shortcut.conv.conv.weight_g",
        "decoder.model.6.convtr.convtr.bias", "decoder.model.9.conv.conv.weight_v", "quantizer.vq.layers.2._codebook.embed"})
    CHECK_MESSAGE(of.has(name), name);
  for (const char* name : {"encoder.model.0.conv.conv.weight_g", "encoder.model.3.conv.conv.bias",
                           "encoder.model.7.lstm.weight_ih_l0", "encoder.model.9.conv.conv.bias"})
    CHECK_MESSAGE(in.has(name), name);
  CHECK(decoder.state_dict().size() == 3 * 10 + 8 + 3);
  CHECK(encoder.state_dict().size() == 3 * 10 + 8 + 3);
  Encodec stereo(small(true));
  for (const char* name : {"decoder.model.0.conv.norm.weight", "decoder.model.3.convtr.norm.bias"})
    CHECK_MESSAGE(NetworkState(stereo).has(name), name);

  NamedTensors all = decoder.state_dict();
  for (const auto& entry : encoder.state_dict())
    if (entry.first.starts_with("encoder.")) all.push_back(entry);
  for (const char* name : {"inited", "cluster_size", "embed_avg"})
    all.emplace_back(concat("quantizer.vq.layers.0._codebook.", name), Tensor::ones({1}));
  Encodec other(small());
  EncodecEncoder other_encoder(small());
  other.load_published(all);
  other_encoder.load_published(all);
  const Tensor codes = some_codes({1, 3, 5});
  CHECK(relative_difference(f64_values(other(codes).detach()), f64_values(decoder(codes).detach())) < kFloatSum);
  all.erase(all.begin());
  CHECK(error_of<Error>([&] { return other.load_published(all), 0; }).find("quantizer.vq.layers.0._codebook.embed") !=
        std::string::npos);
}

TEST_CASE("EnCodec is the original's network, step by step") {
  manual_seed(3);
  std::vector<EncodecConfig> configs{small(), small(true), small()};
  configs[2].n_residual_layers = 3;
  configs[2].dilation_base = 3;
  configs[2].residual_kernel_size = 5;
  configs[2].true_skip = true;
  configs[2].compress = 1;
  for (const EncodecConfig& config : configs) {
    Encodec decoder(config);
    EncodecEncoder encoder(config);
    const NoGradGuard no_grad;
    for (Module* net : {static_cast<Module*>(&decoder), static_cast<Module*>(&encoder)}) {
      net->to(DType::f64);
      randomise(*net);
    }
    const NetworkState of(decoder), in(encoder);
    for (const std::int64_t frames : {1, 2, 5}) {
      const Tensor codes = some_codes({2, 3, frames});
      const Tensor expected = Plain{config, of}.decoder(decoder.latent(codes));
      CHECK(expected.shape() == Shape{2, config.channels, 8 * frames});
      CHECK(relative_difference(f64_values(decoder.decode_latent(decoder.latent(codes))), f64_values(expected)) <
            kDoubleRounding);
    }
    for (const std::int64_t samples : {1, 7, 8, 39}) {
      const Tensor audio = random_f64({2, config.channels, samples}, 4);
      CHECK(relative_difference(f64_values(encoder.latent(audio)), f64_values(Plain{config, in}.encoder(audio))) < kDoubleSum);
    }
  }
}

TEST_CASE("EnCodec's segments: codes one after another, scales, overlap") {
  manual_seed(4);
  const EncodecConfig config = small(true);
  CHECK(config.segment_length() == 40);
  CHECK(config.segment_stride() == 36);
  CHECK(config.segment_frames() == 5);
  Encodec net(config);
  net.to(DType::f64);
  randomise(net);
  const NoGradGuard no_grad;
  const Tensor codes = some_codes({2, 3, 12});  // 5, 5 and 2 frames
  networks::SegmentOverlap overlap(36);
  std::vector<Tensor> pieces;
  std::vector<EncodecSegment> segments;
  const Tensor scale = Tensor::from_vector<double>({2, 3}, {2, 1});
  for (const auto& [begin, count] : {std::pair{0, 5}, {5, 5}, {10, 2}}) {
    segments.push_back({codes.narrow(2, begin, count), scale});
    pieces.push_back(overlap.add(net.decode_latent(net.latent(segments.back().codes))));
  }
  pieces.push_back(overlap.finish());
  const Tensor expected = cat(pieces, 2);
  CHECK(expected.shape() == Shape{2, 2, 36 + 36 + 16});
  CHECK(max_difference(net(codes), expected) == 0);
  CHECK(max_difference(net.decode(segments), expected * scale.reshape({2, 1, 1})) < kDoubleRounding);
  // An encoder's segments: 40 samples, 38, and the last 2, which make a frame of 8.
  EncodecEncoder encoder(config);
  encoder.to(DType::f64);
  const std::vector<EncodecSegment> sent = encoder.encode(random_f64({1, 2, 36 + 38}), 2);
  REQUIRE(sent.size() == 3);
  CHECK(sent[1].codes.shape() == Shape{1, 2, 5});
  CHECK(sent[2].codes.shape() == Shape{1, 2, 1});
  CHECK(net.decode(sent).size(2) == 2 * 36 + 8);
}

TEST_CASE("EnCodec encodes: codes of the latent, by volume where asked") {
  manual_seed(5);
  const NoGradGuard no_grad;
  EncodecEncoder plain(small());
  plain.to(DType::f64);
  const Tensor audio = random_f64({2, 1, 43}, 6);
  const std::vector<EncodecSegment> one = plain.encode(audio);
  REQUIRE(one.size() == 1);
  CHECK(one[0].codes.shape() == Shape{2, 3, 6});
  CHECK(!one[0].scale.defined());
  CHECK(plain.encode(audio, 1)[0].codes.to_vector<std::int64_t>() == one[0].codes.narrow(1, 0, 1).to_vector<std::int64_t>());

  EncodecEncoder stereo(small(true));
  stereo.to(DType::f64);
  const Tensor sound = random_f64({2, 2, 30}, 7);
  const std::vector<EncodecSegment> scaled = stereo.encode(sound), louder = stereo.encode(sound * 8.0);
  CHECK(scaled[0].scale.shape() == Shape{2, 1});
  const Tensor mono = (sound.select(1, 0) + sound.select(1, 1)) * 0.5;
  CHECK(max_difference(scaled[0].scale, sqrt(mean(square(mono), {1}, true)) + 1e-8) < kDoubleRounding);
  CHECK(max_difference(louder[0].scale, scaled[0].scale * 8.0) < kFloatRounding);
  CHECK(louder[0].codes.to_vector<std::int64_t>() == scaled[0].codes.to_vector<std::int64_t>());
}

TEST_CASE("the encoder's gradient passes the codebooks, which stay") {
  manual_seed(6);
  EncodecEncoder encoder(small());
  encoder.to(DType::f64);
  const Tensor audio = random_f64({1, 1, 24}, 2), weights = random_f64({1, 6, 3}, 3);
  const Tensor books = NetworkState(encoder)("quantizer.vq.layers.0._codebook.embed").clone();
  sum(encoder(audio) * weights).backward();
  std::vector<Tensor> through;
  for (const Tensor& parameter : encoder.parameters()) through.push_back(parameter.grad().clone());
  encoder.zero_grad();
  sum(encoder.latent(audio) * weights).backward();
  for (std::size_t i = 0; i < through.size(); ++i) CHECK(max_difference(encoder.parameters()[i].grad(), through[i]) == 0);
  CHECK(max_difference(NetworkState(encoder)("quantizer.vq.layers.0._codebook.embed"), books) == 0);
  encoder.eval();
  CHECK(!encoder(audio).requires_grad());
}

TEST_CASE("EnCodec learns, and computes in 16 bits") {
  manual_seed(7);
  for (const bool is_48khz : {false, true}) {
    Encodec net(small(is_48khz));
    const Tensor codes = some_codes({2, 2, 7});
    const Shape shape = net(codes).shape();
    check_fine_tuning(net, codes, uniform_f64(shape, -0.5, 0.5).to(DType::f32), 1e-2);
    const NoGradGuard no_grad;
    const std::vector<double> exact = f64_values(net(codes));
    for (const DType dtype : {DType::f16, DType::bf16}) {
      net.to(dtype);
      CHECK(net(codes).dtype() == dtype);
      CHECK(relative_difference(f64_values(net(codes)), exact) < (dtype == DType::f16 ? kNetworkHalf : kNetworkBFloat16));
    }
  }
  EncodecConfig fine = small();  // enough codes that the loss can fall, whatever the initial weights
  fine.n_q = 8;
  fine.bins = 256;
  EncodecEncoder encoder(fine);
  check_fine_tuning(encoder, random_f64({2, 1, 40}).to(DType::f32), uniform_f64({2, 6, 5}, -0.5, 0.5).to(DType::f32), 2e-2,
                    /*steps=*/40);
}

TEST_CASE("EnCodec in pieces of codes of any length") {
  manual_seed(8);
  const auto check = [](const EncodecConfig& config) {
    Encodec net(config);
    net.eval();
    for (const DType dtype : {DType::f32, DType::f64}) {
      net.to(dtype);
      for (const std::int64_t frames : {1, 2, 6, 7, 8, 50}) {
        CAPTURE(frames);
        check_stream_of(net, some_codes({2, 3, frames}));
        check_stream_of(net, some_codes({1, 1, frames}));
      }
    }
  };
  check(small());
  EncodecConfig other = small();
  other.causal = false;
  other.n_residual_layers = 2;
  check(other);
  other.true_skip = true;
  other.lstm = 0;
  check(other);
  check(small(true));
}

TEST_CASE("EnCodec's streams: what they wait for, and what they refuse") {
  Encodec net(small(true));
  Stream stream(net);
  CHECK(stream.push(some_codes({1, 3, 4})).shape() == Shape{1, 2, 0});
  CHECK(stream.push(some_codes({1, 3, 1})).size(2) == 36);
  CHECK(stream.push(some_codes({1, 3, 11})).size(2) == 72);
  CHECK(stream.finish().size(2) == 8);
  CHECK(stream.latency() >= 4);
  EncodecConfig whole = small(true);
  whole.segment.reset();
  Encodec unsegmented(whole);
  CHECK(error_of<NotImplemented>([&] { return Stream(unsegmented).latency(); }).find("time_group_norm") != std::string::npos);
  EncodecEncoder encoder(small());
  CHECK(error_of<NotImplemented>([&] { return Stream(encoder).latency(); }).find("EncodecEncoder") != std::string::npos);
}

TEST_CASE("inputs of EnCodec that do not fit are refused in words") {
  Encodec net(small());
  if (default_device().is_cpu())  // a GPU does not wait for the result
    CHECK(error_of<ShapeError>([&] {
            return net(some_codes({1, 3, 5}, 31));
          }).find("expected codes in [0, 16), got") != std::string::npos);
  CHECK(error_of<ShapeError>([&] {
          return net(some_codes({1, 4, 5}));
        }) == "network: expected an input (N, 1 to 3, frames >= 1), got (1, 4, 5)");
  CHECK(error_of<DTypeError>([&] { return net(Tensor::ones({1, 3, 5})); }).find("codes, i64") != std::string::npos);
  CHECK(error_of<ShapeError>([&] { return net.decode({}); }) == "encodec: expected at least one segment");
  const std::vector<EncodecSegment> two{{some_codes({1, 3, 5})}, {some_codes({1, 3, 5})}};
  CHECK(error_of<ShapeError>([&] { return net.decode(two); }) ==
        "encodec: expected one segment, got 2 for a configuration without segments");
  const std::vector<EncodecSegment> scaled{{some_codes({1, 3, 5}), Tensor::ones({2, 1})}};
  CHECK(error_of<ShapeError>([&] { return net.decode(scaled); }) == "encodec: expected a scale (1, 1), got (2, 1)");
  EncodecEncoder encoder(small());
  CHECK(error_of<ShapeError>([&] { return encoder.encode(Tensor::ones({1, 2, 50})); }).find("(1, 2, 50)") != std::string::npos);
  CHECK(error_of<ShapeError>([&] { return encoder.encode(Tensor::ones({1, 1, 50}), 4); }).find("got 4") != std::string::npos);
}

TEST_CASE("a configuration of EnCodec") {
  const EncodecConfig defaults = EncodecConfig::parse("{}");
  CHECK(defaults.hop_length() == 320);
  CHECK(defaults.n_q == 32);
  CHECK(defaults.codebooks_for(6) == 8);
  CHECK(defaults.codebooks_for(0.1) == 1);
  CHECK(defaults.codebooks_for(1000) == 32);
  const EncodecConfig stereo = EncodecConfig::parse(
      R"({"target_bandwidths": [3, 6, 12, 24], "sample_rate": 48000, "channels": 2, "causal": false, "model_norm": "time_group_norm",
          "audio_normalize": true, "segment": 1.0})");
  CHECK(stereo.n_q == 16);
  CHECK(stereo.segment_length() == 48000);
  CHECK(stereo.segment_stride() == 47520);
  CHECK(stereo.segment_frames() == 150);
  CHECK(error_for("[").starts_with("encodec: config: "));
  CHECK(error_for(R"({"model_norm": "layer_norm"})") ==
        "encodec: config: expected model_norm weight_norm, time_group_norm or none, got layer_norm");
  CHECK(error_for(R"({"model_norm": "time_group_norm"})").find("causal false") != std::string::npos);
  CHECK(error_for(R"({"seanet": {"ratios": []}})").find("seanet.ratios") != std::string::npos);
  CHECK(error_for(R"({"seanet": {"pad_mode": "constant"}})") ==
        "encodec: config: expected seanet.pad_mode reflect, got constant");
  CHECK(error_for(R"({"seanet": {"activation": "Snake"}})").find("got Snake") != std::string::npos);
  CHECK(error_for(R"({"seanet": {"trim_right_ratio": 0.5}})").find("got 0.5") != std::string::npos);
  CHECK(error_for(R"({"seanet": {"final_activation": "Tanh"}})").find("final_activation") != std::string::npos);
  CHECK(error_for(R"({"seanet": {"n_filters": 1}})").find("compress") != std::string::npos);
  CHECK(error_for(R"({"quantizer": {"dimension": 64}})") ==
        "encodec: config: expected quantizer.dimension to be seanet.dimension=128, got 64");
  CHECK(error_for(R"({"target_bandwidths": [0.1]})").find("target_bandwidths") != std::string::npos);
  CHECK(error_for(R"({"target_bandwidths": "x"})").find("a list of numbers") != std::string::npos);
  CHECK(error_for(R"({"segment": -1})").find("segment") != std::string::npos);
  CHECK(error_for(R"({"overlap": 1})").find("overlap") != std::string::npos);
}
