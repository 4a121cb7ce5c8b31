#pragma once
// What a device must be able to do. Every operation of ops/ and optim/ comes down to these few calls; cpu/backend.cpp
// answers them on the host. Not for users: nothing here is differentiable, and callers have checked shapes, dtypes and devices.
//
// Tensors passed in may have any strides unless said otherwise; `out` is allocated by the caller and fully overwritten.
// On a device with streams all calls are asynchronous on the current stream, except where said.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "tensor/allocator.hpp"
#include "tensor/map_op.hpp"
#include "tensor/random.hpp"
#include "tensor/tensor.hpp"

namespace polyphase {

/// One parameter's tensors in an optimizer step; all contiguous, of one shape and device. `momentum`/`second` may be undefined.
struct OptimizerSlot {
  Tensor parameter;
  Tensor grad;
  Tensor momentum;         ///< SGD: velocity; Adam: first moment
  Tensor second;           ///< Adam: second moment
  std::int64_t index = 0;  ///< of its count in StepControl::counts
};
/// What changes from step to step. It is in the memory of the parameters' device, so that a step recorded in a graph sees
/// what it is when replayed, and the host never waits for it.
struct StepControl {
  Tensor learning_rate;     ///< () f64
  Tensor counts;            ///< (n) i64, contiguous: updates of each slot's parameter; the step first adds one to each
  Tensor skip;              ///< () f64, may be undefined; where it is not 0, nothing is written and nothing counted
  std::int64_t total = -1;  ///< an element of `counts` that the step adds one to as well; -1: none
};
struct SgdStep {
  double momentum, dampening, weight_decay;
  bool nesterov;
};
struct AdamStep {
  double beta1, beta2, epsilon, weight_decay;
  bool decoupled;  ///< AdamW: decay the weight, not the gradient
};
/// The decay of a moving average after n updates: `decay`, or with `ramp` at most (1 + n)/(10 + n).
struct AverageStep {
  double decay;
  bool ramp;
};
/// How a loss scale changes: times `growth` after `interval` good steps in a row, times `backoff` after a bad one.
struct LossScaleStep {
  double growth, backoff;
  std::int64_t interval;
};
/// Places in the state (3) f64 of a loss scale; growth_tracker counts good steps in a row.
enum class LossScaleField : std::uint8_t { scale, growth_tracker, skipped };

/// What follows the sums of a convolution, computed and rounded as the MapOps one after another would.
struct ConvEpilogue {
  Activation activation = Activation::none;
  double slope = 0;  ///< of leaky_relu
  Tensor alpha{};    ///< (C) of snake, of the output's channels and dtype, contiguous
  Tensor beta{};     ///< likewise
  /// May be undefined; else of the output's shape and dtype, contiguous, and out = residual + scale*activation(sums + bias)
  /// with one rounding of the product's sum (MapOp::add_scaled).
  Tensor residual{};
  double scale = 1;  ///< of what is added to the residual
  /// May be undefined; else of the output's shape and dtype, contiguous: gets sums + bias, the activation's argument.
  Tensor before{};
  /// May be undefined; else of the output's shape and dtype, contiguous: what derivative_of(activation) takes. The sums are
  /// multiplied by that derivative instead of activated; not with snake or `before`.
  Tensor derivative{};
  /// Whether anything follows the sums.
  [[nodiscard]] bool is_needed() const { return activation != Activation::none || residual.defined() || before.defined(); }
};

/// Gradients through snake, each of what it is named after; undefined ones are not wanted.
struct SnakeGradients {
  Tensor x{};              ///< (N, C, L), contiguous
  Tensor alpha{}, beta{};  ///< (C), contiguous
  /// Not a gradient that is computed: what x's is added to once it is rounded, like x. May be undefined.
  Tensor added{};
};

/// What Backend::moments computes: contiguous tensors of one floating-point dtype.
struct Moments {
  Tensor mean;      ///< in's rank, 1 where reduced; rounded
  Tensor rest;      ///< likewise: what rounding took from the mean
  Tensor variance;  ///< likewise
  Tensor centred;   ///< of in's shape: in - mean
  /// The mean, a view of centred's shape.
  [[nodiscard]] Tensor mean_everywhere() const;
};

/// A device's side of an Event (tensor/event.hpp), which asks only for moments that were recorded.
class BackendEvent {
 public:
  virtual ~BackendEvent() = default;
  /// On the current stream.
  virtual void record() = 0;
  [[nodiscard]] virtual bool is_done() const = 0;
  virtual void synchronize() const = 0;
  /// To a moment of the same device; both are reached.
  [[nodiscard]] virtual double elapsed_ms(const BackendEvent& end) const = 0;
};

/// One kind of device. There is one Backend per device, alive for the whole program.
class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual Allocator& allocator() = 0;
  /// Waits for everything issued on the current stream.
  virtual void synchronize() = 0;
  [[nodiscard]] virtual std::unique_ptr<BackendEvent> make_event() = 0;

  // ---- moving ---------------------------------------------------------------------------------------------------
  /// out = in, same shape, same device, any strides, dtype converted (round to nearest).
  virtual void copy(const Tensor& out, const Tensor& in) = 0;
  virtual void fill(const Tensor& out, double value) = 0;
  /// out[i] = start + i*step, computed in f64 and rounded; contiguous.
  virtual void arange(const Tensor& out, double start, double step) = 0;
  /// Host bytes to this device, in order with the stream; `host_data` may change as soon as this returns.
  virtual void copy_from_host(void* device_data, const void* host_data, std::size_t bytes) = 0;
  /// Bytes of this device to the host; waits for them and for what was issued before.
  virtual void copy_to_host(void* host_data, const void* device_data, std::size_t bytes) = 0;

  // ---- elementwise, reduction, random -----------------------------------------------------------------------------
  /// out[i] = op(inputs[0][i], ...). Inputs have out's shape and dtype (broadcast ones have stride 0); at most 4.
  /// f16 and bf16 are computed in f32 and rounded once.
  virtual void map(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars) = 0;
  /// Reduces the dimensions where out.size(d) == 1 and in.size(d) != 1; out is contiguous and has in's rank and dtype.
  /// Sums of f32 and halves are accumulated in at least f32 with an error that grows no faster than log(n), in an order
  /// fixed by the shape. An empty sum is 0; an empty max or min is refused by the caller.
  virtual void reduce(ReduceOp op, const Tensor& out, const Tensor& in) = 0;
  /// out () = q * sum over i of op(a[i], b[i]) with op squared_difference or smooth_l1; summed as reduce() does, then rounded,
  /// then scaled. a and b: contiguous, of one shape, not empty, f32 or f64.
  virtual void reduce_map(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, MapScalars scalars) = 0;
  /// Over the dimensions that out.mean lacks: the mean, and q times the sum of (in - mean - rest)^2 as the variance, which so
  /// keeps its digits however far the mean is from zero. Summed as reduce() does; f32 or f64; 0 and 0*q where there is nothing
  /// to sum.
  virtual void moments(const Moments& out, const Tensor& in, double q) = 0;
  /// Contiguous out; element i from word i%4 of block offset + i/4 (uniform: 24 bits for f32, 53 for f64 from two words, none
  /// past uniform_limit(); normal: Box-Muller on pairs of words). f16 and bf16 are rounded from f32.
  virtual void uniform(const Tensor& out, GeneratorState state, double low, double high) = 0;
  virtual void normal(const Tensor& out, GeneratorState state, double mean, double deviation) = 0;

  // ---- linear algebra ---------------------------------------------------------------------------------------------
  /// out (B, M, N) = a (B, M, K) * b (B, K, N); out contiguous; a and b of any strides (0 in B broadcasts).
  virtual void matmul(const Tensor& out, const Tensor& a, const Tensor& b) = 0;

  // ---- along the last dimension -------------------------------------------------------------------------------------
  /// Throws ShapeError where a position of index (J), i64 contiguous, is outside [0, length): at once, or on a device with
  /// streams at the next call that waits for it, so that checking does not wait. Until then gather reads zero there.
  virtual void check_index(const Tensor& index, std::int64_t length) = 0;
  /// out (R, J): out[r, j] = in[r, index[j]]; index (J) i64 contiguous, all in range; out and in contiguous.
  virtual void gather(const Tensor& out, const Tensor& in, const Tensor& index) = 0;
  /// The adjoint: out (R, I) = 0, then out[r, index[j]] += in[r, j], in the order of j.
  virtual void scatter_add(const Tensor& out, const Tensor& in, const Tensor& index) = 0;
  /// out (R, P) of in (R, L), P > 0: out[r, left + i] = in[r, i], and what `mode` says around it; contiguous. reflect: left < L
  /// and P - L - left < L; replicate: L >= 1.
  virtual void pad(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode) = 0;
  /// The adjoint: out (R, L)[r, i] = the sum over all positions of in (R, P) that hold element i, ascending; more than kRun of
  /// them in runs. reflect and replicate only.
  virtual void pad_backward(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode) = 0;
  /// out (R, L*S) of in (R, L): out[r, i*S + k] = in[r, i]*(1 - w) + w*in[r, i + 1 or i - 1], w = |2k + 1 - S|/2S, the
  /// neighbour before i for 2k + 1 < S, else the one after it. Where there is none, or w = 0, in[r, i] as it is. Contiguous, no
  /// integers.
  virtual void upsample_linear(const Tensor& out, const Tensor& in, std::int64_t scale) = 0;
  /// The adjoint: out (R, L) of in (R, L*S); sums over k ascending, more than kRun/2 of them in runs.
  virtual void upsample_linear_backward(const Tensor& out, const Tensor& in, std::int64_t scale) = 0;
  /// In runs: n > kRun values are first summed to m = ceil(n/kRun), value j to sum j % m, and these in the same way.
  static constexpr std::int64_t kRun = 64;
  /// Overlap-add, the adjoint of Tensor::unfold: out (R, L) = 0, then out[r, f*step + i] += in[r, f, i]; contiguous.
  virtual void fold(const Tensor& out, const Tensor& in, std::int64_t step) = 0;
  /// out (R, n/2+1, 2) = real DFT of in (R, n); n any positive even number; contiguous; f32 or f64.
  virtual void rfft(const Tensor& out, const Tensor& in) = 0;
  /// The adjoint (not the inverse): out (R, n)[t] = sum over f of in[f,0]*cos(2 pi f t/n) - in[f,1]*sin(2 pi f t/n), f =
  /// 0..n/2.
  virtual void rfft_adjoint(const Tensor& out, const Tensor& in) = 0;

  // ---- convolution (conv/problem.hpp); all tensors contiguous, `bias` may be undefined -------------------------------
  [[nodiscard]] virtual std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction,
                                                                 Algorithm algorithm, Precision precision) = 0;
  virtual void conv_forward(const ConvProblem& problem, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y,
                            Algorithm algorithm, Precision precision) = 0;
  virtual void conv_dgrad(const ConvProblem& problem, const Tensor& y, const Tensor& w, const Tensor& bias, const Tensor& x,
                          Algorithm algorithm, Precision precision) = 0;
  virtual void conv_wgrad(const ConvProblem& problem, const Tensor& x, const Tensor& y, const Tensor& w, Algorithm algorithm,
                          Precision precision) = 0;

  /// out = epilogue(direction(source, w) + bias), direction forward or dgrad, `bias` of out's channels; the bits of the
  /// convolution followed by map() for the activation and map() for the residual.
  virtual void conv_activated(const ConvProblem& problem, ConvDirection direction, const Tensor& source, const Tensor& w,
                              const Tensor& bias, const Tensor& out, const ConvEpilogue& epilogue, Algorithm algorithm,
                              Precision precision) = 0;
  /// Whether conv_activated() forms the epilogue where it stores its results, with no pass over memory for it. `epilogue`'s
  /// tensors are only asked whether they are there.
  [[nodiscard]] virtual bool fuses(const ConvProblem& problem, ConvDirection direction, const ConvEpilogue& epilogue,
                                   Algorithm algorithm, Precision precision) = 0;
  /// The way back: in = map(derivative, result, gradient) and sums (C) = in summed over the other two dimensions, in an order
  /// fixed by the shape. `result` is what the activation, which is not snake, gave; (N, C, L), contiguous, not empty. Without
  /// an activation `result` and `in` are not looked at and `gradient` is summed. `sums` may be undefined.
  virtual void activation_backward(const ConvEpilogue& epilogue, const Tensor& result, const Tensor& gradient, const Tensor& in,
                                   const Tensor& sums) = 0;

  /// The gradients of MapOp::snake from its argument x (N, C, L), alpha (C), beta (C) and the result's gradient, all contiguous
  /// and not empty: those of alpha and beta are sums over the other two dimensions in an order fixed by the shape. With
  /// `out.added` out.x has the bits of map(MapOp::add) of that and of x's gradient.
  virtual void snake_backward(const Tensor& x, const Tensor& alpha, const Tensor& beta, const Tensor& gradient,
                              const SnakeGradients& out) = 0;

  // ---- optimizers: one call a step, whatever the number of parameters; nothing waits ----------------------------------
  virtual void sgd_step(std::span<const OptimizerSlot> slots, const SgdStep& step, const StepControl& control) = 0;
  virtual void adam_step(std::span<const OptimizerSlot> slots, const AdamStep& step, const StepControl& control) = 0;

  // ---- lists of contiguous floating-point tensors, dtypes mixed; f16 and bf16 are computed in f32; nothing waits ----------
  /// norm () f64 = sqrt(sum of the squares of all elements), summed in f64 in an order fixed by the sizes. Then all elements
  /// *= max_norm/(norm + 1e-6), unless that is 1 or more, or `finite_only` and the norm is not finite.
  virtual void clip_norm(std::span<const Tensor> tensors, double max_norm, bool finite_only, const Tensor& norm) = 0;
  /// found () f64 = 1 if an element is infinite or NaN, else as it was; all elements *= 1/scale; scale () f64.
  virtual void unscale(std::span<const Tensor> tensors, const Tensor& scale, const Tensor& found) = 0;
  /// averages[i] += (1 - decay)*(values[i] - averages[i]), pairs of one shape and dtype; `updates` () i64 is the n of `step`
  /// and becomes one more.
  virtual void average(std::span<const Tensor> averages, std::span<const Tensor> values, const AverageStep& step,
                       const Tensor& updates) = 0;
  /// `state` (LossScaleField) after a step, a bad one if any of `found` () f64 is not 0; a scale that f32 cannot hold is not
  /// taken. Then every `found` is 0. At most kMaxFound of them.
  virtual void update_loss_scale(const Tensor& state, std::span<const Tensor> found, const LossScaleStep& step) = 0;
  static constexpr std::size_t kMaxFound = 64;
};

/// The MapOp of an activation, and that of its derivative from its result; there is one for all but none, for all but none and
/// snake.
[[nodiscard]] MapOp map_op_of(Activation activation);
[[nodiscard]] MapOp derivative_of(Activation activation);
/// The largest number that Backend::uniform draws: the one of `dtype` before `high`, but `low` where they are one number there.
[[nodiscard]] double uniform_limit(double low, double high, DType dtype);
/// out (N, C, L) = epilogue(out) by backend.map(), in place.
void finish_in_place(Backend& backend, const ConvEpilogue& epilogue, const Tensor& out);

/// The backend of a device. Throws DeviceError, naming what is missing, where the device does not exist.
[[nodiscard]] Backend& backend_of(Device device);
/// How many devices of a type this build and machine have; 1 for cpu.
[[nodiscard]] int device_count(DeviceType type);

// Each device's room supplies its own; only backend_of and device_count call these.

/// The host (cpu/backend.cpp).
[[nodiscard]] Backend& cpu_backend();
/// CUDA device `index` (cuda/; cuda/no_cuda.cpp in a build without). Throws DeviceError.
[[nodiscard]] Backend& cuda_backend(int index);
[[nodiscard]] int cuda_device_count();

}  // namespace polyphase
