#include "layers/containers/residual.hpp"

#include <algorithm>

#include "layers/containers/sequential_stream.hpp"
#include "layers/fused.hpp"
#include "layers/streaming/module_stream.hpp"
#include "ops/elementwise.hpp"

namespace polyphase {
namespace {

class ResidualStream : public ModuleStream {
 public:
  ResidualStream(layers::Modules modules, double scale)
      : scaled_(layers::scaled_block(modules)),
        block_(std::make_unique<layers::SequentialStream>(modules)),
        layout_(block_->layout()),
        scale_(scale) {
    if (scaled_.scale != nullptr) block_ = std::make_unique<layers::SequentialStream>(scaled_.before);
  }

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
    if (layout_ != Layout::channels_last) return added(own, y);
    // The sum has the order in memory of what the block's modules read and write.
    return layers::length_last(added(layers::length_second(own), layers::length_second(y)));
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
  [[nodiscard]] Layout layout() const override { return layout_; }

 private:
  [[nodiscard]] Tensor added(const Tensor& x, const Tensor& y) const {
    return scaled_.scale != nullptr ? scaled_.add(x, y, scale_) : add_scaled(x, y, scale_);
  }

  layers::ScaledBlock scaled_;
  std::unique_ptr<ModuleStream> block_;  // without the LayerScale of scaled_
  Layout layout_;                        // of all modules of the block
  double scale_;
  layers::HeldPositions waiting_;  // inputs whose outputs the block has not returned yet
};

}  // namespace

Tensor Residual::forward(const Tensor& x) { return layers::forward_residual(block_.modules(), x, scale_); }

std::unique_ptr<ModuleStream> Residual::make_stream() { return std::make_unique<ResidualStream>(block_.modules(), scale_); }

}  // namespace polyphase
