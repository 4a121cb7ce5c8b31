// The backend's functions of lists of tensors: normalised weights and optimizers.

#include "cuda/backend.hpp"
#include "cuda/optimizers/optimizers.hpp"
#include "cuda/optimizers/optimizers_lists.hpp"
#include "cuda/reduce/spectral_norm.hpp"
#include "cuda/reduce/weight_norm.hpp"
#include "cuda/turn.hpp"

namespace polyphase::cuda {

void CudaBackend::weight_norm(std::span<const NormalizedWeight> weights) {
  const Turn turn(device_);
  cuda::weight_norm(weights, turn.stream);
}
void CudaBackend::weight_norm_backward(std::span<const NormalizedWeightGradient> gradients) {
  const Turn turn(device_);
  cuda::weight_norm_backward(gradients, turn.stream);
}
void CudaBackend::spectral_norm(std::span<const SpectralWeight> weights) {
  const Turn turn(device_);
  cuda::spectral_norm(weights, device_, turn.stream);
}
void CudaBackend::spectral_norm_backward(std::span<const SpectralWeightGradient> gradients) {
  const Turn turn(device_);
  cuda::spectral_norm_backward(gradients, device_, turn.stream);
}

void CudaBackend::sgd_step(std::span<const OptimizerSlot> slots, const SgdStep& step, const StepControl& control) {
  const Turn turn(device_);
  cuda::sgd_step(slots, step, control, turn.stream);
}
void CudaBackend::adam_step(std::span<const OptimizerSlot> slots, const AdamStep& step, const StepControl& control) {
  const Turn turn(device_);
  cuda::adam_step(slots, step, control, turn.stream);
}
void CudaBackend::clip_norm(std::span<const Tensor> tensors, double max_norm, bool finite_only, const Tensor& norm) {
  const Turn turn(device_);
  cuda::clip_norm(tensors, max_norm, finite_only, norm, turn.stream);
}
void CudaBackend::unscale(std::span<const Tensor> tensors, const Tensor& scale, const Tensor& found) {
  const Turn turn(device_);
  cuda::unscale(tensors, scale, found, turn.stream);
}
void CudaBackend::average(std::span<const Tensor> averages, std::span<const Tensor> values, const AverageStep& step,
                          const Tensor& updates) {
  const Turn turn(device_);
  cuda::average(averages, values, step, updates, turn.stream);
}
void CudaBackend::copy_list(std::span<const Tensor> out, std::span<const Tensor> in) {
  const Turn turn(device_);
  cuda::copy_list(out, in, turn.stream);
}
void CudaBackend::update_loss_scale(const Tensor& state, std::span<const Tensor> found, const LossScaleStep& step) {
  const Turn turn(device_);
  cuda::update_loss_scale(state, found, step, turn.stream);
}

}  // namespace polyphase::cuda
