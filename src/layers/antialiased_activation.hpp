#pragma once
// An activation computed at twice the sampling rate.

#include <concepts>
#include <memory>
#include <utility>

#include "../layers/module.hpp"

namespace polyphase {

/// BigVGAN's Activation1d (arXiv 2206.04658): upsamples by 2, applies an activation, downsamples by 2, as antialias():
///
///     pp::AntialiasedActivation act(pp::SnakeBeta(channels, {.alpha_logscale = true}));
///
/// Snake and SnakeBeta are computed in one pass over memory, see antialias_snake().
/// x (..., L) of a shape that the activation takes -> the same shape. The filters are low-passes of 12 taps with cutoff 0.25
/// and half width 0.3. Child: "act". Buffers: "upsample.filter" and "downsample.lowpass.filter", (1, 1, 12), as in published
/// files. A copy shares the activation and the filters.
class AntialiasedActivation : public Module {
 public:
  struct Options {
    DType dtype = DType::f32;  ///< of the filters
    Device device = default_device();
  };
  /// Takes ownership of the activation. Throws DTypeError unless the dtype is floating point.
  template <std::derived_from<Module> M>
  requires(!std::same_as<M, AntialiasedActivation>) explicit AntialiasedActivation(M activation, const Options& options)
      : AntialiasedActivation(std::shared_ptr<Module>(std::make_shared<M>(std::move(activation))), options) {}
  template <std::derived_from<Module> M>
  requires(!std::same_as<M, AntialiasedActivation>) explicit AntialiasedActivation(M activation)
      : AntialiasedActivation(std::move(activation), Options{}) {}
  /// Shares an activation. Throws Error if it is null.
  AntialiasedActivation(std::shared_ptr<Module> activation, const Options& options);

  [[nodiscard]] Module& activation() const { return *activation_; }
  void visit(Visitor& visitor) override;
  /// Throws the errors of antialias() and of the activation.
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  /// Throws NotImplemented naming the activation unless it computes each position from the same position of its input.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

 private:
  std::shared_ptr<Module> activation_;
  Tensor up_;    // (1, 1, 12)
  Tensor down_;  // same as up_
};

}  // namespace polyphase
