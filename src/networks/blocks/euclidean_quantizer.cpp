#include "networks/blocks/euclidean_quantizer.hpp"

#include "autograd/no_grad.hpp"
#include "layers/check.hpp"
#include "layers/streaming/module_stream.hpp"
#include "ops/elementwise.hpp"
#include "ops/embedding.hpp"
#include "ops/length.hpp"

namespace polyphase {
namespace {

constexpr const char* kName = "EuclideanQuantizer";

}  // namespace

EuclideanQuantizer::EuclideanQuantizer(const Options& options) : options_(options) {
  layers::require_at_least(kName, "codebooks", options.codebooks, 1);
  layers::require_at_least(kName, "bins", options.bins, 1);
  layers::require_at_least(kName, "dimension", options.dimension, 1);
  for (std::int64_t q = 0; q < options.codebooks; ++q) embed_.push_back(Tensor::randn({options.bins, options.dimension}));
}

void EuclideanQuantizer::visit(Visitor& visitor) {
  for (std::size_t q = 0; q < embed_.size(); ++q) visitor.buffer(concat("vq.layers.", q, "._codebook.embed"), embed_[q]);
}

Tensor EuclideanQuantizer::forward(const Tensor& codes) {
  require<DTypeError>(codes.dtype() == DType::i64, kName, ": expected codes of i64, got ", codes.dtype());
  require<ShapeError>(codes.rank() == 3 && codes.size(1) >= 1 && codes.size(1) <= options_.codebooks, kName,
                      ": expected codes (N, 1 to ", options_.codebooks, ", T), got ", codes.shape());
  for (std::int64_t q = 0; q < codes.size(1); ++q)
    check_codes(concat(kName, ": codebook ", q).c_str(), codes.select(1, q), options_.bins);
  const std::vector<Tensor> tables(embed_.begin(), embed_.begin() + codes.size(1));
  return embedding_sum(codes, tables).transpose(1, 2).contiguous();
}

Tensor EuclideanQuantizer::encode(const Tensor& x, std::int64_t codebooks) const {
  require<ShapeError>(x.rank() == 3 && x.size(1) == options_.dimension, kName, ": expected x (N, ", options_.dimension,
                      ", T), got ", x.shape());
  require<ShapeError>(codebooks >= 1 && codebooks <= options_.codebooks, kName, ": expected from 1 to ", options_.codebooks,
                      " codebooks, got ", codebooks);
  const NoGradGuard no_grad;
  const DType dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  Tensor rest = x.detach().transpose(1, 2).to(dtype).contiguous();  // (N, T, D)
  std::vector<Tensor> codes;
  for (std::int64_t q = 0; q < codebooks; ++q) {
    const Tensor book = embed_[static_cast<std::size_t>(q)].to(dtype);
    codes.push_back(nearest_code(rest, book));
    rest = rest - embedding(codes.back(), book);
  }
  return stack(codes, 1);
}

std::unique_ptr<ModuleStream> EuclideanQuantizer::make_stream() {
  return std::make_unique<layers::PointwiseStream>(
      *this, layers::PointwiseStream::Options{.layout = ModuleStream::Layout::channels_first});
}

}  // namespace polyphase
