#include "evaluation.hpp"

#include <algorithm>

#include "autograd/no_grad.hpp"
#include "layers/losses.hpp"
#include "networks/gan/recipe.hpp"
#include "networks/mel.hpp"

namespace vocoder {
namespace {

pp::Tensor row_of(const std::vector<float>& samples, pp::Device device) {
  return pp::Tensor::from_vector(samples, {1, static_cast<std::int64_t>(samples.size())}, device);
}

pp::MelSpectrogram on(pp::MelSpectrogram mel, pp::Device device) {
  mel.to(device);
  return mel;
}

}  // namespace

std::vector<float> resynthesize(const Vocoder& vocoder, const std::vector<float>& samples) {
  const pp::NoGradGuard no_grad;
  const pp::Device device = vocoder.net.parameters().front().device();
  const std::int64_t hop = vocoder.net.format().samples_per_frame;
  std::vector<float> whole = samples;  // frames are whole
  whole.resize((samples.size() + static_cast<std::size_t>(hop) - 1) / static_cast<std::size_t>(hop) *
               static_cast<std::size_t>(hop));
  pp::MelSpectrogram mel = on(pp::hifigan_mel(vocoder.config), device);
  std::vector<float> output = vocoder.net(mel(row_of(whole, device))).reshape({-1}).to_vector<float>();
  output.resize(samples.size());
  return output;
}

Scores score(const Vocoder& vocoder, const std::vector<float>& reference, const std::vector<float>& output) {
  pp::require<pp::ShapeError>(reference.size() == output.size() && reference.size() >= kShortest,
                              "score: expected two signals of one length of at least ", kShortest, " samples, got ",
                              reference.size(), " and ", output.size());
  const pp::NoGradGuard no_grad;
  const pp::Device device = vocoder.net.parameters().front().device();
  const pp::Tensor r = row_of(reference, device), y = row_of(output, device);
  pp::MelSpectrogram mel = on(pp::gan_loss_mel(vocoder.config), device);
  return {.mel = pp::l1_loss(mel(y), mel(r)).item<double>(), .stft = pp::multi_resolution_stft_loss(y, r).item<double>()};
}

std::vector<ClipScores> evaluate(const Vocoder& vocoder, const ClipSet& clips) {
  std::vector<ClipScores> all;
  for (const Clip& clip : clips.clips) {
    const std::vector<float> reference = clip.high(0, clip.length());
    all.push_back({.name = clip.name(),
                   .seconds = static_cast<double>(clip.length()) / clips.rate,
                   .scores = score(vocoder, reference, resynthesize(vocoder, reference))});
  }
  return all;
}

ClipScores mean_of(const std::vector<ClipScores>& scores) {
  ClipScores mean;
  mean.name = "mean";
  const auto count = static_cast<double>(std::max<std::size_t>(scores.size(), 1));
  for (const ClipScores& one : scores) {
    mean.seconds += one.seconds;
    mean.scores.mel += one.scores.mel / count;
    mean.scores.stft += one.scores.stft / count;
  }
  return mean;
}

std::string table_of(const std::vector<ClipScores>& scores) {
  std::size_t width = 4;
  for (const ClipScores& one : scores) width = std::max(width, one.name.size());
  const auto row = [&](const ClipScores& one) {
    return pad_right(one.name, width) + pad_left(fixed(one.seconds, 1), 9) + pad_left(fixed(one.scores.mel, 4), 14) +
           pad_left(fixed(one.scores.stft, 4), 15) + "\n";
  };
  std::string table =
      pad_right("clip", width) + pad_left("seconds", 9) + pad_left("mel distance", 14) + pad_left("STFT distance", 15) + "\n";
  const std::string rule(width + 9 + 14 + 15, '-');
  table += rule + "\n";
  for (const ClipScores& one : scores) table += row(one);
  if (scores.size() > 1) table += rule + "\n" + row(mean_of(scores));
  return table;
}

}  // namespace vocoder
