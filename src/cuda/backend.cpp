#include "cuda/backend.hpp"

#include <array>
#include <bit>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "conv/length_invariant.hpp"
#include "cuda/conv/ahead.hpp"
#include "cuda/conv/conv.hpp"
#include "cuda/conv/epilogue/finish.hpp"
#include "cuda/elementwise/activation_backward.hpp"
#include "cuda/elementwise/antialias.hpp"
#include "cuda/elementwise/average.hpp"
#include "cuda/elementwise/copy.hpp"
#include "cuda/elementwise/elementwise.hpp"
#include "cuda/elementwise/embedding.hpp"
#include "cuda/elementwise/index_check.hpp"
#include "cuda/elementwise/random.hpp"
#include "cuda/elementwise/rope.hpp"
#include "cuda/elementwise/snake_backward.hpp"
#include "cuda/length/advance.hpp"
#include "cuda/length/length.hpp"
#include "cuda/length/pad.hpp"
#include "cuda/length/upsample.hpp"
#include "cuda/linear/attention.hpp"
#include "cuda/linear/few_rows.hpp"
#include "cuda/linear/fft.hpp"
#include "cuda/linear/fixed_order.hpp"
#include "cuda/linear/lstm.hpp"
#include "cuda/linear/matmul.hpp"
#include "cuda/linear/rotary_attention.hpp"
#include "cuda/memory/allocator.hpp"
#include "cuda/memory/staging.hpp"
#include "cuda/reduce/channel_norm.hpp"
#include "cuda/reduce/moments.hpp"
#include "cuda/reduce/reduce.hpp"
#include "cuda/runtime/fork.hpp"
#include "cuda/runtime/graph.hpp"
#include "cuda/runtime/presence.hpp"
#include "cuda/runtime/runtime.hpp"
#include "cuda/turn.hpp"

namespace polyphase {
namespace cuda {
namespace {

Weights weights_of(const Tensor& tensor) { return {tensor.raw(), tensor.storage()}; }
std::int64_t distance_or_zero(const Tensor& from, const Tensor& to) {
  if (!to.defined()) return 0;
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to.raw()) - reinterpret_cast<std::uintptr_t>(from.raw()));
}
const void* address_or_null(const Tensor& tensor) { return tensor.defined() ? tensor.raw() : nullptr; }

Epilogue pointers_of(const ConvEpilogue& epilogue, const Tensor& out) {
  return {epilogue.activation,
          epilogue.slope,
          address_or_null(epilogue.alpha),
          address_or_null(epilogue.beta),
          distance_or_zero(out, epilogue.residual),
          epilogue.scale,
          distance_or_zero(out, epilogue.before),
          distance_or_zero(out, epilogue.derivative)};
}
/// The epilogue's parts, without addresses: they are known before the output is.
Epilogue parts_of(const ConvEpilogue& epilogue) {
  constexpr std::int64_t kSomewhere = 32;
  const auto distance = [](const Tensor& tensor) { return tensor.defined() ? kSomewhere : 0; };
  return {epilogue.activation,
          epilogue.slope,
          nullptr,
          nullptr,
          distance(epilogue.residual),
          epilogue.scale,
          distance(epilogue.before),
          distance(epilogue.derivative)};
}

class StreamEvent final : public BackendEvent {
 public:
  explicit StreamEvent(int device) : device_(device) {
    const DeviceScope scope(device);
    event_.emplace(/*timing=*/true);
  }
  void record() override {
    refuse_capture("Event::record");
    const Turn turn(device_);
    event_->record(turn.stream);
  }
  [[nodiscard]] bool is_done() const override {
    refuse_capture("Event::is_done");
    return event_->done();
  }
  void synchronize() const override {
    refuse_capture("Event::synchronize");
    event_->synchronize();
  }
  [[nodiscard]] double elapsed_ms(const BackendEvent& end) const override {
    return cuda::Event::elapsed_ms(*event_, *static_cast<const StreamEvent&>(end).event_);
  }

 private:
  int device_;
  std::optional<cuda::Event> event_;
};

}  // namespace

Allocator& CudaBackend::allocator() { return cuda::allocator(device_); }
std::unique_ptr<BackendEvent> CudaBackend::make_event() { return std::make_unique<StreamEvent>(device_); }
std::unique_ptr<BackendFork> CudaBackend::make_fork(std::size_t parts) { return cuda::make_fork(device_, parts); }
bool CudaBackend::is_in_part() const { return cuda::is_in_part(); }
void CudaBackend::announce(std::span<const Tensor> weights) {
  if (!capturing() || cuda::is_in_part()) return;
  const Turn turn(device_);
  std::vector<Storage> storages;
  for (const Tensor& weight : weights) storages.push_back(weight.storage());
  pack_ahead(storages, device_, turn.stream);
}

void CudaBackend::synchronize() {
  refuse_capture("synchronize");
  const Turn turn(device_);
  wait_for(turn.stream);
  report_bad_index(device_);
}

void CudaBackend::copy(const Tensor& out, const Tensor& in) {
  const Turn turn(device_);
  cuda::copy(out, in, turn.stream);
}
void CudaBackend::fill(const Tensor& out, double value) {
  const Turn turn(device_);
  cuda::fill(out, value, turn.stream);
}
void CudaBackend::arange(const Tensor& out, double start, double step) {
  const Turn turn(device_);
  cuda::arange(out, start, step, turn.stream);
}
void CudaBackend::copy_from_host(void* device_data, const void* host_data, std::size_t bytes) {
  refuse_capture("a copy from the host");
  const Turn turn(device_);
  stage(device_data, host_data, bytes, turn.stream, device_);
}
void CudaBackend::copy_to_host(void* host_data, const void* device_data, std::size_t bytes) {
  refuse_capture("a copy to the host");
  const Turn turn(device_);
  cuda::copy_to_host(host_data, device_data, bytes, turn.stream);
  report_bad_index(device_);
}

void CudaBackend::map(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars) {
  const Turn turn(device_);
  cuda::map(op, out, inputs, scalars, turn.stream);
}
Tensor CudaBackend::derived(const Tensor& in, std::span<const MapStep> steps) {
  constexpr std::int64_t kDerived = -5;  // not an Algorithm, which the keys of packed weights have here
  PackingKey key{kDerived, static_cast<std::int64_t>(in.dtype()), in.numel()};
  for (const MapStep& step : steps)
    key.insert(key.end(), {static_cast<std::int64_t>(step.op), std::bit_cast<std::int64_t>(step.scalars.p),
                           std::bit_cast<std::int64_t>(step.scalars.q)});
  const std::size_t bytes = static_cast<std::size_t>(in.numel()) * size_of(in.dtype());
  const auto over = [shape = in.shape(), dtype = in.dtype(), bytes, device = in.device()](void* data, auto owner) {
    return Tensor::over(Storage(data, bytes, device, [owner] {}), shape, contiguous_strides(shape), 0, dtype);
  };
  const auto derive = [over, all = std::vector(steps.begin(), steps.end())](const void* from, void* to, cudaStream_t stream) {
    const Tensor out = over(to, nullptr);
    Tensor source = over(const_cast<void*>(from), nullptr);
    for (const MapStep& step : all) cuda::map(step.op, out, std::array{std::exchange(source, out)}, step.scalars, stream);
  };
  const Turn turn(device_);
  const std::shared_ptr<const Buffer> result = weights_of(in).packed(key, bytes, device_, turn.stream, derive);
  return over(result->as<void>(), result);
}
void CudaBackend::reduce(ReduceOp op, const Tensor& out, const Tensor& in) {
  const Turn turn(device_);
  cuda::reduce(op, out, in, turn.stream);
}
void CudaBackend::reduce_map(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, MapScalars scalars) {
  const Turn turn(device_);
  cuda::reduce_map(op, out, a, b, scalars, turn.stream);
}
void CudaBackend::pair_gradient(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& gradient,
                                MapScalars scalars) {
  const Turn turn(device_);
  cuda::pair_gradient(op, out, a, b, gradient, scalars, turn.stream);
}
void CudaBackend::moments(const Moments& out, const Tensor& in, double q) {
  const Turn turn(device_);
  cuda::moments(out, in, q, turn.stream);
}
void CudaBackend::uniform(const Tensor& out, GeneratorState state, double low, double high) {
  const Turn turn(device_);
  cuda::uniform(out, state, low, high, turn.stream);
}
void CudaBackend::normal(const Tensor& out, GeneratorState state, double mean, double deviation) {
  const Turn turn(device_);
  cuda::normal(out, state, mean, deviation, turn.stream);
}
bool CudaBackend::normalize_channels(const NormOutputs& out, const NormInputs& in) {
  const Turn turn(device_);
  cuda::normalize_channels(out, in, turn.stream);
  return true;
}

void CudaBackend::matmul(const Tensor& out, const Tensor& a, const Tensor& b) {
  const Turn turn(device_);
  if (LengthInvariantGuard::is_active() && is_floating_point(out.dtype())) return matmul_in_order(out, a, b, turn.stream);
  cuda::matmul(out, a, b, current_precision(), turn.stream);
}
bool CudaBackend::linear(const Tensor& out, const LinearInputs& in) {
  if (LengthInvariantGuard::is_active() || !cuda::few_rows_fit(in)) return false;
  const Turn turn(device_);
  cuda::few_rows(out, in, turn.stream);
  return true;
}
void CudaBackend::lstm(std::span<const LstmSteps> layers) {
  for (std::size_t k = 0; k < layers.size(); ++k) {
    lstm_input(layers, k);
    if (k + 1 < layers.size() && cuda::lstm_pair_fits(layers[k], layers[k + 1], device_)) {
      const Turn turn(device_);
      cuda::lstm_pair(layers[k], layers[k + 1], turn.stream);
      ++k;
    } else if (cuda::lstm_fits(layers[k], device_)) {
      const Turn turn(device_);
      cuda::lstm(layers[k], turn.stream);
    } else {
      lstm_steps(lstm_converted(layers[k]));
    }
  }
}
void CudaBackend::rope(const Tensor& out, const Tensor& x, const Rotation& rotation) {
  const Turn turn(device_);
  cuda::rope(out, x, rotation, turn.stream);
}
bool CudaBackend::attention(const Tensor& out, const AttentionInputs& in) {
  if (!cuda::attention_can(in) || !(cuda::attention_is_fast(in) || LengthInvariantGuard::is_active())) return false;
  const Turn turn(device_);
  cuda::attention(out, in, turn.stream);
  return true;
}
std::int64_t CudaBackend::rotary_attention_positions(DType dtype, std::int64_t head_size) const {
  return LengthInvariantGuard::is_active() ? 0 : cuda::rotary_attention_positions(dtype, head_size);
}
void CudaBackend::rotary_attention(const Tensor& out, const RotaryAttention& in) {
  const Turn turn(device_);
  cuda::rotary_attention(out, in, turn.stream);
}

void CudaBackend::check_index(const Tensor& index, std::int64_t length) {
  const Turn turn(device_);
  cuda::check_index(index, length, turn.stream);
}
void CudaBackend::embed(const Tensor& out, const Tensor& codes, std::span<const EmbeddingTable> tables, double least_usage) {
  const Turn turn(device_);
  cuda::embed(out, codes, tables, least_usage, turn.stream);
}
void CudaBackend::gather(const Tensor& out, const Tensor& in, const Tensor& index) {
  const Turn turn(device_);
  cuda::gather(out, in, index, turn.stream);
}
void CudaBackend::scatter_add(const Tensor& out, const Tensor& in, const Tensor& index) {
  const Turn turn(device_);
  cuda::scatter_add(out, in, index, turn.stream);
}
void CudaBackend::pad(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode) {
  const Turn turn(device_);
  cuda::pad(out, in, left, mode, turn.stream);
}
void CudaBackend::pad_backward(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode) {
  const Turn turn(device_);
  cuda::pad_backward(out, in, left, mode, turn.stream);
}
void CudaBackend::advance(const Tensor& all, const Tensor& kept, const Tensor& x) {
  if (!cuda::advance_fits(all)) return Backend::advance(all, kept, x);
  const Turn turn(device_);
  cuda::advance(all, kept, x, turn.stream);
}
void CudaBackend::average_of(const Tensor& out, std::span<const Tensor> parts, double divisor, Activation activation,
                             double slope) {
  if (parts.size() > cuda::kAveragedMost) return Backend::average_of(out, parts, divisor, activation, slope);
  const Turn turn(device_);
  cuda::average_of(out, parts, divisor, activation, slope, turn.stream);
}
void CudaBackend::upsample_linear(const Tensor& out, const Tensor& in, std::int64_t scale) {
  const Turn turn(device_);
  cuda::upsample_linear(out, in, scale, turn.stream);
}
void CudaBackend::upsample_linear_backward(const Tensor& out, const Tensor& in, std::int64_t scale) {
  const Turn turn(device_);
  cuda::upsample_linear_backward(out, in, scale, turn.stream);
}
void CudaBackend::antialiased_snake(const Tensor& out, const AntialiasedSnake& in) {
  const Turn turn(device_);
  cuda::antialiased_snake(out, in, turn.stream);
}
void CudaBackend::antialiased_snake_backward(const AntialiasedSnakeGradients& out, const AntialiasedSnake& in,
                                             const Tensor& gradient) {
  const Turn turn(device_);
  cuda::antialiased_snake_backward(out, in, gradient, turn.stream);
}
void CudaBackend::fold(const Tensor& out, const Tensor& in, std::int64_t step) {
  const Turn turn(device_);
  cuda::fold(out, in, step, turn.stream);
}
void CudaBackend::rfft(const Tensor& out, const Tensor& in) {
  const Turn turn(device_);
  cuda::rfft(out, in, turn.stream);
}
void CudaBackend::rfft_adjoint(const Tensor& out, const Tensor& in) {
  const Turn turn(device_);
  cuda::rfft_adjoint(out, in, turn.stream);
}

std::optional<std::string> CudaBackend::can_implement(const ConvProblem& problem, ConvDirection direction, Algorithm algorithm,
                                                      Precision precision) {
  return cuda::can_implement(problem, direction, algorithm, precision, device_);
}
void CudaBackend::conv_forward(const ConvProblem& problem, const Tensor& x, const Tensor& w, const Tensor& bias,
                               const Tensor& y, Algorithm algorithm, Precision precision) {
  const Turn turn(device_);
  cuda::conv_forward(problem, x.raw(), weights_of(w), address_or_null(bias), y.raw(), algorithm, precision, device_,
                     turn.stream);
}
void CudaBackend::conv_dgrad(const ConvProblem& problem, const Tensor& y, const Tensor& w, const Tensor& bias, const Tensor& x,
                             Algorithm algorithm, Precision precision) {
  const Turn turn(device_);
  cuda::conv_dgrad(problem, y.raw(), weights_of(w), address_or_null(bias), x.raw(), algorithm, precision, device_, turn.stream);
}
void CudaBackend::conv_wgrad(const ConvProblem& problem, const Tensor& x, const Tensor& y, const Tensor& w, Algorithm algorithm,
                             Precision precision) {
  const Turn turn(device_);
  cuda::conv_wgrad(problem, x.raw(), y.raw(), w.raw(), algorithm, precision, device_, turn.stream);
}

void CudaBackend::conv_activated(const ConvProblem& problem, ConvDirection direction, const Tensor& source, const Tensor& w,
                                 const Tensor& bias, const Tensor& out, const ConvPrologue& prologue,
                                 const ConvEpilogue& epilogue, Algorithm algorithm, Precision precision) {
  const Turn turn(device_);
  const Epilogue pointers = pointers_of(epilogue, out);
  // LeakyReLU with slope 0 makes NaN of negative infinity, which the kernels' ReLU does not.
  const bool is_zero_leaky = prologue.activation == Activation::leaky_relu && static_cast<float>(prologue.slope) == 0.0F;
  const bool is_snake = prologue.activation == Activation::snake;
  const bool reads_active = prologue.is_needed() && !is_zero_leaky &&
                            cuda::activates_source(problem, direction, source.raw(), address_or_null(bias), out.raw(), pointers,
                                                   is_snake, algorithm, precision, device_);
  const Tensor read = reads_active ? source : activated_source(*this, prologue, source);
  cuda::SourceActivation activation;
  if (reads_active && is_snake)
    activation.snake = {prologue.alpha.raw(), prologue.beta.raw()};
  else if (reads_active)
    activation.slope = prologue.activation == Activation::relu ? 0.0F : static_cast<float>(prologue.slope);
  const bool is_done = cuda::conv_activated(problem, direction, read.raw(), activation, weights_of(w), address_or_null(bias),
                                            out.raw(), pointers, algorithm, precision, device_, turn.stream);
  if (is_done) return;
  if (pointers.has_aux())
    cuda::finish(pointers, out.dtype(), out.size(0), out.size(1), out.size(2), out.raw(), turn.stream, keeps_first(pointers));
  else
    finish_in_place(*this, epilogue, out);
}
bool CudaBackend::fuses(const ConvProblem& problem, ConvDirection direction, const ConvEpilogue& epilogue, Algorithm algorithm,
                        Precision precision) {
  return cuda::fuses(problem, direction, parts_of(epilogue), algorithm, precision, device_);
}
bool CudaBackend::residual_unit(const ResidualUnit& unit, const Tensor& x, const std::array<UnitConvTensors, 2>& convs,
                                const UnitAverageTensors& average, const Tensor& out) {
  const Turn turn(device_);
  const auto addresses = [](const UnitConvTensors& conv) {
    return cuda::UnitConv{weights_of(conv.weight), address_or_null(conv.bias), address_or_null(conv.alpha),
                          address_or_null(conv.beta)};
  };
  const cuda::UnitAverage follows(address_or_null(average.other), average.divisor, average.slope);
  const std::array parts{addresses(convs[0]), addresses(convs[1])};
  return cuda::residual_unit(unit, x.raw(), parts, follows, out.raw(), device_, turn.stream);
}
void CudaBackend::activation_backward(const ConvEpilogue& epilogue, const Tensor& result, const Tensor& gradient,
                                      const Tensor& in, const Tensor& sums) {
  const Turn turn(device_);
  cuda::activation_backward(epilogue, result, gradient, in, sums, turn.stream);
}
void CudaBackend::snake_backward(const Tensor& x, const Tensor& alpha, const Tensor& beta, const Tensor& gradient,
                                 const SnakeGradients& out) {
  const Turn turn(device_);
  cuda::snake_backward(x, alpha, beta, gradient, out, turn.stream);
}

}  // namespace cuda

Backend& cuda_backend(int index) {
  (void)cuda::properties(index);  // throws if there is no such device
  static std::mutex mutex;
  static auto* const backends = new std::vector<std::unique_ptr<Backend>>;  // never destroyed, like the CPU's
  const std::lock_guard lock(mutex);
  const auto at = static_cast<std::size_t>(index);
  if (backends->size() <= at) backends->resize(at + 1);
  if (!(*backends)[at]) {
    const cuda::DeviceProperties& gpu = cuda::properties(index);
    const std::string problem = cuda::archs_problem(index, gpu.name, gpu.arch(), cuda::built_archs());
    require<DeviceError>(problem.empty(), problem);
    (*backends)[at] = std::make_unique<cuda::CudaBackend>(index);
  }
  return *(*backends)[at];
}

}  // namespace polyphase
