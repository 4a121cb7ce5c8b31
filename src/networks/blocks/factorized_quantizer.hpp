#pragma once
// Residual vector quantization in a few dimensions, as DAC and SNAC do it (Kumar et al., arXiv 2306.06546;
// descriptinc/descript-audio-codec@c7cfc5d:dac/nn/quantize.py; hubertsiuzdak/snac@f49016a:snac/vq.py).

#include <cstdint>
#include <vector>

#include "../../layers/containers/module_list.hpp"
#include "../../layers/conv1d.hpp"

namespace polyphase {

/// One codebook. Code c stands for the vector out_proj(codebook[c]). To encode a vector z, in_proj(z) is compared with every
/// row of the codebook, both scaled to length 1; the nearest row is its code. Parameters: in_proj, out_proj (1x1
/// convolutions); buffer: codebook.weight (V, d), which no training changes.
class FactorizedQuantizer : public Module {
 public:
  struct Options {
    std::int64_t input_dim = 0;      ///< D, required
    std::int64_t codebook_size = 0;  ///< V, required
    std::int64_t codebook_dim = 8;   ///< d
    bool encodes = true;             ///< has in_proj
  };
  struct Encoded {
    Tensor codes;      ///< (N, T) i64
    Tensor projected;  ///< (N, d, T): in_proj(z)
    Tensor quantized;  ///< (N, D, T): what the codes stand for
  };
  /// Throws ShapeError unless all sizes are at least 1.
  explicit FactorizedQuantizer(const Options& options);
  void visit(Visitor& visitor) override;

  /// codes (N, T) i64 in [0, V) -> (N, D, T). Throws ShapeError for a code outside, when embedding() does.
  [[nodiscard]] Tensor forward(const Tensor& codes) override;
  /// z (N, D, T). Gradients pass through the choice of a code as if the chosen row were in_proj(z) (straight-through, van den
  /// Oord et al., arXiv 1711.00937). f16 and bf16 are compared in f32, whatever
  /// AutocastGuard there is. Throws Error without in_proj.
  [[nodiscard]] Encoded encode(const Tensor& z);
  [[nodiscard]] const Options& options() const { return options_; }

 private:
  [[nodiscard]] Tensor nearest(const Tensor& projected) const;

  Options options_;
  Conv1d in_proj_, out_proj_;
  Tensor codebook_;  // (V, d)
};

/// Codebooks one after another, each for what those before it left over; the sum of their vectors is the result. Keys:
/// quantizers.0.codebook.weight, ...
///
/// A codebook of stride s has one code for s positions, which repeat its vector (SNAC). A frame is as many positions as the
/// least common multiple of the strides, so that a codebook has frame/s codes in it. The codes of a frame are one column of
/// (N, rows, frames): those of codebook 0 in the order of time, then those of codebook 1, and so on. With all strides 1 a frame
/// is one position and row i is codebook i.
class ResidualQuantizer : public Module {
 public:
  /// What forward() does.
  enum class Role : std::uint8_t {
    decoder,     ///< codes -> vectors; in_proj is left out
    encoder,     ///< vectors -> codes
    autoencoder  ///< vectors -> vectors, straight-through
  };
  struct Options {
    std::int64_t input_dim = 0;                 ///< D, required
    std::int64_t codebook_size = 0;             ///< V, required
    std::vector<std::int64_t> codebook_dims{};  ///< one for each codebook, required
    std::vector<std::int64_t> strides{};        ///< the same; empty: all 1
    Role role = Role::decoder;
  };
  struct Encoded {
    Tensor codes;      ///< (N, codebooks, T) i64
    Tensor projected;  ///< (N, sum of d, T): what was compared with the codebooks
    Tensor quantized;  ///< (N, D, T): the sum
  };
  /// Throws ShapeError where a size is not at least 1 or there is not one stride for each codebook, NotImplemented unless the
  /// strides of what encodes are 1.
  explicit ResidualQuantizer(const Options& options);
  void visit(Visitor& visitor) override { visitor.module("quantizers", quantizers_); }

  [[nodiscard]] std::int64_t rows() const { return rows_; }  ///< codes of a frame
  [[nodiscard]] std::int64_t positions_per_frame() const { return positions_; }
  /// By its role.
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

  /// codes (N, rows, frames) i64 -> (N, D, frames*positions_per_frame). With all strides 1 fewer rows are taken: the first
  /// codebooks alone. Throws ShapeError naming the codebook of a code out of range: on the CPU immediately, on a GPU as
  /// embedding().
  [[nodiscard]] Tensor decode(const Tensor& codes);
  /// z (N, D, T). Throws Error where the role is that of a decoder.
  [[nodiscard]] Encoded encode(const Tensor& z);
  /// codes (N, frames*positions_per_frame/s) of each codebook -> (N, rows, frames), and back. Throw ShapeError where lengths do
  /// not go together.
  [[nodiscard]] Tensor pack(const std::vector<Tensor>& codes) const;
  [[nodiscard]] std::vector<Tensor> unpack(const Tensor& packed) const;
  [[nodiscard]] const Options& options() const { return options_; }

 private:
  [[nodiscard]] FactorizedQuantizer& quantizer(std::size_t i) const;
  [[nodiscard]] std::int64_t rows_of(std::size_t i) const { return positions_ / options_.strides[i]; }

  Options options_;
  ModuleList quantizers_;
  std::int64_t rows_ = 0, positions_ = 1;
};

}  // namespace polyphase
