#include "cpu/backend.hpp"

#include <chrono>
#include <cstring>

#include "cpu/conv/conv.hpp"
#include "cpu/elementwise/antialias.hpp"
#include "cpu/elementwise/copy.hpp"
#include "cpu/elementwise/elementwise.hpp"
#include "cpu/elementwise/embedding.hpp"
#include "cpu/elementwise/length.hpp"
#include "cpu/elementwise/pad.hpp"
#include "cpu/elementwise/random.hpp"
#include "cpu/elementwise/rope.hpp"
#include "cpu/elementwise/upsample.hpp"
#include "cpu/linear/fft.hpp"
#include "cpu/linear/lstm.hpp"
#include "cpu/linear/matmul.hpp"
#include "cpu/memory/allocator.hpp"
#include "cpu/optimizers/optimizers.hpp"
#include "cpu/optimizers/optimizers_lists.hpp"
#include "cpu/reduce/moments.hpp"
#include "cpu/reduce/reduce.hpp"

namespace polyphase {
namespace cpu {
namespace {

const void* address_or_null(const Tensor& tensor) { return tensor.defined() ? tensor.raw() : nullptr; }

/// Earlier work is already done when it is recorded.
class HostEvent final : public BackendEvent {
 public:
  void record() override { time_ = std::chrono::steady_clock::now(); }
  [[nodiscard]] bool is_done() const override { return true; }
  void synchronize() const override {}
  [[nodiscard]] double elapsed_ms(const BackendEvent& end) const override {
    return std::chrono::duration<double, std::milli>(static_cast<const HostEvent&>(end).time_ - time_).count();
  }

 private:
  std::chrono::steady_clock::time_point time_;
};

}  // namespace

Allocator& CpuBackend::allocator() { return host_allocator(); }
std::unique_ptr<BackendEvent> CpuBackend::make_event() { return std::make_unique<HostEvent>(); }

void CpuBackend::copy(const Tensor& out, const Tensor& in) { cpu::copy(out, in); }
void CpuBackend::fill(const Tensor& out, double value) { cpu::fill(out, value); }
void CpuBackend::arange(const Tensor& out, double start, double step) { cpu::arange(out, start, step); }
void CpuBackend::copy_from_host(void* device_data, const void* host_data, std::size_t bytes) {
  if (bytes > 0) std::memcpy(device_data, host_data, bytes);
}
void CpuBackend::copy_to_host(void* host_data, const void* device_data, std::size_t bytes) {
  if (bytes > 0) std::memcpy(host_data, device_data, bytes);
}

void CpuBackend::map(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars) {
  cpu::map(op, out, inputs, scalars);
}
void CpuBackend::reduce(ReduceOp op, const Tensor& out, const Tensor& in) { cpu::reduce(op, out, in); }
void CpuBackend::reduce_map(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, MapScalars scalars) {
  cpu::reduce_map(op, out, a, b, scalars);
}
void CpuBackend::moments(const Moments& out, const Tensor& in, double q) { cpu::moments(out, in, q); }
void CpuBackend::uniform(const Tensor& out, GeneratorState state, double low, double high) {
  cpu::uniform(out, state, low, high);
}
void CpuBackend::normal(const Tensor& out, GeneratorState state, double mean, double deviation) {
  cpu::normal(out, state, mean, deviation);
}

void CpuBackend::matmul(const Tensor& out, const Tensor& a, const Tensor& b) { cpu::matmul(out, a, b); }
void CpuBackend::lstm(std::span<const LstmSteps> layers) {
  for (std::size_t k = 0; k < layers.size(); ++k) {
    lstm_input(layers, k);
    cpu::lstm(lstm_converted(layers[k]));
  }
}
void CpuBackend::rope(const Tensor& out, const Tensor& x, const Rotation& rotation) { cpu::rope(out, x, rotation); }

void CpuBackend::check_index(const Tensor& index, std::int64_t length) { cpu::check_index(index, length); }
void CpuBackend::embed(const Tensor& out, const Tensor& codes, std::span<const EmbeddingTable> tables, double least_usage) {
  cpu::embed(out, codes, tables, least_usage);
}
void CpuBackend::gather(const Tensor& out, const Tensor& in, const Tensor& index) { cpu::gather(out, in, index); }
void CpuBackend::scatter_add(const Tensor& out, const Tensor& in, const Tensor& index) { cpu::scatter_add(out, in, index); }
void CpuBackend::pad(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode) {
  cpu::pad(out, in, left, mode);
}
void CpuBackend::pad_backward(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode) {
  cpu::pad_backward(out, in, left, mode);
}
void CpuBackend::upsample_linear(const Tensor& out, const Tensor& in, std::int64_t scale) {
  cpu::upsample_linear(out, in, scale);
}
void CpuBackend::upsample_linear_backward(const Tensor& out, const Tensor& in, std::int64_t scale) {
  cpu::upsample_linear_backward(out, in, scale);
}
void CpuBackend::antialiased_snake(const Tensor& out, const AntialiasedSnake& in) { cpu::antialiased_snake(out, in); }
void CpuBackend::antialiased_snake_backward(const AntialiasedSnakeGradients& out, const AntialiasedSnake& in,
                                            const Tensor& gradient) {
  cpu::antialiased_snake_backward(out, in, gradient);
}
void CpuBackend::fold(const Tensor& out, const Tensor& in, std::int64_t step) { cpu::fold(out, in, step); }
void CpuBackend::rfft(const Tensor& out, const Tensor& in) { cpu::rfft(out, in); }
void CpuBackend::rfft_adjoint(const Tensor& out, const Tensor& in) { cpu::rfft_adjoint(out, in); }

std::optional<std::string> CpuBackend::can_implement(const ConvProblem& problem, ConvDirection direction, Algorithm algorithm,
                                                     Precision /*precision*/) {
  return cpu::can_implement(problem, direction, algorithm);
}
void CpuBackend::conv_forward(const ConvProblem& problem, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y,
                              Algorithm algorithm, Precision precision) {
  cpu::conv_forward(problem, x.raw(), w.raw(), address_or_null(bias), y.raw(), algorithm, precision);
}
void CpuBackend::conv_dgrad(const ConvProblem& problem, const Tensor& y, const Tensor& w, const Tensor& bias, const Tensor& x,
                            Algorithm algorithm, Precision precision) {
  cpu::conv_dgrad(problem, y.raw(), w.raw(), address_or_null(bias), x.raw(), algorithm, precision);
}
void CpuBackend::conv_wgrad(const ConvProblem& problem, const Tensor& x, const Tensor& y, const Tensor& w, Algorithm algorithm,
                            Precision /*precision*/) {
  cpu::conv_wgrad(problem, x.raw(), y.raw(), w.raw(), algorithm);
}

void CpuBackend::conv_activated(const ConvProblem& problem, ConvDirection direction, const Tensor& source, const Tensor& w,
                                const Tensor& bias, const Tensor& out, const ConvPrologue& prologue,
                                const ConvEpilogue& epilogue, Algorithm algorithm, Precision precision) {
  const Tensor read = activated_source(*this, prologue, source);
  const auto convolve = direction == ConvDirection::forward ? cpu::conv_forward : cpu::conv_dgrad;
  convolve(problem, read.raw(), w.raw(), address_or_null(bias), out.raw(), algorithm, precision);
  finish_in_place(*this, epilogue, out);
}
void CpuBackend::activation_backward(const ConvEpilogue& epilogue, const Tensor& result, const Tensor& gradient,
                                     const Tensor& in, const Tensor& sums) {
  const bool is_active = epilogue.activation != Activation::none;
  if (is_active) map(derivative_of(epilogue.activation), in, std::array{result, gradient}, {epilogue.slope, 0});
  if (!sums.defined()) return;
  const Tensor& summed = is_active ? in : gradient;
  reduce(ReduceOp::sum, TensorAccess::view(sums, {1, sums.numel(), 1}, {sums.numel(), 1, 1}, sums.offset()), summed);
}
void CpuBackend::snake_backward(const Tensor& x, const Tensor& alpha, const Tensor& beta, const Tensor& gradient,
                                const SnakeGradients& out) {
  const auto along_channels = [&](const Tensor& values) {
    return TensorAccess::view(values, x.shape(), {0, 1, 0}, values.offset());
  };
  const std::array inputs{x, along_channels(alpha), along_channels(beta), gradient};
  if (out.x.defined()) map(MapOp::snake_grad_x, out.x, inputs, {});
  if (out.x.defined() && out.added.defined()) map(MapOp::add, out.x, std::array{out.added, out.x}, {});
  const auto sum_of = [&](MapOp op, const Tensor& sums) {
    if (!sums.defined()) return;
    const Tensor part = Tensor::empty(x.shape(), {x.dtype(), x.device()});
    map(op, part, inputs, {});
    reduce(ReduceOp::sum, TensorAccess::view(sums, {1, sums.numel(), 1}, {sums.numel(), 1, 1}, sums.offset()), part);
  };
  sum_of(MapOp::snake_grad_alpha, out.alpha);
  sum_of(MapOp::snake_grad_beta, out.beta);
}

void CpuBackend::sgd_step(std::span<const OptimizerSlot> slots, const SgdStep& step, const StepControl& control) {
  cpu::sgd_step(slots, step, control);
}
void CpuBackend::adam_step(std::span<const OptimizerSlot> slots, const AdamStep& step, const StepControl& control) {
  cpu::adam_step(slots, step, control);
}
void CpuBackend::clip_norm(std::span<const Tensor> tensors, double max_norm, bool finite_only, const Tensor& norm) {
  cpu::clip_norm(tensors, max_norm, finite_only, norm);
}
void CpuBackend::unscale(std::span<const Tensor> tensors, const Tensor& scale, const Tensor& found) {
  cpu::unscale(tensors, scale, found);
}
void CpuBackend::average(std::span<const Tensor> averages, std::span<const Tensor> values, const AverageStep& step,
                         const Tensor& updates) {
  cpu::average(averages, values, step, updates);
}
void CpuBackend::copy_list(std::span<const Tensor> out, std::span<const Tensor> in) { cpu::copy_list(out, in); }
void CpuBackend::update_loss_scale(const Tensor& state, std::span<const Tensor> found, const LossScaleStep& step) {
  cpu::update_loss_scale(state, found, step);
}

}  // namespace cpu

Backend& cpu_backend() {
  static cpu::CpuBackend* const backend = new cpu::CpuBackend;  // never destroyed: tensors in static storage may outlive main
  return *backend;
}

}  // namespace polyphase
