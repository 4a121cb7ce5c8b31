#include "run/input.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "io/npy.hpp"
#include "io/safetensors.hpp"
#include "support/helpers.hpp"
#include "support/sound.hpp"
#include "support/temporary_directory.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;
using namespace polyphase::tool;

namespace {

constexpr NetworkFormat kMel{.input = NetworkInput::mel, .rows = 4, .samples_per_frame = 8, .sampling_rate = 8000};
constexpr NetworkFormat kCodes{.input = NetworkInput::codes, .rows = 4, .samples_per_frame = 8, .sampling_rate = 8000};

std::string error_for(const std::string& path, const NetworkFormat& format) {
  return error_of<FormatError>([&] { return read_input(path, format).tensor.shape(); });
}

bool refused(const std::string& path, const NetworkFormat& format, const char* part) {
  const std::string error = error_for(path, format);
  CAPTURE(error);
  CHECK(error.starts_with(path));
  return error.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a mel with and without a batch, the only tensor of a file or the one of that name") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("mel");
  const Tensor mel = random_f64({4, 7}).to(DType::f32);
  save_npy(path, mel);
  CHECK(max_difference(read_input(path, kMel).tensor, mel.unsqueeze(0)) == 0);
  save_npy(path, mel.unsqueeze(0));
  CHECK(read_input(path, kMel).tensor.shape() == Shape{1, 4, 7});
  save_safetensors(path, {{"other", Tensor::ones({3})}, {"mel", mel}});
  CHECK(max_difference(read_input(path, kMel).tensor, mel.unsqueeze(0)) == 0);
  save_safetensors(path, {{"other", Tensor::ones({3})}, {"more", mel}});
  CHECK(refused(path, kMel, "one that is called mel, got 2: other, more"));
}

TEST_CASE("what the network cannot take is refused with the file's name") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("x");
  const auto saved = [&](const Tensor& tensor) {
    save_npy(path, tensor);
    return path;
  };
  CHECK(refused(saved(Tensor::ones({5, 7})), kMel, "expected mel (4, frames) or (1, 4, frames), got (5, 7)"));
  CHECK(refused(saved(Tensor::ones({2, 4, 7})), kMel, "got (2, 4, 7)"));
  CHECK(refused(saved(Tensor::ones({4, 0})), kMel, "got (4, 0)"));
  CHECK(refused(saved(Tensor::ones({4})), kMel, "got (4,)"));
  CHECK(refused(saved(Tensor::ones({4, 7}, {.dtype = DType::i64})), kMel, "expected floating-point numbers, got i64"));
  CHECK(refused(saved(Tensor::ones({4, 7})), kCodes, "expected whole numbers, got f32"));
  CHECK(refused(saved(Tensor::full({4, 7}, std::numeric_limits<double>::quiet_NaN())), kMel, "got others in the mel"));
  write_bytes(path, "");
  CHECK(error_for(path, kMel).find("is empty") != std::string::npos);
  program::write_wav(directory.file("a.wav"), {8000, {{}}});
  CHECK(refused(directory.file("a.wav"), kMel, "no sound in it"));
}

TEST_CASE("the first codebooks") {
  const Tensor codes = Tensor::arange(28, {.dtype = DType::i64}).reshape({1, 4, 7});
  CHECK(first_codebooks(codes, kCodes, 0).is_same(codes));
  CHECK(first_codebooks(codes, kCodes, 3).shape() == Shape{1, 3, 7});
  CHECK(error_of<Error>([&] { return first_codebooks(codes, kCodes, 5); }).find("--codebooks: expected 1 to 4") !=
        std::string::npos);
  CHECK(error_of<Error>([&] {
          return first_codebooks(Tensor::ones({1, 4, 7}), kMel, 2);
        }).find("this one takes mel") != std::string::npos);
}

TEST_CASE("sound of another rate and other channels, and the notes about it") {
  std::vector<std::string> notes;
  const auto note = [&](const std::string& sentence) { notes.push_back(sentence); };
  const program::Audio stereo{16000, {sine(500, 16000, 1600, 0.5), sine(500, 16000, 1600, 0.25)}};
  const Tensor mono = as_network_audio(stereo, "s.wav", 8000, 1, note);
  CHECK(mono.shape() == Shape{1, 1, 800});
  CHECK(notes == std::vector<std::string>{"s.wav: 2 channels are averaged to one", "s.wav: resampled from 16000 to 8000 Hz"});
  const std::vector<float> samples = mono.to_vector<float>(), expected = sine(500, 8000, 800, 0.375);
  for (std::size_t i = 200; i < 600; ++i) CHECK(std::abs(samples[i] - expected[i]) < kBFloat16Rounding);
  CHECK(as_network_audio({8000, {{1, 2}}}, "m.wav", 8000, 2, note).to_vector<float>() == std::vector<float>{1, 2, 1, 2});
  CHECK(error_of<FormatError>([&] {
          return as_network_audio({8000, {{1}, {1}, {1}}}, "m.wav", 8000, 2, note);
        }).find("expected 2 channels, got 3") != std::string::npos);
  CHECK(error_of<FormatError>([&] {
          return as_network_audio({8000, {{1}}}, "m.wav", 0, 1, note);
        }).find("sampling rate") != std::string::npos);
}
