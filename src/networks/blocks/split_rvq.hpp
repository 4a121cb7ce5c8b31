#pragma once
// The codebooks of Mimi and of Qwen3-TTS' 12 Hz tokenizer. Internal.

#include <cstdint>
#include <vector>

#include "layers/conv1d.hpp"

namespace polyphase {

/// Codes (N, K, L) i64 -> (N, output_channels, L): the vectors that the codes choose, summed over the first `first` codebooks
/// and over the others, each sum projected to the output's channels, the two added (kyutai-labs/moshi@e6a55d2:
/// moshi/moshi/quantization/vq.py, SplitResidualVectorQuantizer). A vector is embedding_sum/max(cluster_usage, 1e-5), what the
/// moving averages of training have left. Buffers: rvq_first.vq.layers.i._codebook.{cluster_usage (V), embedding_sum (V, D)}
/// and rvq_rest's; parameters: rvq_first.output_proj.weight (output_channels, D, 1) and rvq_rest's.
class SplitRvq : public Module {
 public:
  struct Options {
    std::int64_t codebooks = 2;  ///< all of them
    std::int64_t first = 1;      ///< of them in rvq_first
    std::int64_t size = 0;       ///< V, entries of a codebook
    std::int64_t channels = 0;   ///< D, of an entry
    std::int64_t output_channels = 0;
  };
  explicit SplitRvq(const Options& options);
  void visit(Visitor& visitor) override;
  /// K from `first` to `codebooks`: those that are missing add nothing. Throws ShapeError for another K and for codes outside
  /// [0, V), DTypeError unless the codes are i64.
  [[nodiscard]] Tensor forward(const Tensor& codes) override;
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

 private:
  struct Codebook {
    Tensor usage;  // (V)
    Tensor sum;    // (V, D)
  };
  /// The projected sum of codebooks `begin`, ... for codes (N, K, L), of which it takes `count` rows.
  [[nodiscard]] Tensor decoded(const Tensor& codes, std::int64_t begin, std::int64_t count, Conv1d& projection) const;

  Options options_;
  std::vector<Codebook> codebooks_;
  Conv1d first_projection_, rest_projection_;
};

}  // namespace polyphase
