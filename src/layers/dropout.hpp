#pragma once
// Random zeros during training.

#include "../layers/activations.hpp"

namespace polyphase {

/// In training, zeroes each element with probability p and scales the rest by 1/(1-p), drawing from the thread's default
/// generator. Otherwise returns x itself.
class Dropout : public PointwiseModule {
 public:
  /// Throws ShapeError unless 0 <= p < 1.
  explicit Dropout(double p = 0.5);
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  /// For evaluation: push() throws Error in training mode.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

 private:
  double p_;
};

}  // namespace polyphase
