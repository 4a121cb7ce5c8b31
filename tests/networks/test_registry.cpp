#include "networks/registry.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "networks/dac.hpp"
#include "networks/encodec.hpp"
#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

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
  const auto entries = network_entries();
  const auto dac = std::find_if(entries.begin(), entries.end(), [](const NetworkEntry& e) { return e.name == "dac"; });
  const bool has_front_end = dac->make_front_end != nullptr;
  REQUIRE(has_front_end);
  const FrontEnd encode = dac->make_front_end(config, codec.state_dict(), default_device());
  const Tensor audio = Tensor::randn({1, 1, 1000});
  CHECK(encode(audio).to_vector<std::int64_t>() == codec.encode(audio).to_vector<std::int64_t>());
  CHECK(error_of<Error>([&] { return dac->make_front_end(config, {}, default_device()) == nullptr; }).find("encoder.block.0") !=
        std::string::npos);
}

TEST_CASE("EnCodec's front end is its encoder, unless the audio is in segments") {
  const std::string model =
      R"("seanet": {"dimension": 6, "n_filters": 2, "ratios": [4, 2], "compress": 2}, "quantizer": {"n_q": 3, "bins": 16})";
  EncodecEncoder encoder(EncodecConfig::parse("{" + model + "}"));
  encoder.eval();
  const auto entries = network_entries();
  const auto encodec = std::find_if(entries.begin(), entries.end(), [](const NetworkEntry& e) { return e.name == "encodec"; });
  const bool has_front_end = encodec->make_front_end != nullptr;
  REQUIRE(has_front_end);
  const FrontEnd encode = encodec->make_front_end("{" + model + "}", encoder.state_dict(), default_device());
  const Tensor audio = Tensor::randn({1, 1, 100});
  CHECK(encode(audio).to_vector<std::int64_t>() == encoder.encode(audio).front().codes.to_vector<std::int64_t>());
  const std::string in_segments = R"({"segment": 1.0, )" + model + "}";
  CHECK(error_of<NotImplemented>([&] {
          return encodec->make_front_end(in_segments, {}, default_device()) == nullptr;
        }).find("segments of 1 s") != std::string::npos);
}

TEST_CASE("a network by its name") {
  const auto net = make_network("hifigan", R"({"resblock": "2", "upsample_rates": [4], "upsample_kernel_sizes": [8],
      "upsample_initial_channel": 4, "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1]], "num_mels": 5})");
  CHECK(net->format().rows == 5);
  CHECK(error_of<FormatError>([&] { return make_network("hifi", "{}"); }).find("hifigan") != std::string::npos);
  CHECK(error_of<FormatError>([&] { return make_network("hifigan", "{}"); }).starts_with("hifigan: config: "));
}
