#pragma once
// The host as a device: each call of tensor/tensor_backend.hpp goes to the file of cpu/ that implements it.

#include "device/backend.hpp"

namespace polyphase::cpu {

class CpuBackend final : public Backend {
 public:
  [[nodiscard]] Allocator& allocator() override;
  /// Nothing to wait for: every call returns when it is done.
  void synchronize() override {}
  [[nodiscard]] std::unique_ptr<BackendEvent> make_event() override;

  void copy(const Tensor& out, const Tensor& in) override;
  void fill(const Tensor& out, double value) override;
  void arange(const Tensor& out, double start, double step) override;
  void copy_from_host(void* device_data, const void* host_data, std::size_t bytes) override;
  void copy_to_host(void* host_data, const void* device_data, std::size_t bytes) override;

  void map(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars) override;
  void reduce(ReduceOp op, const Tensor& out, const Tensor& in) override;
  void reduce_map(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, MapScalars scalars) override;
  void moments(const Moments& out, const Tensor& in, double q) override;
  void uniform(const Tensor& out, GeneratorState state, double low, double high) override;
  void normal(const Tensor& out, GeneratorState state, double mean, double deviation) override;

  void matmul(const Tensor& out, const Tensor& a, const Tensor& b) override;
  void lstm(std::span<const LstmSteps> layers) override;

  void rope(const Tensor& out, const Tensor& x, const Rotation& rotation) override;
  void check_index(const Tensor& index, std::int64_t length) override;
  void embed(const Tensor& out, const Tensor& codes, std::span<const EmbeddingTable> tables, double least_usage) override;
  void gather(const Tensor& out, const Tensor& in, const Tensor& index) override;
  void scatter_add(const Tensor& out, const Tensor& in, const Tensor& index) override;
  void pad(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode) override;
  void pad_backward(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode) override;
  void upsample_linear(const Tensor& out, const Tensor& in, std::int64_t scale) override;
  void upsample_linear_backward(const Tensor& out, const Tensor& in, std::int64_t scale) override;
  void antialiased_snake(const Tensor& out, const AntialiasedSnake& in) override;
  void antialiased_snake_backward(const AntialiasedSnakeGradients& out, const AntialiasedSnake& in,
                                  const Tensor& gradient) override;
  void fold(const Tensor& out, const Tensor& in, std::int64_t step) override;
  void rfft(const Tensor& out, const Tensor& in) override;
  void rfft_adjoint(const Tensor& out, const Tensor& in) override;

  /// f32 arithmetic is ieee's, which satisfies every precision, but for tf32 where minimal filtering is faster
  /// (cpu/conv/minimal_filter.hpp).
  [[nodiscard]] std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction,
                                                         Algorithm algorithm, Precision precision) override;
  void conv_forward(const ConvProblem& problem, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y,
                    Algorithm algorithm, Precision precision) override;
  void conv_dgrad(const ConvProblem& problem, const Tensor& y, const Tensor& w, const Tensor& bias, const Tensor& x,
                  Algorithm algorithm, Precision precision) override;
  void conv_wgrad(const ConvProblem& problem, const Tensor& x, const Tensor& y, const Tensor& w, Algorithm algorithm,
                  Precision precision) override;
  void conv_activated(const ConvProblem& problem, ConvDirection direction, const Tensor& source, const Tensor& w,
                      const Tensor& bias, const Tensor& out, const ConvPrologue& prologue, const ConvEpilogue& epilogue,
                      Algorithm algorithm, Precision precision) override;
  void snake_backward(const Tensor& x, const Tensor& alpha, const Tensor& beta, const Tensor& gradient,
                      const SnakeGradients& out) override;
  bool fuses(const ConvProblem&, ConvDirection, const ConvEpilogue&, Algorithm, Precision) override { return false; }
  void activation_backward(const ConvEpilogue& epilogue, const Tensor& result, const Tensor& gradient, const Tensor& in,
                           const Tensor& sums) override;

  void sgd_step(std::span<const OptimizerSlot> slots, const SgdStep& step, const StepControl& control) override;
  void adam_step(std::span<const OptimizerSlot> slots, const AdamStep& step, const StepControl& control) override;
  void clip_norm(std::span<const Tensor> tensors, double max_norm, bool finite_only, const Tensor& norm) override;
  void copy_list(std::span<const Tensor> out, std::span<const Tensor> in) override;
  void unscale(std::span<const Tensor> tensors, const Tensor& scale, const Tensor& found) override;
  void average(std::span<const Tensor> averages, std::span<const Tensor> values, const AverageStep& step,
               const Tensor& updates) override;
  void update_loss_scale(const Tensor& state, std::span<const Tensor> found, const LossScaleStep& step) override;
};

}  // namespace polyphase::cpu
