#include "layers/containers/channels_last.hpp"

#include <algorithm>
#include <typeinfo>

#include "conv/algorithm.hpp"
#include "conv/length_invariant.hpp"
#include "layers/activations.hpp"
#include "layers/containers/sequential_stream.hpp"
#include "layers/either_layout.hpp"
#include "layers/fused.hpp"

namespace polyphase {
namespace {

/// The stream of its modules; their streams already have the length last.
class ChannelsLastStream : public layers::SequentialStream {
 public:
  explicit ChannelsLastStream(layers::Modules modules) : SequentialStream(modules, Layout::channels_last) {}
  [[nodiscard]] Layout layout() const override { return Layout::channels_first; }
};

template <class... M>
bool is_one_of(const Module& module) {
  return ((typeid(module) == typeid(M)) || ...);
}

bool is_elementwise(const Module& module) { return is_one_of<ReLU, LeakyReLU, ELU, GELU, SiLU, Tanh, Sigmoid, Clamp>(module); }

/// Fewer positions are rows of a matrix product, which convolutions are slower for: those of a sample, and those of all samples
/// where a matrix product runs on tensor cores, too.
constexpr std::int64_t kPositionsLeast = 64, kPositionsLeastInAll = 4096;

bool has_few_positions(const Tensor& x) {
  const bool has_slow_products = x.dtype() == DType::f32 && current_precision() == Precision::fp32;
  return x.size(2) < kPositionsLeast || (!has_slow_products && x.size(0) * x.size(2) < kPositionsLeastInAll);
}

/// Whether the modules compute x (N, C, L) as it is: on a GPU, whose convolutions do not sum as its matrix products, so that a
/// LengthInvariantGuard excludes it. An AlgorithmGuard excludes it too: it is about convolutions, and Linear is none to users.
bool runs_channels_first(layers::Modules modules, const Tensor& x) {
  if (!x.device().is_cuda() || x.rank() != 3 || has_few_positions(x)) return false;
  if (LengthInvariantGuard::is_active() || current_algorithm() != Algorithm::automatic) return false;
  return std::all_of(modules.begin(), modules.end(), [](const auto& module) {
    return dynamic_cast<layers::EitherLayout*>(module.get()) != nullptr || is_elementwise(*module);
  });
}

Tensor run_channels_first(Module& module, const Tensor& x) {
  auto* either = dynamic_cast<layers::EitherLayout*>(&module);
  return either != nullptr ? either->forward_channels_first(x) : module.forward(x);
}

}  // namespace

Tensor ChannelsLast::forward(const Tensor& x) {
  require<ShapeError>(x.rank() >= 2, "ChannelsLast: expected x (N, ..., L), got ", x.shape());
  if (runs_channels_first(modules(), x)) {
    Tensor y = x;
    for (const auto& module : modules()) y = run_channels_first(*module, y);
    return y;
  }
  return layers::length_last(layers::forward_all(modules(), layers::length_second(x)));
}

std::unique_ptr<ModuleStream> ChannelsLast::make_stream() { return std::make_unique<ChannelsLastStream>(modules()); }

}  // namespace polyphase
