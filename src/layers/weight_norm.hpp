#pragma once
// Weight and spectral normalisation of whole layers and networks.

#include <concepts>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "../layers/module.hpp"

namespace polyphase {

class Weight;
class WeightedLayer;

/// Splits the weight of the layer, or of every Conv1d, ConvTranspose1d and Linear in `module`, into magnitude weight_g and
/// direction weight_v (Salimans and Kingma, arXiv 1602.07868; PyTorch's weight_norm with dim=0). The parameters are new
/// tensors: call it before you make an optimizer. Throws Error if there is no layer with a plain weight.
void weight_norm(Module& module);

/// For use in an expression: `pp::Sequential net(pp::weight_norm(pp::Conv1d({...})), ...)`.
template <std::derived_from<Module> M>
[[nodiscard]] M weight_norm(M&& layer) {
  weight_norm(static_cast<Module&>(layer));
  return std::forward<M>(layer);
}

/// Folds weight_g and weight_v back into one `weight`, for inference or export. Throws Error if there is nothing to fold.
void remove_weight_norm(Module& module);

/// In its scope the calling thread's forwards use weights under weight norm in `module` that were computed at its beginning, on
/// a GPU in one launch, instead of one after another in each forward. Under an AutocastGuard, which has to be the same in the
/// whole scope, the casts of the other parameters of these layers are made at its beginning, too. Gradients flow through them
/// as usual; all forwards of the scope share them, so a second backward pass needs another scope. Weights of 16 bits under
/// weight norm are not held. Weights must not change in the scope, layers not move. Network::forward() has such a scope where
/// it records gradients.
class HeldWeights {
 public:
  explicit HeldWeights(Module& module);
  /// Holds the weights of several modules on one device.
  explicit HeldWeights(std::span<Module* const> modules);
  /// Holds the weights under spectral norm instead, those of layers in training mode after one step of power iteration: the
  /// scope is that of one forward.
  struct Spectral {
    Module& module;
  };
  explicit HeldWeights(Spectral of);
  ~HeldWeights();
  HeldWeights(const HeldWeights&) = delete;
  HeldWeights& operator=(const HeldWeights&) = delete;
  /// The weight that the calling thread holds; undefined if it holds none.
  [[nodiscard]] static Tensor find(const Weight& weight);

 private:
  struct State;
  void hold(std::span<const Tensor> biases);
  static thread_local State* innermost;
  std::unique_ptr<State> state_;
};

/// Divides the weight of the layer, or of every Conv1d and Linear in `module`, by an estimate of its largest singular value
/// (Miyato et al., arXiv 1802.05957; PyTorch's spectral_norm): parameter weight_orig, buffers weight_u and weight_v. Each
/// forward in training mode improves the estimate by one step. The start of the estimate is random. Throws Error if there is no
/// layer with a plain weight, NotImplemented for a ConvTranspose1d; then nothing has changed.
void spectral_norm(Module& module);
template <std::derived_from<Module> M>
[[nodiscard]] M spectral_norm(M&& layer) {
  spectral_norm(static_cast<Module&>(layer));
  return std::forward<M>(layer);
}

/// Folds the division into one `weight`. Throws Error if there is nothing to fold.
void remove_spectral_norm(Module& module);

}  // namespace polyphase
