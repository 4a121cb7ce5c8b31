#pragma once
// The tensor functions of a device. Not for users: nothing here is differentiable, and callers have checked shapes, dtypes and
// devices. Convolutions and optimizers are in device/.
//
// Tensors may have any strides unless stated otherwise; the caller allocates `out`, which is fully overwritten. On a device
// with streams all calls are asynchronous on the current stream, unless stated otherwise.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "tensor/allocator.hpp"
#include "tensor/map_op.hpp"
#include "tensor/random.hpp"
#include "tensor/tensor.hpp"

namespace polyphase {

/// The results of TensorBackend::moments: contiguous tensors of one floating-point dtype.
struct Moments {
  Tensor mean;      ///< in's rank, 1 where reduced; rounded
  Tensor rest;      ///< same shape: the rounding error of the mean
  Tensor variance;  ///< same shape
  Tensor centred;   ///< of in's shape: in - mean
  /// The mean, a view of centred's shape.
  [[nodiscard]] Tensor mean_everywhere() const;
};

/// The arguments of TensorBackend::antialiased_snake, all contiguous, of any floating-point dtypes.
struct AntialiasedSnake {
  Tensor x;            ///< (N, C, L), L >= 1
  Tensor alpha, beta;  ///< (C)
  Tensor up, down;     ///< (kAntialiasTaps)
};
/// Its gradients, contiguous, each of the shape and dtype of its tensor; undefined if not needed.
struct AntialiasedSnakeGradients {
  Tensor x, alpha, beta;
};

/// The arguments of TensorBackend::rope besides its tensors.
struct Rotation {
  Tensor positions{};    ///< (L) i64, contiguous, or (1), the first; undefined: offset, offset + 1, ...
  Tensor frequencies{};  ///< (D/2) f64, contiguous: angle per position; undefined: base^(-2i/D)
  std::int64_t offset = 0;
  double base = 10000;
  bool interleaved = false;  ///< pairs are 2i and 2i + 1; else i and i + D/2
  bool reversed = false;     ///< turns back, which is the adjoint
};

/// The arguments of TensorBackend::attention: q (N, H, Lq, D), k (N, H, Lk, D), v (N, H, Lk, E), all of one floating-point
/// dtype, not empty, of any strides. Query i has position i + Lk - Lq; with `causal` it sees the keys up to it, with a `window`
/// > 0 only so many.
struct AttentionInputs {
  Tensor q, k, v;
  double scale = 1;
  bool causal = false;
  std::int64_t window = 0;
};

/// A layer of TensorBackend::lstm: T steps of N samples with H units; contiguous, T, N, H > 0, f32 or f64. Weights and biases
/// may be of 16 bits, all of one dtype, where the rest is f32.
struct LstmSteps {
  /// (T, N, 4H), each row four parts of H. In, of the first layer: its input times weight_ih; of the others: anything. Out:
  /// sigmoid(i), sigmoid(f), tanh(g), sigmoid(o).
  Tensor gates;
  Tensor weight;                       ///< weight_hh (4H, H)
  Tensor input_weight{};               ///< weight_ih (4H, H of the layer before), of all layers but the first
  Tensor input_bias{}, hidden_bias{};  ///< (4H); may be undefined
  Tensor h{}, c{};                     ///< (N, H), before the first step; undefined: zeros
  Tensor hidden, cells;                ///< (T, N, H), out: h and c after each step
};

/// The arguments of TensorBackend::rotary_attention: causal attention of the next n positions of a sequence. f32, f16 or bf16;
/// `projected` is contiguous and not empty.
struct RotaryAttention {
  Tensor projected;                       ///< (N, n, (heads + 2*key_heads)*D): each position's queries, keys and values
  std::int64_t heads = 1, key_heads = 1;  ///< heads/key_heads query heads in a row share a key head
  std::int64_t window = 0;                ///< keys that a query sees, its own included; 0: all before it
  double scale = 1;
  bool rotates = true;  ///< queries and keys are turned as by rope() with `rotation`, which has neither tensors nor an offset
  Rotation rotation{};
  bool sees_only_newest = false;  ///< all queries see the newest `window` keys, up to their own
  /// The past, contiguous: position p has row p % R of keys and values (N, key_heads, R, D), R >= window + n - 1, and
  /// `position` (2) i64 is the number of the first of the n positions, and 0. Undefined: the first position has the number 0.
  Tensor keys{}, values{}, position{};
};

/// The arguments of TensorBackend::linear: residual + scale*gelu(norm(x) weight^T + bias). All contiguous, of one dtype, not
/// empty; without residual and scale the sum and the product are left out.
struct LinearInputs {
  Tensor x, weight, bias{};           ///< (M, K), (N, K), and (N) or undefined
  bool normalizes = false;            ///< norm() is layer norm of the rows of x, rounded to the dtype; else x itself
  Tensor norm_weight{}, norm_bias{};  ///< (K); may be undefined
  double norm_epsilon = 0;            ///< of layer norm
  bool has_gelu = false;
  Tensor scale{}, residual{};  ///< (N) and (M, N); may be undefined
};

/// A codebook: rows (V, D), floating point; where usage (V) is defined, entry i is rows[i]/usage[i]. Contiguous.
struct EmbeddingTable {
  Tensor rows;
  Tensor usage{};
};

/// The arguments of TensorBackend::normalize_channels: x (N, C) or (N, C, L), weight and bias (C) or undefined, of one
/// floating-point dtype, contiguous, not empty. f16 and bf16 are computed in f32 and rounded once.
struct NormInputs {
  Tensor x, weight{}, bias{};
  double epsilon = 0;
  bool centres = true;  ///< layer norm; else RMS norm, which subtracts no mean
};
/// Its results, contiguous: y = normal*weight + bias, with normal = (x - mean)*scale, scale = 1/sqrt(variance + epsilon).
struct NormOutputs {
  Tensor y;         ///< x's shape
  Tensor normal{};  ///< x's shape; may be undefined
  Tensor scale{};   ///< (N, 1) or (N, 1, L); may be undefined. No `normal` and no `scale` for f16 and bf16
};

/// A weight under weight norm, rows: v and w (R, ...), g and norms (R, 1, ...). All contiguous, not empty, of one dtype, f32 or
/// f64, but w may be of 16 bits.
struct NormalizedWeight {
  Tensor w, norms, v, g;
};

/// Its gradients, of the same shapes: dw may be of 16 bits.
struct NormalizedWeightGradient {
  Tensor dv, dg;
  Tensor dw, v, g, norms;
};

/// A weight under spectral norm, as a matrix W of R rows: w = W/sigma. W and w (R, ...), sigma (), left (R) and right (the
/// product of W's other sizes). All contiguous, not empty, of one dtype, f32 or f64, but w may be of 16 bits.
struct SpectralWeight {
  Tensor w, sigma, left, right;       ///< results; left and right are the estimates themselves unless it iterates
  Tensor W, left_start, right_start;  ///< W, and the estimates of its first singular vectors, which are written if it iterates
  bool iterates = false;
};

/// Its gradient: dW and dw of W's shape; dw may be of 16 bits.
struct SpectralWeightGradient {
  Tensor dW;
  Tensor dw, W, sigma, left, right;
};

/// A function of one tensor.
struct MapStep {
  MapOp op;
  MapScalars scalars{};
};

/// A device's implementation of an Event (tensor/event.hpp); its functions are only called after record().
class BackendEvent {
 public:
  virtual ~BackendEvent() = default;
  /// On the current stream.
  virtual void record() = 0;
  [[nodiscard]] virtual bool is_done() const = 0;
  virtual void synchronize() const = 0;
  /// To a moment of the same device; both have been reached.
  [[nodiscard]] virtual double elapsed_ms(const BackendEvent& end) const = 0;
};

/// Parts of work that the device runs concurrently. Each begins after everything that was issued before the fork.
class BackendFork {
 public:
  /// As join().
  virtual ~BackendFork() = default;
  /// Issues `work` as a part. What it allocates belongs to the part: release it there too, after join(), so that the part has
  /// it again. What it reads must stay until join().
  virtual void run(std::size_t part, const std::function<void()>& work) = 0;
  /// The part's next work begins after everything issued to the current stream so far.
  virtual void follow(std::size_t part) = 0;
  /// The end of what the part has been given so far, for wait_for().
  [[nodiscard]] virtual std::size_t moment(std::size_t part) = 0;
  /// Everything issued to the current stream from now on runs after that moment.
  virtual void wait_for(std::size_t moment) = 0;
  /// Everything issued from now on runs after all parts.
  virtual void join() = 0;
};

/// A device's memory, and its functions of tensors.
class TensorBackend {
 public:
  virtual ~TensorBackend() = default;

  [[nodiscard]] virtual Allocator& allocator() = 0;
  /// Waits for everything issued on the current stream.
  virtual void synchronize() = 0;
  [[nodiscard]] virtual std::unique_ptr<BackendEvent> make_event() = 0;
  /// A fork of `parts` parts; nothing if the device runs one after another, which is the default.
  [[nodiscard]] virtual std::unique_ptr<BackendFork> make_fork(std::size_t parts);
  /// Whether the calling thread issues a part of a fork. Other parts must not read what it makes before they are joined.
  [[nodiscard]] virtual bool is_in_part() const;

  /// Says that convolutions will read `weights`, which are written. In a graph that is being recorded what a convolution
  /// derives from them alone runs next to everything that follows. The default does nothing.
  virtual void announce(std::span<const Tensor> weights);

  // ---- moving ---------------------------------------------------------------------------------------------------
  /// out = in, same shape, same device, any strides, dtype converted (round to nearest).
  virtual void copy(const Tensor& out, const Tensor& in) = 0;
  virtual void fill(const Tensor& out, double value) = 0;
  /// all (A, B, K + n, C), contiguous = kept (A, B, K, C), contiguous, followed by x (A, B, n, C) of any strides; then kept =
  /// the last K rows of `all`. One dtype. The default copies three times.
  virtual void advance(const Tensor& all, const Tensor& kept, const Tensor& x);
  /// out[i] = start + i*step, computed in f64 and rounded; contiguous.
  virtual void arange(const Tensor& out, double start, double step) = 0;
  /// Copies host bytes to this device, in order with the stream; `host_data` may change as soon as this returns.
  virtual void copy_from_host(void* device_data, const void* host_data, std::size_t bytes) = 0;
  /// Copies bytes of this device to the host; waits for them and for all earlier work.
  virtual void copy_to_host(void* host_data, const void* device_data, std::size_t bytes) = 0;

  // ---- elementwise, reduction, random -----------------------------------------------------------------------------
  /// out[i] = op(inputs[0][i], ...). Inputs have out's shape and dtype (broadcast ones have stride 0); at most 4.
  /// f16 and bf16 are computed in f32 and rounded once.
  virtual void map(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars) = 0;
  /// The functions `steps` of `in`, one after another, in a contiguous tensor that is only read. A device may return the tensor
  /// of an earlier call if `in` was not written since; the default computes it.
  [[nodiscard]] virtual Tensor derived(const Tensor& in, std::span<const MapStep> steps);
  /// out = activation((parts[0] + parts[1] + ...)/divisor), every step rounded to the dtype as by map(); at least one part; all
  /// contiguous, of one shape and floating-point dtype, `out` apart from all of them. divisor: a value of that dtype.
  /// activation: none, relu or leaky_relu (of `slope`). The default uses map(), step by step.
  virtual void average_of(const Tensor& out, std::span<const Tensor> parts, double divisor, Activation activation,
                          double slope);
  /// Reduces the dimensions in which out.size(d) == 1 and in.size(d) != 1; out is contiguous and has in's rank and dtype. Sums
  /// of f32 and 16-bit types are accumulated in at least f32 with an error that grows no faster than log(n), in an order fixed
  /// by the shape. An empty sum is 0; the caller rejects an empty max or min.
  virtual void reduce(ReduceOp op, const Tensor& out, const Tensor& in) = 0;
  /// out () = q * sum over i of op(a[i], b[i]) with op squared_difference or smooth_l1; summed as in reduce(), then rounded,
  /// then scaled. a and b: contiguous, of one shape and dtype, not empty, f32 or f64, or of 16 bits with an f32 out, then
  /// computed in f32.
  virtual void reduce_map(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, MapScalars scalars) = 0;
  /// out = op(a, b, gradient) with op squared_difference_grad or smooth_l1_grad and gradient (), f32; computed in f32 and
  /// rounded once. out, a and b: contiguous, of one shape, not empty, of one dtype of 16 bits. The default converts them.
  virtual void pair_gradient(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& gradient,
                             MapScalars scalars);
  /// Over the dimensions in which out.mean has size 1: the mean, and q times the sum of (in - mean - rest)^2 as the variance,
  /// which is accurate for any mean. Summed as in reduce(); f32 or f64; 0 and 0*q for empty sums.
  virtual void moments(const Moments& out, const Tensor& in, double q) = 0;
  /// For each: w = v*(g/norms) and norms = the square roots of v's sums of squares. Every step rounded, sums as in reduce().
  /// The default uses reduce() and map().
  virtual void weight_norm(std::span<const NormalizedWeight> weights);
  /// Their gradients, for each: dg = <dw, v>/norms and dv = (g/norms)*(dw - v*dg/norms).
  virtual void weight_norm_backward(std::span<const NormalizedWeightGradient> gradients);
  /// For each, if it iterates: right = unit(W^T left_start), left = unit(W right), and both starts are overwritten with them,
  /// where unit(x) = x/max(||x||, 1e-12). Then sigma = <left, W right> and w = W/sigma. The default uses matmul(), reduce()
  /// and map().
  virtual void spectral_norm(std::span<const SpectralWeight> weights);
  /// Their gradients, for each: dW = (dw - <dw, W>/sigma * left right^T)/sigma.
  virtual void spectral_norm_backward(std::span<const SpectralWeightGradient> gradients);
  /// Contiguous out; element i from word i%4 of block offset + i/4 (uniform: 24 bits for f32, 53 for f64 from two words, at
  /// most uniform_limit(); normal: Box-Muller on pairs of words). f16 and bf16 are rounded from f32.
  virtual void uniform(const Tensor& out, GeneratorState state, double low, double high) = 0;
  virtual void normal(const Tensor& out, GeneratorState state, double mean, double deviation) = 0;

  /// Layer norm or RMS norm over C in one kernel, sums in f64; what a position gets does not depend on the others. Returns
  /// false, with `out` untouched, where there is no such kernel: the default always does.
  [[nodiscard]] virtual bool normalize_channels(const NormOutputs& out, const NormInputs& in);

  // ---- linear algebra ---------------------------------------------------------------------------------------------
  /// out (B, M, N) = a (B, M, K) * b (B, K, N); out contiguous; a and b of any strides (0 in B broadcasts).
  virtual void matmul(const Tensor& out, const Tensor& a, const Tensor& b) = 0;
  /// out (M, N), contiguous = a product of few rows with what comes before and after it, in one kernel; sums in f32, rounded
  /// once. Returns false, with `out` untouched, where there is no such kernel: the default always does.
  [[nodiscard]] virtual bool linear(const Tensor& out, const LinearInputs& in);
  /// LSTM layers one after another; a step of a layer is, with the biases added to gates[t] first,
  ///   (i, f, g, o) = gates[t] + weight h,  c = f*c + i*g,  h = o*tanh(c),  hidden[t] = h,  cells[t] = c.
  /// The default uses matmul() and map(), step by step.
  virtual void lstm(std::span<const LstmSteps> layers);

  /// out (A, B, L, D) = the pairs of x's last dimension turned by their positions' angles, which are computed in f64; D even,
  /// of any floating-point dtype; f16 and bf16 are computed in f32 and rounded once. out contiguous, x of any strides.
  virtual void rope(const Tensor& out, const Tensor& x, const Rotation& rotation) = 0;
  /// out (N, H, Lq, E), of any strides but 1 in its last dimension = softmax(scale q k^T) v over the keys that each query sees.
  /// Returns false, with `out` untouched, where matmul() and map() do it better: the default always does.
  [[nodiscard]] virtual bool attention(const Tensor& out, const AttentionInputs& in);
  /// The most positions n that rotary_attention() takes for heads of D numbers; 0, the default, if the device has no such
  /// kernel.
  [[nodiscard]] virtual std::int64_t rotary_attention_positions(DType dtype, std::int64_t head_size) const;
  /// out (N, n, heads*D), contiguous = the attention of n positions, at most rotary_attention_positions(); keys and values are
  /// then extended by these positions, and `position` is counted on by n. Rotated queries and keys are rounded to the dtype.
  virtual void rotary_attention(const Tensor& out, const RotaryAttention& in);

  // ---- along the last dimension -------------------------------------------------------------------------------------
  /// Throws ShapeError if a position of index (J), i64 contiguous, is outside [0, length): immediately, or on a device with
  /// streams at the next call that waits for it, so that the check does not wait. Until then gather reads zero there.
  virtual void check_index(const Tensor& index, std::int64_t length) = 0;
  /// out (N, L, D), contiguous = the entries codes[n, q, l] of the tables (of out's dtype, D columns each), summed in the order
  /// of q, each sum rounded. A divided entry is rows/max(usage, least_usage), computed in at least f32 and rounded. codes (N,
  /// Q, L) i64 of any strides, Q = tables.size() >= 1; codes outside [0, V) as in check_index.
  virtual void embed(const Tensor& out, const Tensor& codes, std::span<const EmbeddingTable> tables, double least_usage) = 0;
  /// out (R, J): out[r, j] = in[r, index[j]]; index (J) i64 contiguous, all in range; out and in contiguous.
  virtual void gather(const Tensor& out, const Tensor& in, const Tensor& index) = 0;
  /// The adjoint: out (R, I) = 0, then out[r, index[j]] += in[r, j], in the order of j.
  virtual void scatter_add(const Tensor& out, const Tensor& in, const Tensor& index) = 0;
  /// out (R, P) of in (R, L), P > 0: out[r, left + i] = in[r, i], padded as `mode` says; contiguous. reflect: left < L and P -
  /// L - left < L; replicate: L >= 1.
  virtual void pad(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode) = 0;
  /// The adjoint: out (R, L)[r, i] = the sum over all positions of in (R, P) that hold element i, ascending; more than kRun of
  /// them are summed in runs. reflect and replicate only.
  virtual void pad_backward(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode) = 0;
  /// out (R, L*S) of in (R, L): out[r, i*S + k] = in[r, i]*(1 - w) + w*in[r, i + 1 or i - 1] with w = |2k + 1 - S|/2S; the
  /// neighbour is i - 1 for 2k + 1 < S, else i + 1. If there is no such neighbour or w = 0, it is in[r, i]. Contiguous, no
  /// integers.
  virtual void upsample_linear(const Tensor& out, const Tensor& in, std::int64_t scale) = 0;
  /// The adjoint: out (R, L) of in (R, L*S); sums over k ascending, more than kRun/2 of them are summed in runs.
  virtual void upsample_linear_backward(const Tensor& out, const Tensor& in, std::int64_t scale) = 0;
  /// Sums in runs: n > kRun values are first summed to m = ceil(n/kRun), value j to sum j % m, and these in the same way.
  static constexpr std::int64_t kRun = 64;
  /// out has x's shape and dtype: upsamples the rows of x, applies y + sin(alpha*y)^2/beta at every position y, and
  /// downsamples, as antialias() with these filters, in one pass over memory. 16-bit types are computed in f32 and rounded
  /// once. On the CPU an output's bits do not depend on its place, nor on inputs that it does not depend on.
  virtual void antialiased_snake(const Tensor& out, const AntialiasedSnake& in) = 0;
  /// Its gradients from `gradient`, that of its result, of x's shape and dtype, contiguous. Sums as in reduce().
  virtual void antialiased_snake_backward(const AntialiasedSnakeGradients& out, const AntialiasedSnake& in,
                                          const Tensor& gradient) = 0;
  static constexpr int kAntialiasTaps = 12;
  /// Overlap-add, the adjoint of Tensor::unfold: out (R, L) = 0, then out[r, f*step + i] += in[r, f, i]; contiguous.
  virtual void fold(const Tensor& out, const Tensor& in, std::int64_t step) = 0;
  /// out (R, n/2+1, 2) = real DFT of in (R, n); n any positive even number; contiguous; f32 or f64.
  virtual void rfft(const Tensor& out, const Tensor& in) = 0;
  /// The adjoint (not the inverse): out (R, n)[t] = sum over f = 0..n/2 of in[f,0]*cos(2 pi f t/n) - in[f,1]*sin(2 pi f t/n).
  virtual void rfft_adjoint(const Tensor& out, const Tensor& in) = 0;

 protected:
  // The parts of lstm().
  /// The gates of layer k on input: its input_weight times the hidden rows of the layer before. Nothing for the first layer.
  void lstm_input(std::span<const LstmSteps> layers, std::size_t k);
  /// The layer with its weight and biases in the dtype of its gates.
  [[nodiscard]] LstmSteps lstm_converted(LstmSteps layer);
  /// All steps of one layer by matmul() and map(), all tensors of one dtype.
  void lstm_steps(const LstmSteps& layer);
};

/// The largest number that TensorBackend::uniform draws: the one of `dtype` before `high`, but `low` if both are equal in
/// `dtype`.
[[nodiscard]] double uniform_limit(double low, double high, DType dtype);
/// The backend of a device (device/backend.cpp). Throws DeviceError, naming what is missing, if the device does not exist.
[[nodiscard]] TensorBackend& tensor_backend_of(Device device);
/// The number of devices of a type that this build and machine have; 1 for cpu.
[[nodiscard]] int device_count(DeviceType type);

}  // namespace polyphase
