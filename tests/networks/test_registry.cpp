#include "networks/registry.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "autograd/no_grad.hpp"
#include "networks/dac.hpp"
#include "networks/encodec.hpp"
#include "support/helpers.hpp"
#include "support/stream.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

/// One that takes sound.
const NetworkEntry& entry_of(std::string_view name) {
  const auto entries = network_entries();
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const NetworkEntry& e) { return e.name == name; });
  REQUIRE(found != entries.end());
  const bool has_front_end = found->make_front_end != nullptr;
  REQUIRE(has_front_end);
  return *found;
}

}  // namespace

TEST_CASE("entries are sorted by name, and each has a line about it") {
  const auto entries = network_entries();
  CHECK(!entries.empty());
  CHECK(std::is_sorted(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; }));
  for (const NetworkEntry& entry : entries) CHECK(!entry.what.empty());
}

TEST_CASE("codecs by their names") {
  CHECK(make_network("dac", R"({"encoder_dim": 2, "decoder_dim": 16, "n_codebooks": 2})")->format().samples_per_frame == 512);
  CHECK(make_network("snac", R"({"encoder_dim": 2, "decoder_dim": 64, "codebook_size": 8})")->format().rows == 15);
  CHECK(make_network("oobleck", R"({"model": {"decoder": {"type": "oobleck", "config": {"channels": 1, "latent_dim": 3}}}})")
            ->format()
            .rows == 3);
}

TEST_CASE("DAC's front end is its encoder") {
  const std::string config = R"({"encoder_dim": 2, "decoder_dim": 16, "n_codebooks": 2, "codebook_size": 16})";
  Dac codec(DacConfig::parse(config));
  const NetworkEntry& dac = entry_of("dac");
  const FrontEnd encode = dac.make_front_end(config, codec.state_dict(), default_device());
  const Tensor audio = Tensor::randn({1, 1, 1000});
  CHECK(encode(audio).input.to_vector<std::int64_t>() == codec.encode(audio).to_vector<std::int64_t>());
  CHECK(error_of<Error>([&] { return dac.make_front_end(config, {}, default_device()) == nullptr; }).find("encoder.block.0") !=
        std::string::npos);
}

TEST_CASE("EnCodec's front end is its encoder") {
  const std::string model =
      R"("seanet": {"dimension": 6, "n_filters": 2, "ratios": [4, 2], "compress": 2}, "quantizer": {"n_q": 3, "bins": 16})";
  EncodecEncoder encoder(EncodecConfig::parse("{" + model + "}"));
  encoder.eval();
  const FrontEnd encode = entry_of("encodec").make_front_end("{" + model + "}", encoder.state_dict(), default_device());
  const Tensor audio = Tensor::randn({1, 1, 100});
  const FrontEndOutput made = encode(audio);
  CHECK(made.input.to_vector<std::int64_t>() == encoder.encode(audio).front().codes.to_vector<std::int64_t>());
  CHECK(!made.scales.defined());
}

TEST_CASE("EnCodec's segments are joined, and the decoder takes them apart again") {
  const std::string config = R"({"sample_rate": 400, "channels": 1, "segment": 1.0, "overlap": 0.1, "audio_normalize": true,
      "causal": false, "model_norm": "time_group_norm",
      "seanet": {"dimension": 6, "n_filters": 2, "ratios": [4, 2], "compress": 2}, "quantizer": {"n_q": 3, "bins": 16}})";
  EncodecEncoder encoder(EncodecConfig::parse(config));
  encoder.eval();
  Encodec decoder(EncodecConfig::parse(config));
  decoder.eval();
  const NoGradGuard no_grad;
  const FrontEnd encode = entry_of("encodec").make_front_end(config, encoder.state_dict(), default_device());
  // Segments of 400 samples, 50 frames, begin 360 apart: three; two, the second shorter; two, a third within the second.
  for (const auto& [length, used] : {std::pair<std::int64_t, std::size_t>{960, 3}, {700, 2}, {725, 2}}) {
    const std::int64_t samples = length;  // clang's lambdas capture no structured binding
    CAPTURE(samples);
    const Tensor audio = Tensor::randn({1, 1, samples});
    std::vector<EncodecSegment> segments = encoder.encode(audio);
    const FrontEndOutput made = encode(audio);
    CHECK(made.scales.shape() == Shape{1, static_cast<std::int64_t>(used)});
    decoder.set_scales(made.scales);
    const Tensor together = decoder(made.input);
    CHECK(together.size(2) >= samples);
    segments.resize(used);
    CHECK(max_difference(together, decoder.decode(segments)) == 0);
    check_stream_of(decoder, made.input);
    decoder.set_scales({});
    CHECK(max_difference(together, decoder(made.input)) > 0);
  }
  CHECK(error_of<ShapeError>([&] { return decoder.set_scales(Tensor::ones({3})), 0; }).find("(3,)") != std::string::npos);
  const auto unsegmented = make_network("encodec", "{}");
  CHECK(error_of<NotImplemented>([&] {
          return unsegmented->set_scales(Tensor::ones({1, 3})), 0;
        }) == "network: expected no scales, because there are no segments, got (1, 3)");
}

TEST_CASE("a network by its name") {
  const auto net = make_network("hifigan", R"({"resblock": "2", "upsample_rates": [4], "upsample_kernel_sizes": [8],
      "upsample_initial_channel": 4, "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1]], "num_mels": 5})");
  CHECK(net->format().rows == 5);
  CHECK(error_of<FormatError>([&] { return make_network("hifi", "{}"); }).find("hifigan") != std::string::npos);
  CHECK(error_of<FormatError>([&] { return make_network("hifigan", "{}"); }).starts_with("hifigan: config: "));
}
