#pragma once
// The inverse short-time Fourier transform as the last layer of a network.

#include "../../layers/module.hpp"
#include "../../ops/spectral.hpp"

namespace polyphase {

/// (N, n_fft + 2, frames) -> (N, 1, samples): the channels are the real parts of the n_fft/2 + 1 bins, then their imaginary
/// parts; samples as istft() has it. f16 and bf16 are computed in f32. Buffer: window (win_length), Hann's at first.
class ISTFT : public Module {
 public:
  struct Options {
    std::int64_t n_fft = 1024;
    std::int64_t hop_length = 256;
    std::int64_t win_length = 0;  ///< 0: n_fft
    IstftPadding padding = IstftPadding::center;
    DType dtype = DType::f32;  ///< of the window
    Device device = default_device();
  };
  /// Throws ShapeError unless n_fft is even and 1 <= hop_length, win_length <= n_fft, DTypeError unless the dtype is a
  /// floating-point one.
  explicit ISTFT(const Options& options);
  void visit(Visitor& visitor) override { visitor.buffer("window", window_); }
  /// Throws what istft() throws.
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  /// Samples are returned once all frames are there that reach them.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
  [[nodiscard]] const IstftOptions& options() const { return options_; }
  /// Samples begin, ... of istft_part().
  [[nodiscard]] Tensor part(const Tensor& x, std::int64_t begin, std::int64_t length) const;

 private:
  IstftOptions options_;
  Tensor window_;  // (win_length)
};

}  // namespace polyphase
