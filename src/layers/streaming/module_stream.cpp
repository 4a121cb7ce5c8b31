#include "layers/streaming/module_stream.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <typeinfo>
#include <vector>

#include "autograd/no_grad.hpp"
#include "autograd/node.hpp"
#include "cuda/cuda.hpp"
#include "device/backend.hpp"
#include "layers/module.hpp"
#include "ops/length.hpp"

namespace polyphase::layers {

using Layout = ModuleStream::Layout;

std::string type_name(const Module& module) {
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(typeid(module).name(), nullptr, nullptr, nullptr),
                                                    std::free);
  return name ? name.get() : typeid(module).name();
}

std::string short_type_name(const Module& module) {
  const std::string whole = type_name(module);
  return whole.substr(whole.rfind(':') + 1);
}

Layout joined(Layout place, const ModuleStream& stream, const Module& module) {
  const Layout layout = stream.layout();
  if (place == Layout::any || layout == Layout::any) return place == Layout::any ? layout : place;
  const auto shape = [](Layout of) { return of == Layout::channels_last ? "(N, L, C)" : "(N, C, L)"; };
  require<NotImplemented>(layout == place, "stream: ", type_name(module), " takes ", shape(layout), " where it gets ",
                          shape(place), "; ChannelsLast goes between them");
  return place;
}

Tensor length_second(const Tensor& x) {
  std::vector<int> dims{0, x.rank() - 1};
  for (int d = 1; d + 1 < x.rank(); ++d) dims.push_back(d);
  return x.permute(dims);
}

Tensor length_last(const Tensor& x) {
  std::vector<int> dims{0};
  for (int d = 2; d < x.rank(); ++d) dims.push_back(d);
  dims.push_back(1);
  return x.permute(dims);
}

void count_on(std::int64_t& counter, std::int64_t count) {
  counter += count;
  cuda::on_replay([&counter, count] { counter += count; });
}

namespace {
std::uint64_t& noted() {
  thread_local std::uint64_t count = 0;
  return count;
}
}  // namespace

void note_new_state() { ++noted(); }
std::uint64_t new_states() { return noted(); }

Tensor HeldPositions::followed_by(const Tensor& x) const {
  if (is_empty()) return x;
  return x.size(2) == 0 ? kept_ : cat({kept_, x}, 2);
}

void HeldPositions::require_like(const Tensor& x) const {
  if (!kept_.defined()) return;
  Shape expected = kept_.shape();
  if (x.rank() == kept_.rank()) expected[2] = x.size(2);
  require<ShapeError>(x.shape() == expected, "stream: expected positions like those before, ", kept_.shape(), ", got ",
                      x.shape());
}

Tensor HeldPositions::advance(const Tensor& x, std::int64_t kept) {
  const bool stays = size() == kept && kept > 0 && x.size(2) > 0 && (kept_.rank() == 3 || kept_.rank() == 4) &&
                     x.dtype() == kept_.dtype() && x.device() == kept_.device() && !autograd::should_record(std::array{x});
  if (!stays) {
    const Tensor all = followed_by(x);
    keep(all.narrow(2, all.size(2) - kept, kept));
    return all;
  }
  require_like(x);
  Shape shape = kept_.shape();
  shape[2] += x.size(2);
  const Tensor all = Tensor::empty(shape, {x.dtype(), x.device()});
  const auto wide = [](const Tensor& tensor) { return tensor.rank() == 4 ? tensor : tensor.unsqueeze(3); };
  const NoGradGuard no_grad;
  backend_of(x.device()).advance(wide(all), wide(kept_), wide(x.detach()));
  kept_.storage().bump_version();
  return all;
}

void HeldPositions::keep(const Tensor& x) {
  if (kept_.defined() && kept_.shape() == x.shape()) {
    kept_.copy_(x);
  } else {
    kept_ = x.clone();
    note_new_state();
  }
}

Tensor PointwiseStream::push(const Tensor& x, bool) {
  require<Error>(!options_.only_in_eval || !module_.is_training(), "stream: expected ", type_name(module_),
                 " after eval(), got it in training");
  return options_.layout == Layout::channels_last ? length_last(module_.forward(length_second(x))) : module_.forward(x);
}

std::optional<Layout> layout_of_channels(int dim) {
  if (dim == 1 || dim == -2) return Layout::channels_first;
  if (dim == 2 || dim == -1) return Layout::channels_last;
  return std::nullopt;
}

Tensor NeighbourStream::push(const Tensor& x, bool last) {
  const std::int64_t left = options_.left, right = options_.right, up = options_.up;
  const Tensor all = held_.followed_by(x);
  const std::int64_t ready = last ? all.size(2) : std::max(done_, all.size(2) - right);  // earlier positions have their outputs
  Tensor y = ready == done_ ? Tensor::empty({x.size(0), x.size(1) / options_.channel_divisor, 0}, {x.dtype(), x.device()})
                            : module_.forward(all).narrow(2, done_ * up, (ready - done_) * up).contiguous();
  const std::int64_t drop = std::max<std::int64_t>(ready - left, 0);
  held_.keep(all.narrow(2, drop, all.size(2) - drop));
  if (done_ != ready - drop) note_new_state();
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
