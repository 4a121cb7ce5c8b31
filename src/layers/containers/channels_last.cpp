#include "layers/containers/channels_last.hpp"

#include "layers/containers/sequential_stream.hpp"
#include "layers/fused.hpp"

namespace polyphase {
namespace {

/// The stream of its modules; their streams already have the length last.
class ChannelsLastStream : public layers::SequentialStream {
 public:
  explicit ChannelsLastStream(layers::Modules modules) : SequentialStream(modules, Layout::channels_last) {}
  [[nodiscard]] Layout layout() const override { return Layout::channels_first; }
};

}  // namespace

Tensor ChannelsLast::forward(const Tensor& x) {
  require<ShapeError>(x.rank() >= 2, "ChannelsLast: expected x (N, ..., L), got ", x.shape());
  return layers::length_last(layers::forward_all(modules(), layers::length_second(x)));
}

std::unique_ptr<ModuleStream> ChannelsLast::make_stream() { return std::make_unique<ChannelsLastStream>(modules()); }

}  // namespace polyphase
