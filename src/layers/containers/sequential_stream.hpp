#pragma once
// A sequence of modules in a Stream. Internal.

#include <memory>
#include <numeric>
#include <vector>

#include "layers/fused.hpp"
#include "layers/streaming/module_stream.hpp"

namespace polyphase::layers {

class SequentialStream : public ModuleStream {
 public:
  /// Throws NotImplemented naming a module that cannot be streamed, or whose layout differs from `inside` and earlier modules.
  explicit SequentialStream(Modules modules, Layout inside = Layout::any) : layout_(inside) {
    for (const auto& module : modules) {
      streams_.push_back(module->make_stream());
      layout_ = joined(layout_, *streams_.back(), *module);
    }
  }

  [[nodiscard]] Tensor push(const Tensor& x, bool last) override {
    Tensor y = x;
    for (const auto& stream : streams_) y = stream->push(y, last);
    return y;
  }

  void reset() override {
    for (const auto& stream : streams_) stream->reset();
  }

  [[nodiscard]] Span inputs_of(Span outputs) const override {
    Span span = outputs;
    for (auto stream = streams_.rbegin(); stream != streams_.rend(); ++stream) {
      const bool depends_on_all = span.first <= kAllBefore;
      span = (*stream)->inputs_of(span);
      if (depends_on_all) span.first = kAllBefore;
    }
    return span;
  }

  [[nodiscard]] Rate rate() const override {
    Rate all;
    for (const auto& stream : streams_) {
      const auto [up, down] = stream->rate();
      const std::int64_t common = std::gcd(all.up * up, all.down * down);
      all = {all.up * up / common, all.down * down / common};
    }
    return all;
  }

  [[nodiscard]] std::int64_t period() const override {
    std::int64_t all = 1;  // of the modules so far
    for (const auto& stream : streams_) {
      const auto [up, down] = stream->rate();
      const std::int64_t own = stream->period(), inputs = own / up * down;
      all = own * (std::lcm(all, inputs) / inputs);
    }
    return all;
  }

  [[nodiscard]] Layout layout() const override { return layout_; }

 private:
  std::vector<std::unique_ptr<ModuleStream>> streams_;
  Layout layout_;
};

}  // namespace polyphase::layers
