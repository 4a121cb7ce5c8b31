#include "layers/containers/sequential.hpp"

#include <numeric>
#include <vector>

#include "layers/fused.hpp"
#include "layers/streaming/module_stream.hpp"

namespace polyphase {
namespace {

class SequentialStream : public ModuleStream {
 public:
  explicit SequentialStream(layers::Modules modules) {
    for (const auto& module : modules) streams_.push_back(module->make_stream());
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

 private:
  std::vector<std::unique_ptr<ModuleStream>> streams_;
};

}  // namespace

Tensor Sequential::forward(const Tensor& x) { return layers::forward_all(modules(), x); }

std::unique_ptr<ModuleStream> Sequential::make_stream() { return std::make_unique<SequentialStream>(modules()); }

}  // namespace polyphase
