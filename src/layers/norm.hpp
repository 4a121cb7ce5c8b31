#pragma once
// Normalisations over groups of channels, over batches and over the last dimension; a learned scale per channel.

#include <optional>
#include <string>

#include "../layers/either_layout.hpp"
#include "../layers/module.hpp"

namespace polyphase {

class StatisticsSum;

/// Normalises each of `num_groups` groups of channels of each sample to mean 0 and variance 1, then scales and shifts per
/// channel. x (N, C, ...). Parameters: weight (C), bias (C).
class GroupNorm : public Module {
 public:
  struct Options {
    std::int64_t num_groups = 0;    ///< required
    std::int64_t num_channels = 0;  ///< C, required
    double epsilon = 1e-5;
    bool affine = true;  ///< with weight and bias
    DType dtype = DType::f32;
    Device device = default_device();
  };
  /// Throws ShapeError unless num_groups divides num_channels and epsilon >= 0, DTypeError unless the dtype is floating point.
  explicit GroupNorm(const Options& options);
  void visit(Visitor& visitor) override;
  [[nodiscard]] Tensor forward(const Tensor& x) override;

 private:
  Options options_;
  Tensor weight_;  // (C)
  Tensor bias_;    // (C)
};

/// Normalises the last dimension to mean 0 and variance 1, then scales and shifts. x (..., C). Parameters: weight (C), bias
/// (C).
class LayerNorm : public Module, public layers::EitherLayout {
 public:
  struct Options {
    std::int64_t normalized_shape = 0;  ///< C, required
    double epsilon = 1e-5;
    bool elementwise_affine = true;  ///< with weight, and bias if `bias` is true as well
    bool bias = true;
    DType dtype = DType::f32;
    Device device = default_device();
  };
  /// Throws ShapeError unless normalized_shape >= 1 and epsilon >= 0, DTypeError unless the dtype is floating point.
  explicit LayerNorm(const Options& options);
  void visit(Visitor& visitor) override;
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  [[nodiscard]] Tensor forward_channels_first(const Tensor& x) override;
  /// For x (N, L, C), in a ChannelsLast.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] const Tensor& weight() const { return weight_; }  ///< undefined if it has none
  [[nodiscard]] const Tensor& bias() const { return bias_; }      ///< undefined if it has none

 private:
  Options options_;
  Tensor weight_;  // (C)
  Tensor bias_;    // (C)
};

/// Normalises the last dimension to a mean square of 1, then scales. x (..., C). Parameter: weight (C).
class RMSNorm : public Module {
 public:
  struct Options {
    std::int64_t normalized_shape = 0;  ///< C, required
    std::optional<double> epsilon{};    ///< none: see rms_norm()
    bool elementwise_affine = true;     ///< with weight
    DType dtype = DType::f32;
    Device device = default_device();
  };
  /// Throws ShapeError unless normalized_shape >= 1 and epsilon >= 0, DTypeError unless the dtype is floating point.
  explicit RMSNorm(const Options& options);
  void visit(Visitor& visitor) override;
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  /// For x (N, L, C), in a ChannelsLast.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

 private:
  Options options_;
  Tensor weight_;  // (C)
};

/// x times one learned number per channel (Touvron et al. 2021, CaiT). Parameter: gamma (C), or as `name` says, `init` at
/// first.
class LayerScale : public Module, public layers::EitherLayout {
 public:
  struct Options {
    std::int64_t channels = 0;  ///< C, required
    double init = 1e-4;
    int dim = -1;  ///< the dimension of x that holds the channels; 1 for (N, C, L)
    DType dtype = DType::f32;
    Device device = default_device();
    std::string name = "gamma";  ///< of the parameter: "scale" in Mimi
  };
  /// Throws ShapeError unless channels >= 1, DTypeError unless the dtype is floating point.
  explicit LayerScale(const Options& options);
  void visit(Visitor& visitor) override;
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  [[nodiscard]] Tensor forward_channels_first(const Tensor& x) override;
  /// Only if `dim` is the channel dimension of (N, C, L) or (N, L, C).
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] const Tensor& gamma() const { return gamma_; }
  /// gamma in a shape that broadcasts with x, whose channels are in dimension `dim`. Throws ShapeError unless they are C.
  [[nodiscard]] Tensor gamma_for(const Tensor& x, int dim) const;

 private:
  Options options_;
  Tensor gamma_;  // (C)
};

/// Normalises each channel to mean 0 and variance 1 over N and L, with the batch's statistics in training and the running ones
/// otherwise. x (N, C) or (N, C, L). Parameters: weight (C), bias (C); buffers: running_mean (C), running_var (C),
/// num_batches_tracked (), an i64 that Module::to does not move.
class BatchNorm1d : public Module {
 public:
  struct Options {
    std::int64_t num_features = 0;  ///< C, required
    double epsilon = 1e-5;
    std::optional<double> momentum = 0.1;  ///< weight of the newest batch in the running statistics; none: plain average
    bool affine = true;                    ///< with weight and bias
    bool track_running_stats = true;       ///< if false, always uses the batch's statistics
    DType dtype = DType::f32;
    Device device = default_device();
  };
  /// Throws ShapeError naming the option that is out of range, DTypeError unless the dtype is floating point.
  explicit BatchNorm1d(const Options& options);
  void visit(Visitor& visitor) override;
  /// In training it updates the running statistics. Throws ShapeError in training with a single value per channel, and
  /// DeviceError in cuda::capture for plain averages on a GPU whose counter is on the host; then nothing has changed.
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  /// For x (N, C, L), with running statistics, in evaluation: push() throws Error in training mode.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
  /// From now on training uses the statistics of all processes' batches; null: of its own batch.
  void set_statistics_sum(std::shared_ptr<StatisticsSum> over) { over_ = std::move(over); }

 private:
  Options options_;
  std::shared_ptr<StatisticsSum> over_;
  Tensor weight_;               // (C)
  Tensor bias_;                 // (C)
  Tensor running_mean_;         // (C)
  Tensor running_var_;          // (C)
  Tensor num_batches_tracked_;  // (), i64
};

}  // namespace polyphase
