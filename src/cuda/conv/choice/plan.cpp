#include "cuda/conv/choice/plan.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>

#include "cuda/conv/conv.hpp"
#include "cuda/conv/depthwise/depthwise.hpp"
#include "cuda/conv/depthwise/rows.hpp"
#include "cuda/conv/direct/tiling.hpp"
#include "cuda/conv/direct/wgrad_tiling.hpp"
#include "cuda/conv/gemm/gemm.hpp"
#include "cuda/conv/plan_cache.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/conv/tensor_core/wgrad/tiling.hpp"
#include "cuda/linear/blas.hpp"
#include "cuda/runtime/runtime.hpp"
#include "tensor/error.hpp"
#include "tensor/log.hpp"

namespace polyphase::cuda {
namespace {

double product(std::initializer_list<std::int64_t> factors) {
  double result = 1;
  for (const std::int64_t factor : factors) result *= static_cast<double>(factor);
  return result;
}

/// Bytes of x, y and w, each moved once.
double tensor_bytes(const ConvProblem& p) {
  const double elements =
      product({p.N, p.C_in, p.L_in}) + product({p.N, p.C_out, p.L_out}) + product({p.C_in, p.channels_out_per_group(), p.K});
  return elements * static_cast<double>(size_of(p.dtype));
}

/// The phases of a stride, each with taps of its own.
std::int64_t phases_of(const ConvProblem& p) { return std::min(p.S / std::gcd(p.S, p.D), p.K); }

/// The used share of `count` rounded up to whole tiles.
double used(std::int64_t count, std::int64_t tile) {
  return static_cast<double>(count) / static_cast<double>((count + tile - 1) / tile * tile);
}

/// The share of the GPU that `blocks` blocks keep busy.
double filled(double blocks, const GpuRates& rates) { return std::min(1.0, std::max(blocks, 1.0) / rates.sm_count); }

/// Seconds of the tile that the kernels choose.
double direct_gather_seconds(const ConvProblem& p, ConvDirection direction, const GpuRates& rates) {
  constexpr double kClock = 1.75e9, kSms = 132, kRate = GpuRates{}.ffma;  // the GPU that the estimate was fitted on
  const TapGemm gemm = make_tap_gemm(p, direction);
  const direct::Choice choice = direct::choose(direct::kTiles32, gemm, rates.sm_count, true);
  // One tap reuses nothing of a source row. Short sums, and sums in slices, do not show it.
  constexpr double kOneTap = 1.4;
  const bool is_longer = p.K == 1 && choice.slices == 1 && gemm.rows >= 128;
  const double cycles =
      (is_longer ? kOneTap : 1) * direct::estimate_cycles(gemm, direct::kTiles32[choice.tile], choice.slices, rates.sm_count);
  const double slower = kRate * rates.sm_count / kSms / rates.ffma;
  return std::max(slower * cycles / kClock, tensor_bytes(p) / (0.7 * rates.bandwidth)) + rates.launch;
}

/// The terms of an output's sum.
struct SumLength {
  std::int64_t channels, taps;
};
SumLength sum_length(const ConvProblem& p, ConvDirection direction) {
  if (direction == ConvDirection::dgrad) return {p.channels_out_per_group(), p.K};
  const std::int64_t classes = phases_of(p);
  return {p.channels_in_per_group(), (p.K + classes - 1) / classes};
}

/// Seconds of the windowed weight gradient with the sum over its slices, fitted to small layers on the GPU above.
double wgrad_window_seconds(const direct::WgradWindowPlan& plan, const GpuRates& rates) {
  constexpr double kHalfChunk = 7.0e-6, kEnds = 10e-6, kSms = 132, kRate = GpuRates{}.ffma;
  const double slower = kRate * rates.sm_count / kSms / rates.ffma;
  const double turns = std::ceil(static_cast<double>(plan.blocks) / rates.sm_count);
  return slower * (turns * static_cast<double>(plan.chunks_per_half) * kHalfChunk + kEnds) + rates.launch;
}

/// How much longer the direct kernels take where each of many phases reads or writes sectors of its own: the STFT layer of
/// bench/shapes.hpp, 256 phases, takes an H200 4 to 9 times the estimate, its weight gradient 19 to 25 times.
double slowed_by_phases(const ConvProblem& p, ConvDirection direction) {
  constexpr std::int64_t kMostPhases = 32;
  if (phases_of(p) <= kMostPhases) return 1;
  return direction == ConvDirection::wgrad ? 20 : 5;
}

double unslowed_direct_seconds(const ConvProblem& p, ConvDirection direction, const GpuRates& rates) {
  const bool is_gather = direction != ConvDirection::wgrad && p.N > 0 && p.L_in > 0 && p.L_out > 0;
  if (p.dtype == DType::f32 && is_gather) return direct_gather_seconds(p, direction, rates);
  if (direction == ConvDirection::wgrad && p.N > 0 && p.L_in > 0) {
    if (const auto plan = direct::make_wgrad_window_plan(p, nullptr, nullptr, rates.sm_count))
      return wgrad_window_seconds(*plan, rates);
  }
  const std::int64_t classes = phases_of(p);
  std::int64_t columns = 0, positions = 0;
  switch (direction) {
    case ConvDirection::forward:
      columns = p.channels_out_per_group() * classes;
      positions = (p.L_out + p.S - 1) / p.S;
      break;
    case ConvDirection::dgrad:
      columns = p.channels_in_per_group();
      positions = p.L_in;
      break;
    case ConvDirection::wgrad:
      columns = p.channels_out_per_group() * p.K;
      positions = p.channels_in_per_group();
      break;
  }
  const std::int64_t tile = columns >= 32 ? 32 : columns > 4 ? 16 : 4;
  const double small = columns >= 32 ? 1.0 : 0.5;  // narrow tiles read shared memory more often
  double busy = 1.0;
  if (direction != ConvDirection::wgrad)
    busy = filled(product({p.N, p.G, (positions + 127) / 128, (columns + tile - 1) / tile}), rates);
  const double rate = (p.dtype == DType::f64 ? rates.direct_f64 : rates.ffma) * small * busy *
                      (direction == ConvDirection::wgrad ? 0.65 * used(positions, 8) * used(columns, 8)
                                                         : used(columns, tile) * used(positions, 128));
  // A block adds the terms of its sums one after another: 60 ns each in 16 bits on an H200, 90 if there is one tap.
  const SumLength sum = sum_length(p, direction);
  const double one_block =
      is_gather && size_of(p.dtype) == 2 ? (sum.taps == 1 ? 90e-9 : 60e-9) * product({sum.channels, sum.taps}) : 0;
  const int launches = one_block > 0 ? 1 : 2;
  return std::max({p.operations() / rate, tensor_bytes(p) / (0.7 * rates.bandwidth), one_block}) + launches * rates.launch;
}

double direct_seconds(const ConvProblem& p, ConvDirection direction, const GpuRates& rates) {
  return slowed_by_phases(p, direction) * unslowed_direct_seconds(p, direction, rates);
}

double depthwise_seconds(const ConvProblem& p, ConvDirection direction, const GpuRates& rates) {
  const double waste = 1 / used(p.L_in, 56);
  double seconds = std::max(waste * tensor_bytes(p) / (0.85 * rates.bandwidth), p.operations() / (0.4 * rates.ffma));
  if (depthwise::has_many_rows(p, direction)) {
    return std::max(tensor_bytes(p) / (0.75 * rates.bandwidth), 1e-6) + rates.launch;
  }
  // dgrad adds the rows of y of a row of x one after another, and waits for each if there are few blocks.
  constexpr double kRowSeconds = 0.6e-6;
  if (direction == ConvDirection::dgrad)
    seconds = std::max(seconds, kRowSeconds * static_cast<double>(p.channels_out_per_group()));
  return seconds + rates.launch;
}

/// The terms of a sum that cuBLAS computes for forward or dgrad.
double blas_terms(const ConvProblem& p, ConvDirection direction) {
  if (direction == ConvDirection::forward) return static_cast<double>(p.channels_in_per_group());
  return product({p.channels_out_per_group(), p.K});
}

/// Whether cuBLAS could save a few microseconds at most, for scratch memory that is larger than the layer: a network of such
/// layers would take a multiple of its memory.
bool is_too_small_for_blas(const ConvProblem& p, ConvDirection direction) {
  constexpr double kLeastTerms = 64, kScratchBytes = kBlasWorkspaceBytes;
  return direction != ConvDirection::wgrad && blas_terms(p, direction) < kLeastTerms && tensor_bytes(p) < kScratchBytes;
}

/// Seconds of each launch of cuBLAS and of the passes over its columns, and those that it takes at least for a sum. Fitted to
/// 100 problems of 8 to 2048 positions and 32 to 512 channels on an H200 (2026-12-01).
constexpr double kBlasStart = 3.5e-6;
double blas_sum_seconds(const ConvProblem& p, ConvDirection direction, Precision precision) {
  constexpr double kShort = 3e-9;  // of 16 bits, and of forward, whose sums are over channels and whose products are wide
  const double terms = blas_terms(p, direction);
  if (size_of(p.dtype) == 2 || direction == ConvDirection::forward) return kShort * terms;
  if (p.dtype == DType::f32 && precision == Precision::tf32) return std::min(12e-9 * terms, 16e-6);
  return std::min(22e-9 * terms, 9e-6 + 5e-9 * terms);
}

/// Whether cuBLAS stores the result of its only product.
bool is_one_product(const ConvProblem& p, ConvDirection direction) {
  return direction == ConvDirection::dgrad && gemm::has_own_columns(p, direction);
}

/// cuBLAS takes three times as long if rows do not begin at multiples of 16 bytes. Fitted with the other rates.
double one_product_seconds(const ConvProblem& p, Precision precision, const GpuRates& rates) {
  const bool is_tf32 = p.dtype == DType::f32 && precision == Precision::tf32, is_half = size_of(p.dtype) == 2;
  double rate = p.dtype == DType::f64 ? rates.blas_f64
                : is_tf32             ? 0.85 * rates.blas_tf32
                : is_half             ? 0.9 * rates.blas_half
                                      : rates.blas_f32;
  if ((is_tf32 || is_half) && p.L_in * static_cast<std::int64_t>(size_of(p.dtype)) % 16 != 0) rate /= 3;
  constexpr double kFirstTerms = 40;  // without tensor cores, a tile's sums take as long as this many terms more
  const auto terms = static_cast<double>(p.channels_out_per_group());
  if (!is_tf32 && !is_half) rate *= used(p.channels_in_per_group(), 64) * terms / (terms + kFirstTerms);
  rate *= filled(product({p.N, p.G, (p.L_in + 63) / 64, (p.channels_in_per_group() + 127) / 128}), rates);
  return std::max({p.operations() / rate, tensor_bytes(p) / (0.8 * rates.bandwidth),
                   blas_sum_seconds(p, ConvDirection::dgrad, precision)}) +
         static_cast<double>(std::min(p.N, p.G)) * kBlasStart;
}

/// What a bias adds to dgrad, whose results cuBLAS stores. A layer with a bias mostly has an epilogue, too: a pass that reads
/// them and a residual, and writes them. It is counted whether there is one or not, because a choice that depended on it would
/// give the fused layer other bits than its steps. One product adds a pass that writes the bias, which the product reads; else
/// the measured times of the other launches have it.
double bias_seconds(const ConvProblem& p, const GpuRates& rates) {
  const bool is_one = is_one_product(p, ConvDirection::dgrad);
  const double pass = product({p.N, p.C_in, p.L_in}) * static_cast<double>(size_of(p.dtype)) / (0.8 * rates.bandwidth);
  constexpr double kLaunch = 2e-6;
  return (is_one ? 5 : 3) * pass + (is_one ? 2 : 1) * kLaunch;
}

double gemm_seconds(const ConvProblem& p, ConvDirection direction, Precision precision, const GpuRates& rates) {
  if (is_one_product(p, direction)) return one_product_seconds(p, precision, rates);
  const std::int64_t rows = p.channels_out_per_group() * p.K, ci = p.channels_in_per_group();
  double rate = p.dtype == DType::f64 ? rates.blas_f64 : p.dtype == DType::f32 ? rates.blas_f32 : rates.blas_half;
  if (p.dtype == DType::f32 && precision == Precision::tf32) rate = rates.blas_tf32;
  double blocks = product({p.N, p.G, (p.L_in + 127) / 128});
  switch (direction) {
    case ConvDirection::forward:
      blocks *= static_cast<double>((rows + 127) / 128);
      break;
    case ConvDirection::dgrad:
      blocks *= static_cast<double>((ci + 127) / 128);
      break;
    case ConvDirection::wgrad:
      blocks = product({p.G, (rows + 127) / 128, (ci + 127) / 128, std::max<std::int64_t>(1, p.L_in / 2048)});
      break;
  }
  rate *= used(ci, 32) * used(rows, 64) * filled(blocks, rates);
  // 16-bit data is as slow as 32-bit: the passes over the columns are limited by their instructions.
  const std::size_t word = std::max<std::size_t>(4, size_of(p.dtype));
  const double column_bytes = product({p.N, p.G, rows, p.L_in}) * static_cast<double>(word);
  const double pieces = std::ceil(column_bytes / (256.0 * (1 << 20)));
  const double products =
      direction == ConvDirection::wgrad ? static_cast<double>(p.N) : pieces * static_cast<double>(std::min(p.N, p.G));
  // Weight gradients of 16 bits are summed in f32 buffers, which are read and stored again.
  const double sum_bytes = direction == ConvDirection::wgrad && size_of(p.dtype) < 4 ? 10 * product({p.C_in, rows}) : 0;
  const double moved = (2 * column_bytes + tensor_bytes(p)) / (0.27 * rates.bandwidth) + sum_bytes / (0.5 * rates.bandwidth);
  if (direction == ConvDirection::wgrad) return p.operations() / rate + moved + (pieces + products) * 2 * rates.launch;
  return std::max(p.operations() / rate, blas_sum_seconds(p, direction, precision)) + moved + (pieces + products) * kBlasStart;
}

/// Seconds of the whole call: scales, packing, and recompute.
double tensor_core_seconds(const ConvProblem& p, ConvDirection direction, Precision precision, const GpuRates& rates) {
  const std::int64_t classes = phases_of(p);
  const std::int64_t in = p.channels_in_per_group(), out = p.channels_out_per_group();
  const double kind = p.dtype != DType::f32          ? rates.tensor_half
                      : precision == Precision::tf32 ? rates.tensor_tf32
                                                     : rates.tensor_f32;
  constexpr double kPasses = 40e-6;  // everything but the products, for any size
  double rate = kind, bandwidth = rates.bandwidth, blocks = 0, sums = 0;
  switch (direction) {
    case ConvDirection::forward:
      rate *= used(out * classes, 64) * used(in, 16);
      bandwidth *= 0.58;
      blocks = product({p.N, p.G, (p.L_out / p.S + 127) / 128, (out * classes + 63) / 64});
      break;
    case ConvDirection::dgrad:
      rate *= used(in, 64) * used(out, 16);
      bandwidth *= 0.68;
      blocks = product({p.N, p.G, (p.L_in + 127) / 128, (in + 63) / 64});
      break;
    case ConvDirection::wgrad:
      rate *= used(std::max(in, out), 64) * used(std::min(in, out), 32);
      bandwidth *= 0.6;
      blocks = product({p.N, p.G, (p.L_in + 511) / 512, (in + 63) / 64, (out + 63) / 64});
      sums = 12 * product({p.C_in, out, p.K}) / (0.25 * rates.bandwidth);  // stored and added
      break;
  }
  return std::max(p.operations() / (rate * filled(blocks, rates)), tensor_bytes(p) / bandwidth) + sums + kPasses;
}

/// The same if the tiling is known.
std::optional<double> tensor_core_known_seconds(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                                int device, const Alignment& at) {
  const DeviceProperties& gpu = properties(device);
  if (tensor_core::uses_mma(gpu.arch())) return std::nullopt;
  if (direction == ConvDirection::wgrad)
    return tensor_core::wgrad_cost(problem, precision, gpu.sm_count, gpu.shared_bytes_per_block);
  const auto chosen = tensor_core::chosen_kernel({problem, direction, precision, at}, device);
  if (!chosen) return std::nullopt;
  return std::max(chosen->seconds, least_tensor_core_seconds(problem.dtype, precision)) + packing_seconds(problem.dtype);
}

std::vector<Candidate> ranking(const PlanRequest& of) {
  const GpuRates rates = rates_of(of.device);
  std::vector<Candidate> all;
  for (const Algorithm algorithm : {Algorithm::depthwise, Algorithm::direct, Algorithm::tensor_core, Algorithm::gemm}) {
    if (can_implement(of.problem, of.direction, algorithm, of.precision, of.device)) continue;
    if (algorithm == Algorithm::gemm && is_too_small_for_blas(of.problem, of.direction)) continue;
    // If tensor_core knows its tiling, it is faster than the general rates of the others suggest.
    const auto known = algorithm == Algorithm::tensor_core
                           ? tensor_core_known_seconds(of.problem, of.direction, of.precision, of.device, of.at)
                           : std::nullopt;
    double seconds = known ? *known : estimate(of.problem, of.direction, algorithm, of.precision, rates);
    if (algorithm == Algorithm::gemm && of.has_bias && of.direction == ConvDirection::dgrad)
      seconds += bias_seconds(of.problem, rates);
    all.push_back({algorithm, seconds});
  }
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; });
  return all;
}

/// What a plan depends on.
struct PlanKey {
  ChoiceKey call;
  Algorithm algorithm;
  Alignment at;
  Activation activation;
  double slope;
  bool adds, keeps, derives, has_bias;
  std::int64_t aux;  // offsets of the aux operands in a sector, relative to the output
  bool operator==(const PlanKey&) const = default;
  [[nodiscard]] std::size_t hash() const {
    return hash_of(call.hash(), algorithm, at.source, at.out, activation, slope, adds, keeps, derives, has_bias, aux);
  }
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const ConvPlan& plan) {
  out << plan.direction << ' ' << plan.problem << ' ' << plan.precision << ": " << plan.algorithm;
  if (plan.kernel) out << " by " << tensor_core::name_of(*plan.kernel) << " (" << plan.tiling << ')';
  if (plan.has_epilogue) out << ", epilogue " << (plan.fuses ? "fused" : "by launches of its own");
  const char* separator = " (";
  for (const Candidate& candidate : plan.candidates) {
    out << separator << candidate.algorithm << ' ' << std::lround(candidate.seconds * 1e6) << " us";
    separator = ", ";
  }
  return out << (plan.candidates.empty() ? "" : ")");
}

GpuRates rates_of(int device) {
  const DeviceProperties& gpu = properties(device);
  GpuRates rates;
  const double scale = gpu.sm_count / 132.0;
  rates.sm_count = gpu.sm_count;
  rates.ffma *= scale * (gpu.arch() == 80 ? 0.5 : 1.0);  // sm_80 has half the FP32 lanes
  rates.blas_f32 *= scale * (gpu.arch() == 80 ? 0.45 : 1.0);
  rates.blas_f64 *= scale * (gpu.arch() == 80 ? 0.4 : gpu.arch() == 90 ? 1.0 : 0.02);
  rates.direct_f64 *= scale * (gpu.arch() == 80 ? 0.4 : gpu.arch() == 90 ? 1.0 : 0.03);
  rates.blas_tf32 *= scale * (gpu.arch() == 90 ? 1.0 : 0.4);
  // With mma.sync: half the rate of wgmma, measured on an H200. The share of older GPUs is an estimate.
  const double kind = !tensor_core::uses_mma(gpu.arch()) ? 1.0 : gpu.arch() == 90 ? 0.5 : 0.25;
  for (double* rate : {&rates.tensor_f32, &rates.tensor_tf32, &rates.tensor_half}) *rate *= scale * kind;
  rates.blas_half *= scale * (gpu.arch() == 90 ? 1.0 : 0.45);
  rates.bandwidth *= gpu.arch() == 90 ? 1.0 : 0.35;
  return rates;
}

double estimate(const ConvProblem& problem, ConvDirection direction, Algorithm algorithm, Precision precision,
                const GpuRates& rates) {
  switch (algorithm) {
    case Algorithm::depthwise:
      return depthwise_seconds(problem, direction, rates);
    case Algorithm::gemm:
      return gemm_seconds(problem, direction, precision, rates);
    case Algorithm::tensor_core:
      return tensor_core_seconds(problem, direction, precision, rates);
    default:
      return direct_seconds(problem, direction, rates);
  }
}

ConvPlan make_conv_plan(const PlanRequest& of) {
  ConvPlan plan{of.problem, of.direction, of.precision, of.algorithm};
  if (of.algorithm == Algorithm::automatic) {
    plan.candidates = ranking(of);
    plan.algorithm = plan.candidates.empty() ? Algorithm::direct : plan.candidates.front().algorithm;
  } else if (const auto reason = can_implement(of.problem, of.direction, of.algorithm, of.precision, of.device)) {
    throw NotImplemented(concat("convolution ", of.direction, ": algorithm '", of.algorithm, "' cannot do ", of.problem,
                                " on cuda:", of.device, ": ", *reason, "; 'automatic' can"));
  }
  plan.has_epilogue = of.epilogue.is_needed();
  if (plan.algorithm == Algorithm::gemm)  // cuBLAS stores the results of dgrad
    plan.fuses = !plan.has_epilogue || of.direction == ConvDirection::forward;
  if (plan.algorithm == Algorithm::depthwise) plan.activates_snake = depthwise::activates_snake(of.problem, of.direction);
  if (plan.algorithm != Algorithm::tensor_core || of.direction == ConvDirection::wgrad) return plan;
  const tensor_core::KernelProblem asked{of.problem, of.direction, of.precision, of.at};
  const auto chosen = tensor_core::chosen_kernel(asked, of.device);
  if (!chosen) return plan;  // an empty batch
  plan.fuses = !plan.has_epilogue || tensor_core::fuses(chosen->kernel, asked, of.epilogue, of.device);
  plan.kernel = chosen->kernel;
  const tensor_core::KernelEntry& entry = tensor_core::entry_of(chosen->kernel);
  plan.activates_source = entry.activates_source;
  plan.activates_snake = entry.activates_snake != nullptr && entry.activates_snake(asked);
  plan.tiling = tensor_core::tiling_text(chosen->kernel, asked, of.device);
  return plan;
}

const ConvPlan& conv_plan(const PlanRequest& of) {
  thread_local PlanCache<PlanKey, ConvPlan> remembered;
  const Epilogue& epilogue = of.epilogue;
  const PlanKey key{{of.problem, of.direction, of.precision, of.device},
                    of.algorithm,
                    of.at,
                    epilogue.activation,
                    epilogue.slope,
                    epilogue.residual != 0,
                    epilogue.before != 0,
                    epilogue.derivative != 0,
                    of.has_bias,
                    (epilogue.residual | epilogue.derivative) % 32};
  return remembered.get(key, [&] {
    ConvPlan plan = make_conv_plan(of);
    if (log_topic("plan")) log_message(LogLevel::info, concat("plan: ", plan));
    return plan;
  });
}

}  // namespace polyphase::cuda
