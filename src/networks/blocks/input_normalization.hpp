#pragma once
// The normalisation in front of SpeechT5's HiFi-GAN. Internal.

#include "layers/module.hpp"

namespace polyphase {

/// (x - mean)/scale for each row of x (N, rows, frames). Buffers mean and scale (rows), 0 and 1 at first
/// (transformers@15ea02a:src/transformers/models/speecht5/modeling_speecht5.py, SpeechT5HifiGan).
class InputNormalization : public Module {
 public:
  explicit InputNormalization(std::int64_t rows) : mean_(Tensor::zeros({rows})), scale_(Tensor::ones({rows})) {}
  void visit(Visitor& visitor) override;
  /// Throws ShapeError unless x is (N, rows, frames).
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

 private:
  Tensor mean_, scale_;  // (rows)
};

}  // namespace polyphase
