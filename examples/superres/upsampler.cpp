#include "upsampler.hpp"

#include <algorithm>

#include "autograd/no_grad.hpp"
#include "tensor/error.hpp"

namespace superres {

Upsampler::Upsampler(UpsamplingNetwork& network, int channels, std::int64_t chunk)
    : network_(network), channels_(channels), chunk_(chunk), context_(network.context()) {
  pp::require<pp::Error>(channels >= 1 && chunk >= 1, "upsample: expected at least 1 channel and chunks of 1 sample, got ",
                         channels, " and ", chunk);
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

// Computes the next `count` frames from what lies around them, then forgets what no later frame looks at.
void Upsampler::run(std::int64_t count, std::vector<float>& output) {
  const pp::NoGradGuard no_grad;
  const std::int64_t seen = std::min(held(), done_ + count + context_.right);
  const std::vector<float> frames(history_.begin(), history_.begin() + seen * channels_);
  const pp::Tensor low = pp::Tensor::from_vector(frames, {seen, channels_}).transpose(0, 1).unsqueeze(1).contiguous();
  const std::int64_t factor = network_.options().factor;
  const pp::Tensor high = network_(low).narrow(2, done_ * factor, count * factor);  // (channels, 1, count*factor)
  const std::vector<float> samples = high.squeeze(1).transpose(0, 1).to_vector<float>();
  output.insert(output.end(), samples.begin(), samples.end());

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
