#pragma once
// Residual vector quantisation by Euclidean distance, as EnCodec does it
// (facebookresearch/encodec@0e2d0ae:encodec/quantization/core_vq.py).

#include <cstdint>
#include <vector>

#include "../../layers/module.hpp"

namespace polyphase {

/// Codebooks one after another, each for what those before it left over; their rows add up to the vector that a frame of codes
/// stands for. Buffers: vq.layers.Q._codebook.embed (bins, dimension): codebooks are not trained by gradients.
class EuclideanQuantizer : public Module {
 public:
  struct Options {
    std::int64_t codebooks = 0;  ///< required
    std::int64_t bins = 0;       ///< rows of each, required
    std::int64_t dimension = 0;  ///< D, required
  };
  /// Throws ShapeError unless all are at least 1.
  explicit EuclideanQuantizer(const Options& options);
  void visit(Visitor& visitor) override;

  /// codes (N, K, T) i64 in [0, bins), K from 1 to `codebooks` -> (N, D, T): the sum of the first K codebooks' rows. Throws
  /// ShapeError, naming the codebook of a code that is out of range: on the CPU immediately, on a GPU as embedding().
  [[nodiscard]] Tensor forward(const Tensor& codes) override;
  /// x (N, D, T) -> codes (N, K, T) i64 by the first K codebooks. f16 and bf16 are compared in f32.
  [[nodiscard]] Tensor encode(const Tensor& x, std::int64_t codebooks) const;
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
  [[nodiscard]] const Options& options() const { return options_; }

 private:
  Options options_;
  std::vector<Tensor> embed_;  // (bins, D) each
};

}  // namespace polyphase
