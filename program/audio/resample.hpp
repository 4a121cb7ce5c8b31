#pragma once
// Rational resampling with a Kaiser-windowed sinc: the anti-alias filter, the interpolation baseline and the rate converter.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace polyphase::program {

/// The low-pass of a Resampler. Frequencies are relative to the lower of the two Nyquist frequencies.
struct FilterOptions {
  int zero_crossings = 48;  ///< half length, in samples of the lower rate
  double cutoff = 0.94;     ///< the -6 dB point
  double attenuation = 80;  ///< of the stop band, in dB
};

/// For the low-rate side: passes up to 0.89 of its Nyquist frequency, attenuates by 80 dB at 1.0.
inline constexpr FilterOptions kAntiAlias{};
/// The textbook interpolation: keeps every given sample unchanged and adds samples between them.
inline constexpr FilterOptions kInterpolation{.zero_crossings = 32, .cutoff = 1.0, .attenuation = 80};

/// Kaiser's beta for a stop-band attenuation in dB (Kaiser 1974; Oppenheim & Schafer, "Discrete-Time Signal Processing", 7.6).
[[nodiscard]] double kaiser_beta(double attenuation);
/// Windowed sinc of length 2*half + 1 at `up` times the input rate, half = zero_crossings*max(up, down); its sum is `up`.
[[nodiscard]] std::vector<double> lowpass_kernel(std::int64_t up, std::int64_t down, const FilterOptions& options);

/// Throws Error with the file's name and rate unless a Resampler can convert it to the other rate: one may be at most 256 times
/// the other, and in lowest terms both at most 192000.
void require_convertible(const std::string& path, int rate, int wanted);

/// Changes the rate of a stream by up/down without delay: output m is at input time m*down/up; outside of the stream there is
/// silence. The output's bits do not depend on how the stream is divided into blocks. Copies share the filter, which is most of
/// the memory.
class Resampler {
 public:
  /// up and down >= 1 are reduced to lowest terms. Throws ShapeError.
  Resampler(std::int64_t up, std::int64_t down, const FilterOptions& options = kAntiAlias);

  /// Appends to `output` all samples that `input` and earlier inputs determine.
  void process(std::span<const float> input, std::vector<float>& output);
  /// Ends the stream: appends the remaining samples, up to output_length(samples so far), and resets the object.
  void flush(std::vector<float>& output);
  /// ceil(length*up/down).
  [[nodiscard]] std::int64_t output_length(std::int64_t length) const { return (length * up_ + down_ - 1) / down_; }
  /// Input samples on either side that an output sample depends on.
  [[nodiscard]] std::int64_t reach() const { return half_ / up_ + 1; }
  [[nodiscard]] std::int64_t up() const { return up_; }
  [[nodiscard]] std::int64_t down() const { return down_; }

 private:
  void emit(std::int64_t received, std::int64_t outputs, std::vector<float>& output);

  std::int64_t up_;
  std::int64_t down_;
  std::int64_t half_ = 0;                             // reach of the kernel at up times the input rate
  std::int64_t taps_ = 0;                             // input samples per output
  std::shared_ptr<const std::vector<float>> phases_;  // (up_, taps_): taps in order of input time
  std::vector<float> history_;                        // input from first_ on, silence before the start included
  std::int64_t first_ = 0;
  std::int64_t received_ = 0;
  std::int64_t produced_ = 0;
};

/// A whole signal, changed by up/down.
[[nodiscard]] std::vector<float> resample(std::span<const float> signal, std::int64_t up, std::int64_t down,
                                          const FilterOptions& options = kAntiAlias);
/// Windowed-sinc interpolation by a whole factor: the baseline every number is compared with.
[[nodiscard]] std::vector<float> interpolate_sinc(std::span<const float> low, int factor);
/// Linear interpolation between the given samples; the last one is repeated.
[[nodiscard]] std::vector<float> interpolate_linear(std::span<const float> low, int factor);

}  // namespace polyphase::program
