#include "cuda/conv/tensor_core/both_in_shared/preconverted/preconverted.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "conv/workspace.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/memory/allocator.hpp"
#include "ops/activations.hpp"
#include "ops/elementwise.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/epilogue_operands.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

namespace {

constexpr ConvDirection kGathers[] = {ConvDirection::forward, ConvDirection::dgrad};

/// Strides, dilations, groups, paddings, batches and lengths near the tile sizes; classes that fill a row and classes that do
/// not.
std::vector<ConvProblem> preconverted_problems() {
  return thinned(random_gathers(11, {1, 2, 31, 64, 65, 95, 96, 127, 128, 129, 160, 255, 256, 257, 513}, false));
}

bool has_tensor_cores() { return cuda::device_count() > 0 && cuda::properties(0).arch() == 90; }

int parts_of(Precision precision, DType dtype) { return dtype == DType::f32 && precision != Precision::tf32 ? 2 : 1; }

/// The call for run_on_gpu.
auto by_plan(const tensor_core::PreconvertedPlan& plan, Precision precision) {
  return [plan, precision](const GpuCall& call) {
    const cuda::Buffer packed(static_cast<std::size_t>(tensor_core::preconverted_weight_bytes(plan)), 0);
    tensor_core::preconverted_pack_weights(call.problem, call.direction, precision, plan, call.second, packed.as<void>(),
                                           call.stream);
    tensor_core::preconverted_gather(call.problem, call.direction, precision, plan, call.first, {}, call.second,
                                     packed.as<void>(), call.bias, call.out, {}, 0, call.stream);
  };
}

/// Every kernel, forward and dgrad, bit for bit against the reference on small integers. Returns the norm of what was compared.
template <class E>
double check_bits(ConvProblem p, Precision precision, int slices, std::int64_t misalignment) {
  p.dtype = dtype_of<E>;
  const ConvArrays<E> arrays(p, kSmallIntegers);
  const int parts = parts_of(precision, p.dtype);
  double norm = 0;
  for (const ConvDirection direction : kGathers) {
    const Array<E> expected = arrays.run(direction, Algorithm::reference);
    const auto shapes = tensor_core::preconverted_shapes(parts);
    for (std::size_t shape = 0; shape < shapes.size(); ++shape) {
      ConvProblem piece = p;
      piece.N = slices > 1 ? (p.N + 1) / 2 : p.N;  // samples in two passes; the second may have fewer
      const cuda::DeviceProperties& gpu = cuda::properties(0);
      const tensor_core::PreconvertedPlan plan{
          static_cast<int>(shape), piece.N,
          tensor_core::make_preconverted_tiling(cuda::make_tap_gemm(piece, direction), shapes[shape], slices, gpu.sm_count,
                                                gpu.shared_bytes_per_block)};
      REQUIRE(plan.tiling.count > 0);
      bool intact = false;
      const Array<E> got = run_on_gpu(arrays, direction, by_plan(plan, precision), intact, true, misalignment);
      CHECK_MESSAGE(same_bits(got, expected), p, ' ', direction, ' ', precision, " shape ", shape, " slices ", slices,
                    " misaligned by ", misalignment);
      CHECK_MESSAGE(intact, p, ' ', direction, ": wrote outside its output");
      norm += expected.norm();
    }
  }
  return norm;
}

/// The largest difference of two tensors' elements.
double farthest(const Tensor& a, const Tensor& b) {
  const Tensor left = a.to(Device::cpu()).to(DType::f64).contiguous(), right = b.to(Device::cpu()).to(DType::f64).contiguous();
  double most = 0;
  for (std::int64_t i = 0; i < left.numel(); ++i)
    most = std::max(most, std::fabs(left.data<double>()[i] - right.data<double>()[i]));
  return most;
}

}  // namespace

TEST_CASE("plans: few positions are cut into slices, a plan keeps the workspace's limit") {
  const ConvProblem few = sized({.N = 1, .C_in = 1536, .C_out = 768, .L_in = 432, .K = 16, .S = 8, .P_l = 4, .P_r = 4});
  const auto plan = tensor_core::make_preconverted_plan(few, ConvDirection::dgrad, Precision::fp32, 132, kSharedOfHopper);
  REQUIRE(plan.has_value());
  CHECK(plan->tiling.slices > 1);
  CHECK(tensor_core::preconverted_weight_bytes(*plan) >= 4 * 1536 * 768 * 16);  // two f16 a weight
  // The plan has the least cost of several candidates.
  const auto candidates =
      tensor_core::preconverted_candidates(few, ConvDirection::dgrad, Precision::fp32, 132, kSharedOfHopper);
  const auto least = std::min_element(candidates.begin(), candidates.end(),
                                      [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  CHECK(candidates.size() > tensor_core::preconverted_shapes(2).size());
  const auto own = std::find_if(candidates.begin(), candidates.end(), [&](const auto& one) {
    return one.plan.shape == plan->shape && one.plan.tiling.slices == plan->tiling.slices;
  });
  REQUIRE(own != candidates.end());
  CHECK(own->seconds <= 1.02 * least->seconds);
  const ConvProblem much = sized({.N = 64, .C_in = 256, .C_out = 256, .L_in = 65536, .K = 3, .P_l = 1, .P_r = 1});
  const auto pieces = tensor_core::make_preconverted_plan(much, ConvDirection::forward, Precision::fp32, 132, kSharedOfHopper);
  REQUIRE(pieces.has_value());
  CHECK(pieces->samples < 64);
  CHECK(pieces->samples >= 1);
  CHECK(pieces->tiling.source.bytes(1) + pieces->tiling.partial_bytes <= static_cast<std::int64_t>(conv_workspace_limit()));
}

TEST_CASE("packed weights serve every batch and length, and nothing else") {
  const auto key = [](const ConvProblem& p, ConvDirection direction = ConvDirection::forward,
                      Precision precision = Precision::fp32) {
    const auto plan = tensor_core::make_preconverted_plan(sized(p), direction, precision, 132, kSharedOfHopper);
    REQUIRE(plan.has_value());
    return tensor_core::preconverted_weight_key(p, direction, precision, *plan);
  };
  const ConvProblem layer{.N = 16, .C_in = 256, .C_out = 128, .L_in = 2048, .K = 16, .S = 8, .P_l = 4, .P_r = 4};
  const auto with = [&](auto change) {
    ConvProblem other = layer;
    change(other);
    return other;
  };
  CHECK(key(layer) == key(with([](ConvProblem& p) { p.N = 1; })));
  CHECK(key(layer) == key(with([](ConvProblem& p) { p.L_in = 1777; })));
  CHECK(key(layer) == key(with([](ConvProblem& p) { p.P_l = 0; })));
  CHECK(key(layer) != key(layer, ConvDirection::dgrad));
  CHECK(key(layer) != key(layer, ConvDirection::forward, Precision::tf32));
  CHECK(key(layer) != key(with([](ConvProblem& p) { p.K = 24; })));
  CHECK(key(layer) != key(with([](ConvProblem& p) { p.C_in = 128, p.C_out = 256; })));
  CHECK(key(layer) != key(with([](ConvProblem& p) { p.D = 3; })));
}

TEST_CASE("small integers, bit for bit: every kernel, type and precision, one slice and three") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  double norm = 0;
  int turn = 0;
  for (const ConvProblem& p : preconverted_problems()) {
    const int slices = turn % 2 == 0 ? 1 : 3;
    norm += check_bits<float>(p, Precision::fp32, slices, turn % 5);
    norm += check_bits<float>(p, Precision::tf32, slices, turn % 3);
    if (turn % 2 == 0) norm += check_bits<Half>(p, Precision::fp32, slices, turn % 9);
    if (turn % 2 == 1) norm += check_bits<BFloat16>(p, Precision::fp32, slices, turn % 9);
    ++turn;
  }
  CHECK(norm > 0);
}

TEST_CASE("infinities, NaN and numbers of all sizes come out as from plain sums") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  // One of three classes has fewer taps, so that operands hold zeros next to the infinity.
  const ConvProblem p = sized({.N = 2, .C_in = 40, .C_out = 48, .L_in = 300, .K = 5, .S = 3, .P_l = 2, .P_r = 1});
  ConvArrays<float> arrays(p, kSmallIntegers);
  make_unusual(arrays, 15000);
  for (std::int64_t i = 2000; i < 2050; ++i) arrays.x[i] = std::ldexp(3.0F, -140);
  for (const ConvDirection direction : kGathers) {
    const auto plan = tensor_core::make_preconverted_plan(p, direction, Precision::fp32, 132, kSharedOfHopper);
    REQUIRE(plan.has_value());
    bool intact = false;
    const Array<float> expected = arrays.run(direction, Algorithm::reference);
    const Array<float> got = run_on_gpu(arrays, direction, by_plan(*plan, Precision::fp32), intact);
    check_unusual(got, expected, direction);
  }
}

TEST_CASE("sums of numbers that have no operand are put right in the columns of every block") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  const ConvProblem p = sized({.N = 2, .C_in = 40, .C_out = 96, .L_in = 700, .K = 16, .S = 8, .P_l = 4, .P_r = 4});
  ConvArrays<float> arrays(p, kSmallIntegers);
  // Zeros, then numbers far below the smallest f16 at the scale of the other numbers, then zeros: no sum has both kinds.
  const auto shrink = [](Array<float>& rows, std::int64_t length, std::int64_t begin, std::int64_t end, std::int64_t margin) {
    for (std::int64_t row = 0; row < rows.size(); row += length) {
      for (std::int64_t i = begin - margin; i < end + margin; ++i)
        rows[row + i] = i < begin || i >= end ? 0.0F : std::ldexp(rows[row + i], -60);
    }
  };
  shrink(arrays.x, p.L_in, 300, 340, 2);
  shrink(arrays.y, p.L_out, 2000, 2400, 16);
  for (const ConvDirection direction : kGathers) {
    for (const Precision precision : {Precision::fp32, Precision::tf32}) {
      const auto plan = tensor_core::make_preconverted_plan(p, direction, precision, 132, kSharedOfHopper);
      REQUIRE(plan.has_value());
      bool intact = false;
      const Array<float> expected = arrays.run(direction, Algorithm::reference, false);
      const Array<float> got = run_on_gpu(arrays, direction, by_plan(*plan, precision), intact, false);
      std::int64_t tiny = 0;
      for (std::int64_t i = 0; i < got.size(); ++i) tiny += expected[i] != 0 && std::fabs(expected[i]) < 1e-10F ? 1 : 0;
      CHECK(tiny > 1000);
      CHECK_MESSAGE(same_bits(got, expected), direction, ' ', precision);
    }
  }
}

TEST_CASE("16-bit rows of whole vectors: bias, LeakyReLU and a residual have the bits of the separate steps") {
  if (!has_tensor_cores()) SKIP_TEST("no CUDA device of compute capability 9.0");
  int added = 0, turn = 0;
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const ConvProblem& problem : {sized({.N = 3, .C_in = 64, .C_out = 72, .L_in = 1000, .K = 3, .P_l = 1, .P_r = 1}),
                                       sized({.N = 1, .C_in = 64, .C_out = 264, .L_in = 2056, .K = 1}),
                                       sized({.N = 9, .C_in = 48, .C_out = 8, .L_in = 88, .K = 7, .P_l = 3, .P_r = 3}),
                                       sized({.N = 2, .C_in = 64, .C_out = 40, .L_in = 804, .K = 5, .P_l = 2, .P_r = 2})})
      for (const ConvDirection direction : kGathers)
        for (std::int64_t misalignment = 0; misalignment < 2; ++misalignment) {
          const Operands operands(problem, direction, dtype, misalignment);
          const auto shapes = tensor_core::preconverted_shapes(1);
          for (std::size_t shape = 0; shape < shapes.size(); ++shape) {
            if (is_reduced() && turn++ % 8 != 0) continue;
            CAPTURE(operands.problem);
            CAPTURE(direction);
            CAPTURE(misalignment);
            CAPTURE(shape);
            const cuda::DeviceProperties& gpu_of = cuda::properties(0);
            const tensor_core::PreconvertedPlan plan{
                static_cast<int>(shape), problem.N,
                tensor_core::make_preconverted_tiling(cuda::make_tap_gemm(operands.problem, direction), shapes[shape], 1,
                                                      gpu_of.sm_count, gpu_of.shared_bytes_per_block)};
            const cuda::Buffer packed(static_cast<std::size_t>(tensor_core::preconverted_weight_bytes(plan)), 0);
            tensor_core::preconverted_pack_weights(operands.problem, direction, Precision::fp32, plan, operands.w.raw(),
                                                   packed.as<void>(), cuda::current_stream(0));
            const auto run = [&](const ConvEpilogue& epilogue) {
              Tensor out = operands.target();
              tensor_core::preconverted_gather(operands.problem, direction, Precision::fp32, plan, operands.source.raw(), {},
                                               operands.w.raw(), packed.as<void>(), operands.bias.raw(), out.raw(),
                                               pointers_of(epilogue, operands, out), 0, cuda::current_stream(0));
              return out;
            };
            const Tensor plain = run({});
            const Tensor by_direct = operands.plain(Algorithm::direct, Precision::fp32);
            CHECK(is_written(plain));
            CHECK(farthest(plain, by_direct) <= (dtype == DType::f16 ? 0.0625 : 0.5));  // an ulp of the largest
            ConvEpilogue sum;
            sum.residual = operands.residual;
            for (const ConvEpilogue& epilogue :
                 {ConvEpilogue{Activation::leaky_relu, 0.1}, ConvEpilogue{Activation::leaky_relu, 1.5},
                  ConvEpilogue{Activation::relu}, ConvEpilogue{Activation::tanh}, sum}) {
              const Tensor expected = operands.target();
              gpu().copy(expected, plain);
              finish_in_place(gpu(), epilogue, expected);
              CHECK(bytes_of(run(epilogue)) == bytes_of(expected));
              added += epilogue.residual.defined() ? 1 : 0;
            }
          }
        }
  CHECK(added > 0);
}

TEST_CASE("preconverted: Snake of a source has the bits of a pass before, in sums that are computed again too") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  const std::vector<ConvProblem> problems = thinned(
      std::vector<ConvProblem>{sized({.N = 2, .C_in = 64, .C_out = 64, .L_in = 1000, .K = 7, .P_l = 27, .P_r = 27, .D = 9}),
                               sized({.N = 3, .C_in = 44, .C_out = 20, .L_in = 515, .K = 1}),
                               sized({.N = 2, .C_in = 48, .C_out = 24, .L_in = 777, .K = 8, .S = 4, .P_l = 2, .P_r = 2}),
                               sized({.N = 1, .C_in = 36, .C_out = 48, .L_in = 2048, .K = 3, .P_l = 1, .P_r = 1, .G = 2})});
  for (const ConvProblem& p : problems)
    for (const ConvDirection direction : kGathers)
      for (const auto& [dtype, precision] : {std::pair{DType::f16, Precision::fp32},
                                             {DType::bf16, Precision::fp32},
                                             {DType::f32, Precision::fp32},
                                             {DType::f32, Precision::tf32}})
        for (const double largest : {1.0, 300.0, 0.0}) {  // beyond 64 the standard library's sine is used; 0: mixed scales
          Operands operands(p, direction, dtype, 0, /*is_spread=*/largest == 0 && dtype == DType::f32);
          const auto plan = tensor_core::preconverted_plan(operands.problem, direction, precision, 0);
          REQUIRE(plan.has_value());
          CAPTURE(p);
          CAPTURE(direction);
          CAPTURE(dtype);
          CAPTURE(precision);
          CAPTURE(largest);
          const cuda::Buffer packed(static_cast<std::size_t>(tensor_core::preconverted_weight_bytes(*plan)), 0);
          tensor_core::preconverted_pack_weights(operands.problem, direction, precision, *plan, operands.w.raw(),
                                                 packed.as<void>(), cuda::current_stream(0));
          const std::int64_t channels = operands.source.size(1);
          const auto parameter = [&](std::uint64_t seed) {
            std::vector<double> each = uniform_f64({channels}, 0.3, 2, seed).to_vector<double>();
            if (seed == 2) each[1] = 0;  // beta: NaN or infinite, but not in the padding
            return Tensor::from_vector(each, {channels}).to(dtype).to(Device::cuda(0));
          };
          const Tensor alpha = parameter(1), beta = parameter(2), source = operands.source * (largest == 0 ? 1 : largest);
          const auto run = [&](const Tensor& read, const cuda::SourceActivation& activation) {
            const Tensor out = operands.target();
            tensor_core::preconverted_gather(operands.problem, direction, precision, *plan, read.raw(), activation,
                                             operands.w.raw(), packed.as<void>(), operands.bias.raw(), out.raw(), {}, 0,
                                             cuda::current_stream(0));
            return bytes_of(out);
          };
          const Tensor active = snake_beta(source, alpha, beta);
          CHECK(run(source, {1, {alpha.raw(), beta.raw()}}) == run(active, {}));
          CHECK(run(source, {}) != run(active, {}));
        }
}
