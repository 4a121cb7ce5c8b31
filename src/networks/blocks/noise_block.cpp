#include "networks/blocks/noise_block.hpp"

#include <utility>

#include "layers/streaming/module_stream.hpp"
#include "networks/blocks/snake_blocks.hpp"
#include "ops/elementwise.hpp"
#include "tensor/random.hpp"
#include "tensor/repeated_numbers.hpp"

namespace polyphase {
namespace {

constexpr int kBitsOfPosition = 48;         // of a generator's offset; the block has the rest
constexpr std::int64_t kNumbersAtOnce = 4;  // of one offset, in f32

}  // namespace

void NoiseSource::set_seed(std::uint64_t seed) {
  *this = {};
  seed_ = seed;
}

void NoiseSource::set_zero() {
  *this = {};
  kind_ = Kind::zero;
}

void NoiseSource::set_rows(std::vector<Tensor> rows) {
  *this = {};
  kind_ = Kind::given;
  rows_ = std::move(rows);
}

Tensor NoiseSource::row(std::size_t block, std::int64_t first, std::int64_t count, const Tensor& x) const {
  if (kind_ == Kind::zero) return Tensor::zeros({1, 1, count}, {x.dtype(), x.device()});
  if (kind_ == Kind::given) {
    require<ShapeError>(block < rows_.size(), "noise: expected a row for each of the noise blocks, got ", rows_.size());
    const Tensor& row = rows_[block];
    require<ShapeError>(
        row.rank() == 3 && (row.size(0) == 1 || row.size(0) == x.size(0)) && row.size(1) == 1 && first + count <= row.size(2),
        "noise: expected row ", block, " to be (1 or ", x.size(0), ", 1, at least ", first + count, "), got ", row.shape());
    return row.narrow(2, first, count).to(x.dtype()).to(x.device());
  }
  const std::int64_t lead = first % kNumbersAtOnce;
  Generator generator;
  generator.set_state(
      {seed_, static_cast<std::uint64_t>(block) << kBitsOfPosition | static_cast<std::uint64_t>(first / kNumbersAtOnce)});
  const RepeatedNumbersGuard repeated;  // in a CUDA graph too: the numbers are a function of seed and position
  const Tensor numbers = Tensor::randn({1, 1, lead + count}, {DType::f32, x.device()}, &generator);
  return numbers.narrow(2, lead, count).to(x.dtype());
}

NoiseBlock::NoiseBlock(std::int64_t channels, std::size_t block, std::shared_ptr<const NoiseSource> source)
    : linear_(same_conv(channels, channels, 1, /*groups=*/1, /*bias=*/false)), block_(block), source_(std::move(source)) {}

Tensor NoiseBlock::forward(const Tensor& x) {
  if (!is_training() || !source_->is_seeded()) return with_noise(x, 0);
  return addcmul(x, Tensor::randn({x.size(0), 1, x.size(2)}, {x.dtype(), x.device()}), linear_(x));
}

Tensor NoiseBlock::with_noise(const Tensor& x, std::int64_t first) {
  return source_->is_zero() ? x : addcmul(x, source_->row(block_, first, x.size(2), x), linear_(x));
}

/// Knows its position.
class NoiseBlock::NoiseStream : public ModuleStream {
 public:
  explicit NoiseStream(NoiseBlock& block) : block_(block) {}
  [[nodiscard]] Tensor push(const Tensor& x, bool) override {
    require<Error>(!block_.is_training(),
                   "stream: expected the network after eval(), got it in training, where its noise is "
                   "new in each call");
    layers::note_new_state();  // the noise depends on the position
    const std::int64_t first = std::exchange(position_, position_ + x.size(2));
    return x.size(2) == 0 ? x : block_.with_noise(x, first);
  }
  void reset() override { position_ = 0; }
  [[nodiscard]] Span inputs_of(Span outputs) const override { return outputs; }
  [[nodiscard]] Rate rate() const override { return {}; }

 private:
  NoiseBlock& block_;
  std::int64_t position_ = 0;
};

std::unique_ptr<ModuleStream> NoiseBlock::make_stream() { return std::make_unique<NoiseStream>(*this); }

}  // namespace polyphase
