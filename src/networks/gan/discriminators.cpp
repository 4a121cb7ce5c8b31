#include "networks/gan/discriminators.hpp"

#include <functional>
#include <optional>
#include <utility>

#include "device/backend.hpp"
#include "layers/check.hpp"
#include "layers/conv1d.hpp"
#include "layers/weight_norm.hpp"
#include "networks/gan/kernel_convs.hpp"
#include "networks/gan/parts.hpp"
#include "ops/length.hpp"
#include "ops/reduce.hpp"
#include "ops/spectral.hpp"

namespace polyphase {
namespace {

using networks::BinConv;
using networks::ColumnConv;
using networks::of_parts;

ConvOutputOptions leaky() { return {.activation = Activation::leaky_relu, .slope = 0.1}; }

/// Convolutions one after another, LeakyReLU behind each but the last: "convs.0", "convs.1", ..., "conv_post".
template <class Conv>
class ConvStack : public Module {
 public:
  ConvStack(std::vector<Conv> convs, Conv last) : convs_(std::move(convs)), last_(std::move(last)) {}
  void visit(Visitor& visitor) override {
    for (std::size_t i = 0; i < convs_.size(); ++i) visitor.module(concat("convs.", i), convs_[i]);
    visitor.module("conv_post", last_);
  }
  [[nodiscard]] FeatureMaps features(const Tensor& arranged) {
    FeatureMaps maps;
    Tensor x = arranged;
    for (const Conv& conv : convs_) maps.push_back(x = conv.forward_activated(x, leaky()));
    maps.push_back(last_(x));
    return maps;
  }
  [[nodiscard]] Tensor forward(const Tensor& arranged) override { return features(arranged).back(); }

 private:
  std::vector<Conv> convs_;
  Conv last_;
};

std::int64_t scaled(const char* name, std::int64_t channels, double mult) {
  require<ShapeError>(mult > 0 && mult <= 64, name, ": expected channel_mult in (0, 64], got ", mult);
  const auto count = static_cast<std::int64_t>(static_cast<double>(channels) * mult);
  require<ShapeError>(count >= 1, name, ": expected channel_mult that leaves a channel of ", channels, ", got ", mult);
  return count;
}

void check_audio(const char* name, const Tensor& audio) {
  require<ShapeError>(audio.rank() == 3 && audio.size(1) == 1 && audio.size(2) >= 1, name,
                      ": expected audio (N, 1, L >= 1), got ", audio.shape());
}

/// The maps of two arranged batches by one stack of convolutions.
struct MapsOfTwo {
  FeatureMaps first, second;
};
template <class Stack>
MapsOfTwo maps_of_two(Stack& stack, const Tensor& first, const Tensor& second) {
  MapsOfTwo maps;
  const std::int64_t rows = first.size(0);
  for (const Tensor& both : stack.features(cat({first, second}))) {
    maps.first.push_back(both.narrow(0, 0, rows));
    maps.second.push_back(both.narrow(0, rows, rows));
  }
  return maps;
}

void check_pair(const char* name, const Tensor& first, const Tensor& second) {
  require<ShapeError>(first.shape() == second.shape(), name, ": expected two batches of one shape, got ", first.shape(),
                      " and ", second.shape());
}

FeaturesOfTwo joined(std::vector<MapsOfTwo> maps) {
  FeaturesOfTwo all;
  for (MapsOfTwo& both : maps) {
    all.first.push_back(std::move(both.first));
    all.second.push_back(std::move(both.second));
  }
  return all;
}

/// features() and features_of_two() of parts that see arrange(part, audio).
template <class Parts, class Arrange>
std::vector<FeatureMaps> features_of_parts(const char* name, const Parts& parts, const Tensor& audio, const Arrange& arrange) {
  check_audio(name, audio);
  return of_parts(audio, parts.size(), [&](std::size_t i) { return parts[i]->features(arrange(*parts[i], audio)); });
}
template <class Parts, class Arrange>
FeaturesOfTwo features_of_parts(const char* name, const Parts& parts, const Tensor& first, const Tensor& second,
                                const Arrange& arrange) {
  check_audio(name, first);
  check_pair(name, first, second);
  return joined(of_parts(first, parts.size(), [&](std::size_t i) {
    return maps_of_two(*parts[i], arrange(*parts[i], first), arrange(*parts[i], second));
  }));
}

template <class Parts>
void visit_parts(Visitor& visitor, const Parts& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) visitor.module(concat("discriminators.", i), *parts[i]);
}

}  // namespace

Tensor Discriminator::forward(const Tensor& audio) {
  std::vector<Tensor> scores;
  for (const FeatureMaps& maps : features(audio)) scores.push_back(maps.back().reshape({audio.size(0), -1}));
  return cat(scores, 1);
}

FeaturesOfTwo Discriminator::features_of_two(const Tensor& first, const Tensor& second) {
  std::vector<FeatureMaps> of_first = features(first);  // in this order: spectral norm counts forwards
  return {std::move(of_first), features(second)};
}

// ---- periods ----------------------------------------------------------------------------------------------------------

class MultiPeriodDiscriminator::Part : public ConvStack<ColumnConv> {
 public:
  Part(std::int64_t period, double mult) : ConvStack(convs(mult), post(mult)), period_(period) { weight_norm(*this); }

  // (N, 1, L) -> (N*p, 1, L/p): a row for each column of the original's picture.
  [[nodiscard]] Tensor columns(const Tensor& audio) const {
    const std::int64_t rest = audio.size(2) % period_;
    const Tensor whole = rest == 0 ? audio : pad1d(audio, {0, period_ - rest}, PaddingMode::reflect);
    const Tensor picture = whole.reshape({audio.size(0), -1, period_});
    return picture.transpose(1, 2).reshape({audio.size(0) * period_, 1, -1});
  }

 private:
  static std::vector<ColumnConv> convs(double mult) {
    std::vector<ColumnConv> list;
    std::int64_t in = 1;
    for (const std::int64_t channels : {32, 128, 512, 1024, 1024}) {
      const std::int64_t out = scaled("MultiPeriodDiscriminator", channels, mult);
      list.push_back(ColumnConv(
          {.in_channels = in, .out_channels = out, .kernel_size = 5, .stride = list.size() < 4 ? 3 : 1, .padding = 2}));
      in = out;
    }
    return list;
  }
  static ColumnConv post(double mult) {
    return ColumnConv(
        {.in_channels = scaled("MultiPeriodDiscriminator", 1024, mult), .out_channels = 1, .kernel_size = 3, .padding = 1});
  }

  std::int64_t period_;
};

MultiPeriodDiscriminator::MultiPeriodDiscriminator(const Options& options) {
  for (const std::int64_t period : options.periods) {
    layers::require_at_least("MultiPeriodDiscriminator", "periods", period, 1);
    parts_.push_back(std::make_shared<Part>(period, options.channel_mult));
  }
}

void MultiPeriodDiscriminator::visit(Visitor& visitor) { visit_parts(visitor, parts_); }

std::vector<FeatureMaps> MultiPeriodDiscriminator::features(const Tensor& audio) {
  return features_of_parts("MultiPeriodDiscriminator", parts_, audio,
                           [](const Part& part, const Tensor& of) { return part.columns(of); });
}

FeaturesOfTwo MultiPeriodDiscriminator::features_of_two(const Tensor& first, const Tensor& second) {
  return features_of_parts("MultiPeriodDiscriminator", parts_, first, second,
                           [](const Part& part, const Tensor& audio) { return part.columns(audio); });
}

// ---- scales -----------------------------------------------------------------------------------------------------------

class MultiScaleDiscriminator::Part : public ConvStack<Conv1d> {
 public:
  Part(double mult, bool has_spectral_norm) : ConvStack(convs(mult), post(mult)) {
    has_spectral_norm ? spectral_norm(*this) : weight_norm(*this);
  }

 private:
  static constexpr const char* kName = "MultiScaleDiscriminator";

  static std::vector<Conv1d> convs(double mult) {
    struct Layer {
      std::int64_t channels, kernel_size, stride, groups;
    };
    std::vector<Conv1d> list;
    std::int64_t in = 1;
    for (const auto& [channels, kernel_size, stride, groups] :
         {Layer{128, 15, 1, 1}, Layer{128, 41, 2, 4}, Layer{256, 41, 2, 16}, Layer{512, 41, 4, 16}, Layer{1024, 41, 4, 16},
          Layer{1024, 41, 1, 16}, Layer{1024, 5, 1, 1}}) {
      const std::int64_t out = scaled(kName, channels, mult);
      list.push_back(Conv1d({.in_channels = in,
                             .out_channels = out,
                             .kernel_size = kernel_size,
                             .stride = stride,
                             .padding = kernel_size / 2,
                             .groups = groups}));
      in = out;
    }
    return list;
  }
  static Conv1d post(double mult) {
    return Conv1d({.in_channels = scaled(kName, 1024, mult), .out_channels = 1, .kernel_size = 3, .padding = 1});
  }
};

namespace {

Tensor halved(const Tensor& audio) { return avg_pool1d(audio, {.kernel_size = 4, .stride = 2, .padding = 2}); }

/// `audio`, and each time half as many positions.
std::vector<Tensor> scales_of(const Tensor& audio, std::size_t count) {
  std::vector<Tensor> scales{audio};
  while (scales.size() < count) scales.push_back(halved(scales.back()));
  return scales;
}

}  // namespace

MultiScaleDiscriminator::MultiScaleDiscriminator(const Options& options) {
  for (const bool has_spectral_norm : {true, false, false})
    parts_.push_back(std::make_shared<Part>(options.channel_mult, has_spectral_norm));
}

void MultiScaleDiscriminator::visit(Visitor& visitor) { visit_parts(visitor, parts_); }

std::vector<FeatureMaps> MultiScaleDiscriminator::features(const Tensor& audio) {
  check_audio("MultiScaleDiscriminator", audio);
  const std::vector<Tensor> scales = scales_of(audio, parts_.size());
  const HeldWeights held(HeldWeights::Spectral{*this});
  return of_parts(audio, parts_.size(), [&](std::size_t i) { return parts_[i]->features(scales[i]); });
}

// The scale under spectral norm computes each batch with weights of its own: they are two parts.
FeaturesOfTwo MultiScaleDiscriminator::features_of_two(const Tensor& first, const Tensor& second) {
  check_audio("MultiScaleDiscriminator", first);
  check_pair("MultiScaleDiscriminator", first, second);
  const std::vector<Tensor> a = scales_of(first, parts_.size()), b = scales_of(second, parts_.size());
  std::vector<MapsOfTwo> maps(parts_.size());
  const HeldWeights of_first(HeldWeights::Spectral{*this});
  std::optional<HeldWeights> of_second;
  const auto fork = backend_of(first.device()).make_fork(parts_.size() + 1);
  const auto issue = [&](std::size_t part, const std::function<void()>& work) { fork ? fork->run(part, work) : work(); };
  issue(1, [&] { maps[0].first = parts_[0]->features(a[0]); });
  of_second.emplace(HeldWeights::Spectral{*this});
  issue(0, [&] { maps[0].second = parts_[0]->features(b[0]); });
  for (std::size_t i = 1; i < parts_.size(); ++i) issue(i + 1, [&] { maps[i] = maps_of_two(*parts_[i], a[i], b[i]); });
  return joined(std::move(maps));
}

// ---- resolutions ------------------------------------------------------------------------------------------------------

class MultiResolutionDiscriminator::Part : public ConvStack<BinConv> {
 public:
  Part(const Resolution& resolution, double mult)
      : ConvStack(convs(scaled(kName, 32, mult)), post(scaled(kName, 32, mult))), resolution_(resolution) {
    const auto& [n_fft, hop, win] = resolution;
    require<ShapeError>(n_fft >= 2 && n_fft % 2 == 0 && hop >= 1 && hop <= n_fft && win >= 1 && win <= n_fft, kName,
                        ": expected resolutions with an even n_fft and hop and window in [1, n_fft], got ", n_fft, ", ", hop,
                        ", ", win);
    weight_norm(*this);
  }

  // (N, 1, L) -> magnitudes (N, 1, bins, frames).
  [[nodiscard]] Tensor picture(const Tensor& audio) const {
    const auto& [n_fft, hop, win] = resolution_;
    const std::int64_t margin = (n_fft - hop) / 2;
    require<ShapeError>(audio.size(2) > margin && audio.size(2) + 2 * margin >= n_fft, kName, ": expected audio of more than ",
                        margin, " samples for an n_fft of ", n_fft, ", got ", audio.shape());
    const DType dtype = audio.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const Tensor padded = pad1d(audio.squeeze(1).to(dtype), margin, PaddingMode::reflect);
    const Tensor spectrum = stft(padded, {.n_fft = n_fft, .hop_length = hop, .win_length = win, .center = false},
                                 Tensor::ones({win}, {.dtype = dtype, .device = audio.device()}));  // (N, frames, bins, 2)
    return norm(spectrum, {-1}).transpose(1, 2).unsqueeze(1).to(audio.dtype());
  }

 private:
  static constexpr const char* kName = "MultiResolutionDiscriminator";

  static std::vector<BinConv> convs(std::int64_t channels) {
    std::vector<BinConv> list;
    for (const auto& [kernel_size, stride] : {std::pair{9, 1}, {9, 2}, {9, 2}, {9, 2}, {3, 1}})
      list.push_back(BinConv({.in_channels = list.empty() ? 1 : channels,
                              .out_channels = channels,
                              .bins = 3,
                              .kernel_size = kernel_size,
                              .stride = stride}));
    return list;
  }
  static BinConv post(std::int64_t channels) {
    return BinConv({.in_channels = channels, .out_channels = 1, .bins = 3, .kernel_size = 3});
  }

  Resolution resolution_;
};

MultiResolutionDiscriminator::MultiResolutionDiscriminator(const Options& options) {
  for (const Resolution& resolution : options.resolutions)
    parts_.push_back(std::make_shared<Part>(resolution, options.channel_mult));
}

void MultiResolutionDiscriminator::visit(Visitor& visitor) { visit_parts(visitor, parts_); }

std::vector<FeatureMaps> MultiResolutionDiscriminator::features(const Tensor& audio) {
  return features_of_parts("MultiResolutionDiscriminator", parts_, audio,
                           [](const Part& part, const Tensor& of) { return part.picture(of); });
}

FeaturesOfTwo MultiResolutionDiscriminator::features_of_two(const Tensor& first, const Tensor& second) {
  return features_of_parts("MultiResolutionDiscriminator", parts_, first, second,
                           [](const Part& part, const Tensor& audio) { return part.picture(audio); });
}

}  // namespace polyphase
