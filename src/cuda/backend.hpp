#pragma once
// A GPU as a device: each call of tensor/tensor_backend.hpp goes to the file of cuda/ that implements it, on the calling
// thread's stream.

#include "device/backend.hpp"

namespace polyphase::cuda {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int device) : device_(device) {}

  [[nodiscard]] Allocator& allocator() override;
  void synchronize() override;
  [[nodiscard]] std::unique_ptr<BackendEvent> make_event() override;
  [[nodiscard]] std::unique_ptr<BackendFork> make_fork(std::size_t parts) override;
  [[nodiscard]] bool is_in_part() const override;
  void announce(std::span<const Tensor> weights) override;

  void copy(const Tensor& out, const Tensor& in) override;
  void fill(const Tensor& out, double value) override;
  void arange(const Tensor& out, double start, double step) override;
  void copy_from_host(void* device_data, const void* host_data, std::size_t bytes) override;
  void copy_to_host(void* host_data, const void* device_data, std::size_t bytes) override;

  void map(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars) override;
  /// Cached as the packed weights of a convolution are (Weights::packed).
  [[nodiscard]] Tensor derived(const Tensor& in, std::span<const MapStep> steps) override;
  void reduce(ReduceOp op, const Tensor& out, const Tensor& in) override;
  void reduce_map(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, MapScalars scalars) override;
  void pair_gradient(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& gradient,
                     MapScalars scalars) override;
  void moments(const Moments& out, const Tensor& in, double q) override;
  void uniform(const Tensor& out, GeneratorState state, double low, double high) override;
  void normal(const Tensor& out, GeneratorState state, double mean, double deviation) override;

  [[nodiscard]] bool normalize_channels(const NormOutputs& out, const NormInputs& in) override;
  /// f32 in the calling thread's precision.
  void matmul(const Tensor& out, const Tensor& a, const Tensor& b) override;
  [[nodiscard]] bool linear(const Tensor& out, const LinearInputs& in) override;
  void lstm(std::span<const LstmSteps> layers) override;

  void rope(const Tensor& out, const Tensor& x, const Rotation& rotation) override;
  [[nodiscard]] bool attention(const Tensor& out, const AttentionInputs& in) override;
  [[nodiscard]] std::int64_t rotary_attention_positions(DType dtype, std::int64_t head_size) const override;
  void rotary_attention(const Tensor& out, const RotaryAttention& in) override;
  void check_index(const Tensor& index, std::int64_t length) override;
  void embed(const Tensor& out, const Tensor& codes, std::span<const EmbeddingTable> tables, double least_usage) override;
  void gather(const Tensor& out, const Tensor& in, const Tensor& index) override;
  void scatter_add(const Tensor& out, const Tensor& in, const Tensor& index) override;
  void pad(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode) override;
  void pad_backward(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode) override;
  void advance(const Tensor& all, const Tensor& kept, const Tensor& x) override;
  void average_of(const Tensor& out, std::span<const Tensor> parts, double divisor, Activation activation,
                  double slope) override;
  void weight_norm(std::span<const NormalizedWeight> weights) override;
  void weight_norm_backward(std::span<const NormalizedWeightGradient> gradients) override;
  void spectral_norm(std::span<const SpectralWeight> weights) override;
  void spectral_norm_backward(std::span<const SpectralWeightGradient> gradients) override;
  void upsample_linear(const Tensor& out, const Tensor& in, std::int64_t scale) override;
  void upsample_linear_backward(const Tensor& out, const Tensor& in, std::int64_t scale) override;
  void antialiased_snake(const Tensor& out, const AntialiasedSnake& in) override;
  void antialiased_snake_backward(const AntialiasedSnakeGradients& out, const AntialiasedSnake& in,
                                  const Tensor& gradient) override;
  void fold(const Tensor& out, const Tensor& in, std::int64_t step) override;
  void rfft(const Tensor& out, const Tensor& in) override;
  void rfft_adjoint(const Tensor& out, const Tensor& in) override;

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
  [[nodiscard]] bool residual_unit(const ResidualUnit& unit, const Tensor& x, const std::array<UnitConvTensors, 2>& convs,
                                   const UnitAverageTensors& average, const Tensor& out) override;
  bool fuses(const ConvProblem& problem, ConvDirection direction, const ConvEpilogue& epilogue, Algorithm algorithm,
             Precision precision) override;
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

 private:
  int device_;
};

}  // namespace polyphase::cuda
