#include "upsampler.hpp"

#include <algorithm>

#include "autograd/no_grad.hpp"
#include "tensor/error.hpp"

namespace superres {
namespace {

constexpr std::int64_t kMostHeld = 1 << 20;      // most samples of all channels that wait to be computed
constexpr std::int64_t kLeastFrames = 1024;      // with fewer frames the overlap would be most of the work
constexpr std::int64_t kMostComputed = 1 << 16;  // most samples in one pass of the network, unless one channel has more

}  // namespace

Upsampler::Upsampler(UpsamplingNetwork& network, int channels, std::int64_t chunk)
    : network_(network), channels_(channels), chunk_(chunk), context_(network.context()) {
  pp::require<pp::Error>(channels >= 1 && chunk >= 1, "upsample: expected at least 1 channel and chunks of 1 sample, got ",
                         channels, " and ", chunk);
  chunk_ = std::min(chunk_, std::max(kMostHeld / channels_, kLeastFrames));
}

void Upsampler::process(std::span<const float> low, std::vector<float>& output) {
  history_.insert(history_.end(), low.begin(), low.end());
  while (held() - done_ >= chunk_ + context_.right) run(chunk_, output);
}

void Upsampler::flush(std::vector<float>& output) {
  while (held() > done_) run(std::min(chunk_, held() - done_), output);
  history_.clear();
  done_ = 0;
}

// Computes the next `count` frames with their context, then drops what no later frame needs.
void Upsampler::run(std::int64_t count, std::vector<float>& output) {
  const pp::NoGradGuard no_grad;
  const std::int64_t seen = std::min(held(), done_ + count + context_.right);
  const std::vector<float> frames(history_.begin(), history_.begin() + seen * channels_);
  const pp::Tensor low = pp::Tensor::from_vector(frames, {seen, channels_}).transpose(0, 1).unsqueeze(1);
  const std::int64_t factor = network_.options().factor;
  const std::int64_t group = std::max<std::int64_t>(kMostComputed / seen, 1);  // channels at a time
  const std::size_t start = output.size();
  output.resize(start + static_cast<std::size_t>(count * factor * channels_));
  for (std::int64_t first = 0; first < channels_; first += group) {
    const std::int64_t some = std::min(group, channels_ - first);
    const pp::Tensor high = network_(low.narrow(0, first, some).contiguous()).narrow(2, done_ * factor, count * factor);
    const std::vector<float> samples = high.squeeze(1).transpose(0, 1).to_vector<float>();  // (count*factor, some)
    for (std::int64_t t = 0; t < count * factor; ++t) {
      std::copy_n(samples.begin() + t * some, some,
                  output.begin() + static_cast<std::ptrdiff_t>(start) + t * channels_ + first);
    }
  }

  done_ += count;
  const std::int64_t spare = done_ - context_.left;
  if (spare > 0) {
    history_.erase(history_.begin(), history_.begin() + spare * channels_);
    done_ -= spare;
  }
}

std::vector<float> upsample(UpsamplingNetwork& network, std::span<const float> low) {
  Upsampler upsampler(network, 1);
  std::vector<float> output;
  output.reserve(low.size() * static_cast<std::size_t>(network.options().factor));
  upsampler.process(low, output);
  upsampler.flush(output);
  return output;
}

}  // namespace superres
