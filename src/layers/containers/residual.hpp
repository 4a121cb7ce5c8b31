#pragma once
// Residual blocks.

#include <string>
#include <utility>

#include "../../layers/containers/sequential.hpp"

namespace polyphase {

/// x + scale*block(x), the block of HiFi-GAN, EnCodec, DAC and BigVGAN:
///
///     pp::Residual(pp::LeakyReLU(0.1), pp::Conv1d({..., .dilation = 3, .padding = 3}), pp::LeakyReLU(0.1), pp::Conv1d({...}))
///
/// The block is the modules one after another, as in Sequential. If it ends with a Conv1d or ConvTranspose1d, or with one
/// followed by an activation that Sequential fuses with it, the sum is computed in the convolution's pass over memory, with the
/// bits of add_scaled(x, block(x), scale): sums + bias are rounded, the activation is rounded, and x + scale times it is
/// rounded once. If it ends with a LayerScale, itself or in a ChannelsLast, x + scale*gamma*y is one pass, rounded once. A unit
/// that residual_unit() computes in one kernel adds in another order and rounds the sum with x once. While gradients are
/// recorded, an activation before the sum is a separate pass unless it is a Snake. Children are named "block.0", "block.1",
/// ..., as in EnCodec and DAC, or as `name` and named() say. HiFi-GAN's block
///
///     pp::Residual({.name = ""}, pp::LeakyReLU(0.1), pp::named("convs1.0", pp::Conv1d({...})), pp::LeakyReLU(0.1),
///                  pp::named("convs2.0", pp::Conv1d({...})))
///
/// has the keys "convs1.0.weight", "convs1.0.bias", "convs2.0.weight", "convs2.0.bias". A copy shares the children.
class Residual : public Module {
 public:
  struct Options {
    double scale = 1;
    std::string name = "block";  ///< prefix of the names of the block's modules; may be empty
  };
  /// Takes ownership of the modules; a single Sequential becomes the block itself.
  template <layers::Child... M>
  requires(sizeof...(M) > 0) explicit Residual(M... modules) : block_(std::move(modules)...) {}
  template <layers::Child... M>
  explicit Residual(const Options& options, M... modules)
      : block_(std::move(modules)...), scale_(options.scale), name_(options.name) {}

  [[nodiscard]] Sequential& block() { return block_; }
  [[nodiscard]] double scale() const { return scale_; }
  void visit(Visitor& visitor) override { visitor.module(name_, block_); }
  /// x of any shape that the block keeps. Throws ShapeError if the block's result has another shape, and the errors of the
  /// modules.
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

 private:
  Sequential block_;
  double scale_ = 1;
  std::string name_ = "block";
};

}  // namespace polyphase
