#include "layers/spectral/istft.hpp"

#include <algorithm>

#include "layers/check.hpp"
#include "layers/streaming/module_stream.hpp"

namespace polyphase {
namespace {

std::int64_t divided_down(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// Keeps the frames that reach samples to come. Samples count from the first that a frame covers.
class IstftStream : public ModuleStream {
 public:
  explicit IstftStream(const ISTFT& layer) : layer_(layer) { reset(); }

  [[nodiscard]] Tensor push(const Tensor& x, bool last) override {
    const auto& [n_fft, hop, win, padding] = layer_.options();
    const Tensor all = held_.followed_by(x);
    layers::count_on(frames_, x.size(2));
    const std::int64_t first = frames_ - all.size(2);
    const std::int64_t end_if_last = (frames_ - 1) * hop + n_fft - istft_cut(layer_.options());
    const std::int64_t end = std::max(last ? end_if_last : std::min(frames_ * hop, end_if_last), returned_);
    const std::int64_t begin = returned_;
    layers::count_on(returned_, end - begin);
    const std::int64_t needed = std::clamp(divided_down(end - n_fft, hop) + 1, first, frames_);
    held_.keep(all.narrow(2, needed - first, frames_ - needed));
    if (end == begin) return Tensor::empty({x.size(0), 1, 0}, {x.dtype(), x.device()});
    return layer_.part(all, begin - first * hop, end - begin);
  }

  void reset() override {
    held_.clear();
    frames_ = 0;
    returned_ = istft_cut(layer_.options());
  }

  [[nodiscard]] Span inputs_of(Span outputs) const override {
    const auto& [n_fft, hop, win, padding] = layer_.options();
    const std::int64_t cut = istft_cut(layer_.options());
    return {divided_down(outputs.first + cut - n_fft, hop) + 1, divided_down(outputs.last + cut, hop)};
  }
  [[nodiscard]] Rate rate() const override { return {layer_.options().hop_length, 1}; }

 private:
  const ISTFT& layer_;
  layers::HeldPositions held_;
  std::int64_t frames_ = 0;    // pushed so far
  std::int64_t returned_ = 0;  // samples, with those that are dropped at the beginning
};

}  // namespace

ISTFT::ISTFT(const Options& options)
    : options_{.n_fft = options.n_fft,
               .hop_length = options.hop_length,
               .win_length = options.win_length == 0 ? options.n_fft : options.win_length,
               .padding = options.padding} {
  layers::require_at_least("ISTFT", "n_fft", options_.n_fft, 2);
  require<ShapeError>(options_.n_fft % 2 == 0, "ISTFT: expected an even n_fft, got ", options_.n_fft);
  layers::require_at_least("ISTFT", "hop_length", options_.hop_length, 1);
  layers::require_at_least("ISTFT", "win_length", options_.win_length, 1);
  require<ShapeError>(options_.hop_length <= options_.n_fft && options_.win_length <= options_.n_fft,
                      "ISTFT: expected hop_length and win_length of at most n_fft=", options_.n_fft, ", got ",
                      options_.hop_length, " and ", options_.win_length);
  layers::require_floating("ISTFT", options.dtype);
  window_ = hann_window(options_.win_length, {.dtype = options.dtype, .device = options.device});
}

Tensor ISTFT::forward(const Tensor& x) {
  const std::int64_t cut = istft_cut(options_);
  const std::int64_t covered =
      (std::max<std::int64_t>(x.rank() == 3 ? x.size(2) : 1, 1) - 1) * options_.hop_length + options_.n_fft;
  return part(x, cut, std::max<std::int64_t>(covered - 2 * cut, 0));
}

std::unique_ptr<ModuleStream> ISTFT::make_stream() { return std::make_unique<IstftStream>(*this); }

Tensor ISTFT::part(const Tensor& x, std::int64_t begin, std::int64_t length) const {
  const std::int64_t bins = options_.n_fft / 2 + 1;
  require<ShapeError>(x.rank() == 3 && x.size(1) == 2 * bins && x.size(2) >= 1, "ISTFT: expected x (N, n_fft + 2=", 2 * bins,
                      ", frames >= 1), got ", x.shape());
  const DType dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor spectrum = x.to(dtype).reshape({x.size(0), 2, bins, x.size(2)}).permute({0, 3, 2, 1});
  return istft_part(spectrum, options_, window_.to(dtype), begin, length).to(x.dtype()).unsqueeze(1);
}

}  // namespace polyphase
