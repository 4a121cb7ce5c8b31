#include "networks/blocks/split_rvq.hpp"

#include <limits>
#include <vector>

#include "autograd/node.hpp"
#include "layers/streaming/module_stream.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"
#include "ops/embedding.hpp"

namespace polyphase {
namespace {

constexpr double kLeastUsage = 1e-5;

Conv1d projection(const SplitRvq::Options& options) {
  return Conv1d({.in_channels = options.channels, .out_channels = options.output_channels, .kernel_size = 1, .bias = false});
}

/// Rows of sum/max(usage, kLeastUsage); in f32 where these are f16 or bf16, which do not hold kLeastUsage well.
Tensor entries(const Tensor& index, const Tensor& usage, const Tensor& sum) {
  Tensor weight = embedding(index, usage.unsqueeze(1)), rows = embedding(index, sum);
  const DType dtype = rows.dtype();
  if (ops::is_half(rows)) weight = weight.to(DType::f32), rows = rows.to(DType::f32);
  return div(rows, clamp(weight, kLeastUsage, std::numeric_limits<double>::infinity())).to(dtype);
}

}  // namespace

SplitRvq::SplitRvq(const Options& options)
    : options_(options), first_projection_(projection(options)), rest_projection_(projection(options)) {
  for (std::int64_t i = 0; i < options.codebooks; ++i)
    codebooks_.push_back({Tensor::ones({options.size}), Tensor::randn({options.size, options.channels})});
}

void SplitRvq::visit(Visitor& visitor) {
  for (std::int64_t i = 0; i < options_.codebooks; ++i) {
    const bool is_first = i < options_.first;
    const std::string name =
        concat(is_first ? "rvq_first.vq.layers." : "rvq_rest.vq.layers.", is_first ? i : i - options_.first, "._codebook.");
    Codebook& codebook = codebooks_[static_cast<std::size_t>(i)];
    visitor.buffer(name + "cluster_usage", codebook.usage);
    visitor.buffer(name + "embedding_sum", codebook.sum);
  }
  visitor.module("rvq_first.output_proj", first_projection_);
  visitor.module("rvq_rest.output_proj", rest_projection_);
}

Tensor SplitRvq::decoded(const Tensor& codes, std::int64_t begin, std::int64_t count, Conv1d& projection) const {
  std::vector<EmbeddingTable> tables;
  bool followed = false;  // the codebooks are buffers, but a user may train them
  for (std::int64_t i = begin; i < begin + count; ++i) {
    const Codebook& codebook = codebooks_[static_cast<std::size_t>(i)];
    followed = followed || autograd::follows_gradients(codebook.sum) || autograd::follows_gradients(codebook.usage);
    tables.push_back({codebook.sum, codebook.usage});
  }
  if (!followed) return projection(entries_of_means(codes.narrow(1, begin, count), tables, kLeastUsage).transpose(1, 2));
  Tensor total;  // (N, L, D)
  for (std::int64_t i = begin; i < begin + count; ++i) {
    const Codebook& codebook = codebooks_[static_cast<std::size_t>(i)];
    const Tensor rows = entries(codes.select(1, i), codebook.usage, codebook.sum);
    total = total.defined() ? add(total, rows) : rows;
  }
  return projection(total.transpose(1, 2));
}

Tensor SplitRvq::forward(const Tensor& codes) {
  require<DTypeError>(codes.dtype() == DType::i64, "codebooks: expected codes of i64, got ", codes.dtype());
  require<ShapeError>(codes.rank() == 3 && codes.size(1) >= options_.first && codes.size(1) <= options_.codebooks,
                      "codebooks: expected codes (N, ", options_.first, " to ", options_.codebooks, ", L), got ",
                      codes.shape());
  const std::int64_t rest = codes.size(1) - options_.first;
  if (codes.numel() == 0)
    return Tensor::empty({codes.size(0), options_.output_channels, codes.size(2)},
                         {codebooks_.front().sum.dtype(), codes.device()});
  const Tensor first = decoded(codes, 0, options_.first, first_projection_);
  return rest == 0 ? first : add(first, decoded(codes, options_.first, rest, rest_projection_));
}

std::unique_ptr<ModuleStream> SplitRvq::make_stream() {
  return std::make_unique<layers::PointwiseStream>(
      *this, layers::PointwiseStream::Options{.layout = ModuleStream::Layout::channels_first});
}

}  // namespace polyphase
