#include "networks/blocks/factorized_quantizer.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "layers/check.hpp"
#include "layers/streaming/module_stream.hpp"
#include "ops/elementwise.hpp"
#include "ops/embedding.hpp"
#include "ops/length.hpp"
#include "ops/reduce.hpp"

namespace polyphase {
namespace {

constexpr std::int64_t kMostPositions = 65536;  // positions
constexpr double kSmallestLength = 1e-12;       // as torch.nn.functional.normalize has it

Conv1d pointwise(std::int64_t in, std::int64_t out) {
  return Conv1d({.in_channels = in, .out_channels = out, .kernel_size = 1});
}

/// Vectors of x (..., d) scaled to length 1.
Tensor unit_vectors(const Tensor& x) {
  return x / clamp(norm(x, {-1}, /*keepdim=*/true), kSmallestLength, std::numeric_limits<double>::infinity());
}

FactorizedQuantizer::Options checked(const FactorizedQuantizer::Options& options) {
  layers::require_at_least("FactorizedQuantizer", "input_dim", options.input_dim, 1);
  layers::require_at_least("FactorizedQuantizer", "codebook_size", options.codebook_size, 1);
  layers::require_at_least("FactorizedQuantizer", "codebook_dim", options.codebook_dim, 1);
  return options;
}

}  // namespace

FactorizedQuantizer::FactorizedQuantizer(const Options& options)
    : options_(checked(options)),
      in_proj_(pointwise(options.input_dim, options.codebook_dim)),
      out_proj_(pointwise(options.codebook_dim, options.input_dim)),
      codebook_(Tensor::randn({options.codebook_size, options.codebook_dim})) {}

void FactorizedQuantizer::visit(Visitor& visitor) {
  if (options_.encodes) visitor.module("in_proj", in_proj_);
  visitor.module("out_proj", out_proj_);
  visitor.buffer("codebook.weight", codebook_);
}

Tensor FactorizedQuantizer::forward(const Tensor& codes) { return out_proj_(embedding(codes, codebook_).transpose(1, 2)); }

Tensor FactorizedQuantizer::nearest(const Tensor& projected) const {
  const NoGradGuard no_grad;
  const AutocastGuard exact(std::nullopt);  // 16 bits would find other codes
  const DType dtype = projected.dtype() == DType::f64 ? DType::f64 : DType::f32;
  return nearest_code(unit_vectors(projected.to(dtype).transpose(1, 2)), unit_vectors(codebook_.to(dtype)));
}

FactorizedQuantizer::Encoded FactorizedQuantizer::encode(const Tensor& z) {
  require<Error>(options_.encodes, "FactorizedQuantizer: expected one with in_proj to encode, got one that decodes");
  Encoded result;
  result.projected = in_proj_(z);
  result.codes = nearest(result.projected);
  const Tensor chosen = embedding(result.codes, codebook_.to(result.projected.dtype())).transpose(1, 2);
  result.quantized = out_proj_(straight_through(result.projected, chosen));
  return result;
}

namespace {

using Role = ResidualQuantizer::Role;

/// Each frame of codes, or position of a vector, by itself.
class QuantizerStream : public ModuleStream {
 public:
  explicit QuantizerStream(ResidualQuantizer& quantizer, DType dtype) : quantizer_(quantizer), dtype_(dtype) {
    if (quantizer.options().role == Role::decoder) up_ = quantizer.positions_per_frame();
  }
  [[nodiscard]] Tensor push(const Tensor& x, bool) override {
    if (x.size(2) > 0) return quantizer_.forward(x);
    const bool gives_codes = quantizer_.options().role == Role::encoder;
    return Tensor::empty({x.size(0), gives_codes ? quantizer_.rows() : quantizer_.options().input_dim, 0},
                         {gives_codes ? DType::i64 : dtype_, x.device()});
  }
  void reset() override {}
  [[nodiscard]] Span inputs_of(Span outputs) const override {
    const auto frame = [this](std::int64_t t) { return t >= 0 ? t / up_ : -((-t + up_ - 1) / up_); };
    return {frame(outputs.first), frame(outputs.last)};
  }
  [[nodiscard]] Rate rate() const override { return {up_, 1}; }

 private:
  ResidualQuantizer& quantizer_;
  DType dtype_;
  std::int64_t up_ = 1;
};

}  // namespace

ResidualQuantizer::ResidualQuantizer(const Options& options) : options_(options) {
  const std::size_t count = options.codebook_dims.size();
  require<ShapeError>(count >= 1, "ResidualQuantizer: expected at least one codebook_dims");
  if (options.strides.empty()) options_.strides.assign(count, 1);
  require<ShapeError>(options_.strides.size() == count, "ResidualQuantizer: expected a stride for each of ", count,
                      " codebooks, got ", options_.strides.size());
  for (const std::int64_t stride : options_.strides) {
    layers::require_at_least("ResidualQuantizer", "strides", stride, 1);
    require<NotImplemented>(options.role == Role::decoder || stride == 1,
                            "ResidualQuantizer: expected strides of 1 to encode, got ", stride);
    require<ShapeError>(stride <= kMostPositions && std::lcm(positions_, stride) <= kMostPositions,
                        "ResidualQuantizer: expected strides with a common multiple of at most ", kMostPositions, ", got ",
                        stride);
    positions_ = std::lcm(positions_, stride);
  }
  for (std::size_t i = 0; i < count; ++i) {
    rows_ += rows_of(i);
    quantizers_.push_back(FactorizedQuantizer({.input_dim = options.input_dim,
                                               .codebook_size = options.codebook_size,
                                               .codebook_dim = options.codebook_dims[i],
                                               .encodes = options.role != Role::decoder}));
  }
}

FactorizedQuantizer& ResidualQuantizer::quantizer(std::size_t i) const {
  return static_cast<FactorizedQuantizer&>(quantizers_[i]);
}

Tensor ResidualQuantizer::forward(const Tensor& x) {
  if (options_.role == Role::decoder) return decode(x);
  const Encoded encoded = encode(x);
  return options_.role == Role::encoder ? encoded.codes : encoded.quantized;
}

std::unique_ptr<ModuleStream> ResidualQuantizer::make_stream() {
  const DType dtype = state_dict().front().second.dtype();
  return std::make_unique<QuantizerStream>(*this, dtype);
}

Tensor ResidualQuantizer::decode(const Tensor& codes) {
  const std::vector<Tensor> streams = unpack(codes);
  Tensor all;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (codes.device().is_cpu() && codes.numel() > 0) {
      const auto least = min(streams[i]).item<std::int64_t>(), largest = max(streams[i]).item<std::int64_t>();
      require<ShapeError>(least >= 0 && largest < options_.codebook_size, "quantizer: expected codes in [0, ",
                          options_.codebook_size, ") of codebook ", i, ", got ", least < 0 ? least : largest);
    }
    Tensor vectors = quantizer(i)(streams[i]);
    if (options_.strides[i] > 1) vectors = upsample1d(vectors, options_.strides[i]);
    all = all.defined() ? all + vectors : vectors;
  }
  return all;
}

ResidualQuantizer::Encoded ResidualQuantizer::encode(const Tensor& z) {
  Encoded result;
  Tensor rest = z;
  std::vector<Tensor> codes, projected;
  for (std::size_t i = 0; i < quantizers_.size(); ++i) {
    const FactorizedQuantizer::Encoded one = quantizer(i).encode(rest);
    rest = rest - one.quantized;
    result.quantized = i == 0 ? one.quantized : result.quantized + one.quantized;
    codes.push_back(one.codes);
    projected.push_back(one.projected);
  }
  result.codes = stack(codes, 1);
  result.projected = cat(projected, 1);
  return result;
}

Tensor ResidualQuantizer::pack(const std::vector<Tensor>& codes) const {
  require<ShapeError>(codes.size() == quantizers_.size(), "quantizer: expected codes of ", quantizers_.size(),
                      " codebooks, got ", codes.size());
  std::vector<Tensor> rows;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    require<ShapeError>(codes[i].rank() == 2, "quantizer: expected codes (N, T) of codebook ", i, ", got ", codes[i].shape());
    const std::int64_t N = codes[i].size(0), T = codes[i].size(1), per_frame = rows_of(i);
    const std::int64_t frames = codes[0].size(1) / rows_of(0);
    require<ShapeError>(N == codes[0].size(0) && T == frames * per_frame, "quantizer: expected codes (", codes[0].size(0), ", ",
                        frames * per_frame, ") of codebook ", i, ", got ", codes[i].shape());
    rows.push_back(codes[i].reshape({N, frames, per_frame}).transpose(1, 2));
  }
  return cat(rows, 1);
}

std::vector<Tensor> ResidualQuantizer::unpack(const Tensor& packed) const {
  const bool may_be_fewer = positions_ == 1;
  require<ShapeError>(
      packed.rank() == 3 && (may_be_fewer ? packed.size(1) >= 1 && packed.size(1) <= rows_ : packed.size(1) == rows_),
      "quantizer: expected codes (N, ", may_be_fewer ? "1 to " : "", rows_, ", frames), got ", packed.shape());
  require<DTypeError>(packed.dtype() == DType::i64, "quantizer: expected codes, i64, got ", packed.dtype());
  std::vector<Tensor> codes;
  std::int64_t row = 0;
  for (std::size_t i = 0; i < quantizers_.size() && row < packed.size(1); row += rows_of(i), ++i)
    codes.push_back(packed.narrow(1, row, rows_of(i)).transpose(1, 2).reshape({packed.size(0), packed.size(2) * rows_of(i)}));
  return codes;
}

}  // namespace polyphase
