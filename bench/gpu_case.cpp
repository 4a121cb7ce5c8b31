#include "gpu_case.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "cuda/conv/conv.hpp"
#include "cuda/runtime/runtime.hpp"
#include "tensor/error.hpp"

namespace polyphase::bench {
namespace {

constexpr ConvDirection kDirections[] = {ConvDirection::forward, ConvDirection::dgrad, ConvDirection::wgrad};

double array_bytes(const ConvProblem& p) {
  const double elements =
      static_cast<double>(p.N) * (static_cast<double>(p.C_in * p.L_in) + static_cast<double>(p.C_out * p.L_out)) +
      static_cast<double>(p.C_in * p.channels_out_per_group() * p.K);
  return elements * static_cast<double>(size_of(p.dtype));
}

/// Both ends of the result and random elements between.
std::vector<std::int64_t> samples_of(std::int64_t size, ConvDirection direction) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(size, 64); ++i) samples.insert(samples.end(), {i, size - 1 - i});
  std::mt19937_64 random(7);
  const int count = direction == ConvDirection::wgrad ? 400 : 20000;
  for (int i = 0; i < count; ++i) samples.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size)));
  return samples;
}

}  // namespace

Mode mode_of(const std::string& name) {
  static const std::map<std::string, Mode> modes = {
      {"ieee", {DType::f32, Precision::ieee}}, {"fp32", {DType::f32, Precision::fp32}},
      {"tf32", {DType::f32, Precision::tf32}}, {"bf16", {DType::bf16, Precision::fp32}},
      {"f16", {DType::f16, Precision::fp32}},  {"f64", {DType::f64, Precision::fp32}}};
  const auto found = modes.find(name);
  require<Error>(found != modes.end(), "--precisions: expected ieee, fp32, tf32, bf16, f16 or f64, got '", name, "'");
  return found->second;
}

Pass pass_of(const std::string& name) {
  if (name == "step") return {name, {ConvDirection::forward, ConvDirection::dgrad, ConvDirection::wgrad}};
  for (const ConvDirection direction : kDirections)
    if (concat(direction) == name) return {name, {direction}};
  throw Error(concat("--directions: expected forward, dgrad, wgrad or step, got '", name, "'"));
}

double allowed_error(const ConvProblem& p, ConvDirection direction, const Mode& mode) {
  const double terms = terms_of(p, direction);
  if (mode.dtype == DType::f64) return 8 * 0x1p-53 * std::sqrt(terms);
  if (mode.dtype == DType::bf16) return 5 * 0x1p-8;
  if (mode.dtype == DType::f16) return 5 * 0x1p-11;
  if (mode.precision == Precision::tf32) return 6 * 0x1p-11;
  return 8 * 0x1p-24 * std::sqrt(terms) + 1e-6;
}

DeviceOperands Sets::Set::operands(ConvDirection direction) const {
  switch (direction) {
    case ConvDirection::forward:
      return {x.raw(), w.raw(), y.raw()};
    case ConvDirection::dgrad:
      return {dx.raw(), w.raw(), dy.raw()};
    case ConvDirection::wgrad:
      break;
  }
  return {x.raw(), dw.raw(), dy.raw()};
}

const Tensor& Sets::Set::result(ConvDirection direction) const {
  return direction == ConvDirection::forward ? y : direction == ConvDirection::dgrad ? dx : dw;
}

Sets::Sets(const ConvProblem& p, int l2_bytes) {
  const int count = static_cast<int>(std::clamp(std::ceil(3.0 * l2_bytes / array_bytes(p)), 1.0, 16.0));
  const TensorOptions options{.dtype = p.dtype, .device = Device::cuda(0)};
  const Shape x({p.N, p.C_in, p.L_in}), w({p.C_in, p.channels_out_per_group(), p.K}), y({p.N, p.C_out, p.L_out});
  for (int i = 0; i < count; ++i)
    sets_.push_back({Tensor::randn(x, options), Tensor::randn(w, options), Tensor::randn(y, options), Tensor::empty(y, options),
                     Tensor::empty(x, options), Tensor::empty(w, options)});
}

void run_own(const ConvProblem& p, ConvDirection direction, Sets::Set& set, Algorithm algorithm, Precision precision,
             PackedWeights packed, cudaStream_t stream) {
  const DeviceOperands at = set.operands(direction);
  const cuda::Weights w = packed == PackedWeights::kept ? cuda::Weights(at.w, set.w.storage()) : cuda::Weights(at.w);
  switch (direction) {
    case ConvDirection::forward:
      return cuda::conv_forward(p, at.x, w, nullptr, at.y, algorithm, precision, 0, stream);
    case ConvDirection::dgrad:
      return cuda::conv_dgrad(p, at.y, w, nullptr, at.x, algorithm, precision, 0, stream);
    case ConvDirection::wgrad:
      return cuda::conv_wgrad(p, at.x, at.y, at.w, algorithm, precision, 0, stream);
  }
}

Verdict verify(const ConvProblem& p, const Pass& pass, const Mode& mode, Sets::Set& set, const std::function<void()>& run,
               bool nhwc, cudaStream_t stream) {
  for (const ConvDirection direction : pass.directions) {
    const Tensor& result = set.result(direction);
    CHECK_CUDA(cudaMemsetAsync(result.raw(), 0xff, static_cast<std::size_t>(result.numel()) * size_of(p.dtype), stream));
  }
  run();
  Verdict verdict;
  for (const ConvDirection direction : pass.directions) {
    const std::vector<std::int64_t> samples = samples_of(set.result(direction).numel(), direction);
    const double error = sampled_error(p, direction, set.operands(direction), nhwc, samples, stream);
    verdict.error = std::max(verdict.error, error);
    verdict.share = std::max(verdict.share, error / allowed_error(p, direction, mode));
  }
  return verdict;
}

double bytes_of(const ConvProblem& p, const Pass& pass) { return array_bytes(p) * static_cast<double>(pass.directions.size()); }

}  // namespace polyphase::bench
