#include "layers/containers/residual.hpp"

#include <algorithm>

#include "layers/fused.hpp"
#include "layers/streaming/module_stream.hpp"
#include "ops/elementwise.hpp"

namespace polyphase {
namespace {

class ResidualStream : public ModuleStream {
 public:
  ResidualStream(std::unique_ptr<ModuleStream> block, double scale) : block_(std::move(block)), scale_(scale) {}

  [[nodiscard]] Tensor push(const Tensor& x, bool last) override {
    const Tensor y = block_->push(x, last);
    const Tensor all = waiting_.followed_by(x);
    const std::int64_t ready = y.size(2);
    require<ShapeError>(ready <= all.size(2) && (!last || ready == all.size(2)) && y.size(1) == x.size(1),
                        "Residual: expected its modules to keep the shape, got ", y.size(1), " channels for ", x.size(1),
                        " and ", ready, " positions for ", all.size(2));
    waiting_.keep(all.narrow(2, ready, all.size(2) - ready));
    if (ready == 0) return y;
    const Tensor own = all.narrow(2, 0, ready);
    if (block_->layout() != Layout::channels_last) return add_scaled(own, y, scale_);
    // The sum has the order in memory of what the block's modules read and write.
    return layers::length_last(add_scaled(layers::length_second(own), layers::length_second(y), scale_));
  }

  void reset() override {
    block_->reset();
    waiting_.clear();
  }

  [[nodiscard]] Span inputs_of(Span outputs) const override {
    const Span block = block_->inputs_of(outputs);
    return {std::min(block.first, outputs.first), std::max(block.last, outputs.last)};
  }
  [[nodiscard]] Rate rate() const override { return {}; }
  [[nodiscard]] std::int64_t period() const override { return block_->period(); }
  [[nodiscard]] Layout layout() const override { return block_->layout(); }

 private:
  std::unique_ptr<ModuleStream> block_;
  double scale_;
  layers::HeldPositions waiting_;  // inputs whose outputs the block has not returned yet
};

}  // namespace

Tensor Residual::forward(const Tensor& x) { return layers::forward_residual(block_.modules(), x, scale_); }

std::unique_ptr<ModuleStream> Residual::make_stream() { return std::make_unique<ResidualStream>(block_.make_stream(), scale_); }

}  // namespace polyphase
