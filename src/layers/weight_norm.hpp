#pragma once
// Weight and spectral normalisation of whole layers and networks.

#include <concepts>
#include <utility>
#include <vector>

#include "../layers/module.hpp"

namespace polyphase {

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

/// In its scope every weight under weight norm in `module` is computed once, at its beginning and off the tape, instead of in
/// each forward: for several forwards that need no gradients of these weights. They must not change in the scope.
class HeldWeights {
 public:
  explicit HeldWeights(Module& module);
  ~HeldWeights();
  HeldWeights(const HeldWeights&) = delete;
  HeldWeights& operator=(const HeldWeights&) = delete;

 private:
  std::vector<WeightedLayer*> layers_;
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
