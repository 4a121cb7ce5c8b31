#pragma once
// Activation functions as modules. Names and defaults are PyTorch's; Snake and SnakeBeta are BigVGAN's.

#include "../layers/module.hpp"
#include "../ops/conv_output.hpp"

namespace polyphase {

/// Base of modules without parameters and children.
class PlainModule : public Module {
 public:
  void visit(Visitor&) override {}
};

/// Base of plain modules that compute each position of the output from the same position of the input.
class PointwiseModule : public PlainModule {
 public:
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
};

/// max(x, 0).
class ReLU : public PointwiseModule {
 public:
  [[nodiscard]] Tensor forward(const Tensor& x) override;
};

/// x where x > 0, else negative_slope*x.
class LeakyReLU : public PointwiseModule {
 public:
  explicit LeakyReLU(double negative_slope = 0.01) : negative_slope_(negative_slope) {}
  [[nodiscard]] double negative_slope() const { return negative_slope_; }
  [[nodiscard]] Tensor forward(const Tensor& x) override;

 private:
  double negative_slope_;
};

/// x where x > 0, else alpha*(exp(x) - 1).
class ELU : public PointwiseModule {
 public:
  explicit ELU(double alpha = 1.0) : alpha_(alpha) {}
  [[nodiscard]] Tensor forward(const Tensor& x) override;

 private:
  double alpha_;
};

/// x * Phi(x), exact by default; with `approximate_tanh` PyTorch's approximate="tanh".
class GELU : public PointwiseModule {
 public:
  explicit GELU(bool approximate_tanh = false) : approximate_tanh_(approximate_tanh) {}
  [[nodiscard]] Tensor forward(const Tensor& x) override;

 private:
  bool approximate_tanh_;
};

/// a*sigmoid(b), where a and b are the two halves along dimension `dim`; 1 is the channels of (N, C, L).
class GLU : public PlainModule {
 public:
  explicit GLU(int dim = -1) : dim_(dim) {}
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  /// Only if `dim` is the channel dimension of (N, C, L) or (N, L, C).
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

 private:
  int dim_;
};

/// x * sigmoid(x).
class SiLU : public PointwiseModule {
 public:
  [[nodiscard]] Tensor forward(const Tensor& x) override;
};

class Tanh : public PointwiseModule {
 public:
  [[nodiscard]] Tensor forward(const Tensor& x) override;
};

class Sigmoid : public PointwiseModule {
 public:
  [[nodiscard]] Tensor forward(const Tensor& x) override;
};

/// Limits values to [low, high].
class Clamp : public PointwiseModule {
 public:
  /// Throws ShapeError unless low <= high.
  Clamp(double low, double high);
  [[nodiscard]] Tensor forward(const Tensor& x) override;

 private:
  double low_, high_;
};

struct SnakeOptions {
  double alpha = 1.0;           ///< initial value (also of beta), > 0
  bool alpha_logscale = false;  ///< learn log(alpha) and log(beta)
  DType dtype = DType::f32;
  Device device = default_device();
};

/// x + sin(alpha*x)^2/(alpha + 1e-9) with a learned alpha for each channel (Ziyin et al., arXiv 2006.08195).
/// x (N, C, L) or (C, L). Parameter: alpha (C).
class Snake : public Module {
 public:
  /// Throws ShapeError unless channels >= 1 and options.alpha > 0, DTypeError unless the dtype is floating point.
  explicit Snake(std::int64_t channels, const SnakeOptions& options = {});
  void visit(Visitor& visitor) override { visitor.parameter("alpha", alpha_); }
  /// The function of forward with its parameters, for Conv1d::forward_activated() and conv1d().
  [[nodiscard]] ConvOutputOptions output_options() const;
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

 private:
  Tensor alpha_;  // (C)
  bool logscale_;
};

/// x + sin(alpha*x)^2/(beta + 1e-9): frequency and magnitude are learned separately (BigVGAN, arXiv 2206.04658).
/// x (N, C, L) or (C, L). Parameters: alpha (C), beta (C).
class SnakeBeta : public Module {
 public:
  /// Throws ShapeError unless channels >= 1 and options.alpha > 0, DTypeError unless the dtype is floating point.
  explicit SnakeBeta(std::int64_t channels, const SnakeOptions& options = {});
  void visit(Visitor& visitor) override {
    visitor.parameter("alpha", alpha_);
    visitor.parameter("beta", beta_);
  }
  /// The function of forward with its parameters, for Conv1d::forward_activated() and conv1d().
  [[nodiscard]] ConvOutputOptions output_options() const;
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;

 private:
  Tensor alpha_;  // (C)
  Tensor beta_;   // (C)
  bool logscale_;
};

}  // namespace polyphase
