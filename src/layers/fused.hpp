#pragma once
// Runs neighbouring layers in one pass over memory. Not for users: Sequential and Residual use it.

#include <memory>
#include <span>
#include <vector>

#include "layers/module.hpp"
#include "ops/conv.hpp"

namespace polyphase {
class LayerScale;
}

namespace polyphase::layers {

using Modules = std::span<const std::shared_ptr<Module>>;

/// How many modules from `first` on form one pass, each of exactly these types (a derived class may compute something else):
/// two for a Conv1d or ConvTranspose1d followed by a ReLU, LeakyReLU, Tanh, Snake or SnakeBeta, and for a MeanOfBranches or
/// SumOfBranches followed by a ReLU or LeakyReLU; without recording one more for a ReLU or LeakyReLU before a convolution;
/// otherwise one.
[[nodiscard]] std::size_t pass_length(Modules modules, std::size_t first);

/// One pass over memory of forward_all() or forward_residual() without recording, as far as the modules decide it: a device may
/// need more for an activation or a sum that its kernel cannot fuse.
struct Pass {
  std::size_t first = 0, length = 1;  ///< its modules
  std::size_t main = 0;               ///< the module that computes; the others are activations before and after it
  bool adds_residual = false;
  bool is_unit = false;  ///< residual_unit(): all modules
};
/// The passes of `modules`, which are a Residual's if `is_residual`.
[[nodiscard]] std::vector<Pass> passes_of(Modules modules, bool is_residual);

// The functions below take tensors by value: memory of a tensor that the caller moves in is free as soon as it has been read.

/// Each module's output is the next one's input; returns x itself if there are none. Runs in passes of pass_length(), which do
/// not change the bits.
[[nodiscard]] Tensor forward_all(Modules modules, Tensor x);
/// module.forward(x).
[[nodiscard]] Tensor forward_one(Module& module, Tensor x);

/// A block that ends with a LayerScale, or with a ChannelsLast that ends with one along its last dimension.
struct ScaledBlock {
  std::vector<std::shared_ptr<Module>> before;  ///< the modules before it
  const LayerScale* scale = nullptr;            ///< null: it does not end so
  bool in_channels_last = false;
  /// residual + factor*scale(y), in one pass and rounded once. Throws ShapeError unless y has the residual's shape.
  [[nodiscard]] Tensor add(const Tensor& residual, const Tensor& y, double factor) const;
};
[[nodiscard]] ScaledBlock scaled_block(Modules modules);

/// add_scaled(x, forward_all(modules, x), scale), or as the scaled_block() adds it. If the last pass of `modules`, or of the
/// Sequentials that end them, is a convolution's, it also adds x, which does not change the bits. Without recording, two
/// convolutions of one length with a ReLU or LeakyReLU before each, or a Snake or SnakeBeta, are residual_unit(), which may add
/// in another order. Throws ShapeError if the result does not have x's shape.
[[nodiscard]] Tensor forward_residual(Modules modules, Tensor x, double scale);

/// The second convolution of the residual_unit() that ends a branch, in whose kernel the branches before are added; null if the
/// branch ends with something else.
[[nodiscard]] const Module* adding_convolution(Module& branch);
/// Whether a module is a residual_unit(), or several, one after another: it computes each sample by itself.
[[nodiscard]] bool is_of_units(Module& module);

/// A module's result, or its average with another one's.
struct Averaged {
  Tensor y;
  /// Whether the kernel of the last unit made y: averaged if there is another result, else in memory of its own.
  bool is_of_kernel = false;
};
/// forward_one(), and in the same kernel average_of({average.other, y}, ...) if the last pass is a residual_unit() that can.
/// With replaces_other that result replaces average.other, which is contiguous.
[[nodiscard]] Averaged forward_averaged(Module& module, Tensor x, const AverageWith& average, bool replaces_other = false);

}  // namespace polyphase::layers
