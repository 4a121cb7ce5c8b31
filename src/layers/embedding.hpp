#pragma once
// A learned table of vectors.

#include "../layers/module.hpp"

namespace polyphase {

/// index (...) i64 -> (..., embedding_dim). Parameter: weight (num_embeddings, embedding_dim), standard normal initially.
class Embedding : public Module {
 public:
  struct Options {
    std::int64_t num_embeddings = 0;  ///< V, required
    std::int64_t embedding_dim = 0;   ///< D, required
    DType dtype = DType::f32;
    Device device = default_device();
  };
  /// Throws ShapeError unless both sizes are at least 1, DTypeError unless the dtype is floating point.
  explicit Embedding(const Options& options);
  void visit(Visitor& visitor) override;
  /// Throws the errors of embedding().
  [[nodiscard]] Tensor forward(const Tensor& index) override;
  /// In a ChannelsLast: indices (N, n) -> (N, D, n), or (N, R, n) -> (N, R, D, n).
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

 private:
  Tensor weight_;  // (V, D)
};

}  // namespace polyphase
