#include "layers/streaming/module_stream.hpp"

#include <algorithm>

#include "layers/module.hpp"
#include "ops/length.hpp"

namespace polyphase::layers {

Tensor HeldPositions::followed_by(const Tensor& x) const {
  if (is_empty()) return x;
  return x.size(2) == 0 ? kept_ : cat({kept_, x}, 2);
}

void HeldPositions::keep(const Tensor& x) {
  if (kept_.defined() && kept_.shape() == x.shape()) {
    kept_.copy_(x);
  } else {
    kept_ = x.clone();
  }
}

Tensor PointwiseStream::push(const Tensor& x, bool) { return x.size(2) == 0 ? x : module_.forward(x); }

Tensor NeighbourStream::push(const Tensor& x, bool last) {
  const std::int64_t left = options_.left, right = options_.right, up = options_.up;
  const Tensor all = held_.followed_by(x);
  const std::int64_t ready = last ? all.size(2) : std::max(done_, all.size(2) - right);  // those before it have their outputs
  Tensor y = ready == done_ ? Tensor::empty({x.size(0), x.size(1) / options_.channel_divisor, 0}, {x.dtype(), x.device()})
                            : module_.forward(all).narrow(2, done_ * up, (ready - done_) * up).contiguous();
  const std::int64_t drop = std::max<std::int64_t>(ready - left, 0);
  held_.keep(all.narrow(2, drop, all.size(2) - drop));
  done_ = ready - drop;
  return y;
}

void NeighbourStream::reset() {
  held_.clear();
  done_ = 0;
}

Span NeighbourStream::inputs_of(Span outputs) const {
  const auto own = [up = options_.up](std::int64_t t) { return t >= 0 ? t / up : -((-t + up - 1) / up); };
  return {own(outputs.first) - options_.left, own(outputs.last) + options_.right};
}

}  // namespace polyphase::layers
