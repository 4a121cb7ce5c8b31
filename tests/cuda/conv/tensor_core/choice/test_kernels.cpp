#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <vector>

#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/preconverted.hpp"
#include "cuda/conv/tensor_core/choice/kernels.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/conv/tensor_core/source_in_registers/stride1/stride1.hpp"
#include "cuda/conv/tensor_core/tensor_core.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/source_bulk.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/source_tma.hpp"
#include "cuda/cuda.hpp"
#include "cuda/runtime/runtime.hpp"
#include "ops/activations.hpp"
#include "support/epilogue_operands.hpp"
#include "support/reduced.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

/// Runs one kernel on f32 in fp32 and tf32, with and without sums to recompute. Where `fuses` allows an epilogue (a light
/// activation, a residual, a derivative), its result has the bits of the separate steps. Returns how many epilogues had a
/// residual or a derivative. A reduced run tests LeakyReLU alone, forward in fp32 with sums to recompute and dgrad in tf32
/// without.
template <class Fuses>
int check_light(const ConvProblem& problem, cuda::tensor_core::GatherKernel kernel, const Fuses& fuses,
                std::int64_t misalignment = 0, std::int64_t further = 0, DType dtype = DType::f32) {
  int ran = 0;
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad})
    for (const Precision precision : {Precision::fp32, Precision::tf32})
      for (const bool is_spread : {false, true}) {
        if (dtype != DType::f32 && (is_spread || precision == Precision::tf32)) continue;
        const bool is_forward = direction == ConvDirection::forward;
        const bool is_one = is_forward == (precision == Precision::fp32) && is_forward == is_spread;
        if (is_reduced() && dtype == DType::f32 && !is_one) continue;
        const Operands operands(problem, direction, dtype, misalignment, is_spread, further);
        const Tensor plain = operands.target();
        const cuda::tensor_core::KernelProblem asked{operands.problem, direction, precision,
                                                     cuda::alignment_of(operands.source.raw(), plain.raw())};
        if (!cuda::tensor_core::kernel_cost(kernel, asked, cuda::properties(0))) continue;
        const auto run = [&](const ConvEpilogue& epilogue, const Tensor& out) {
          cuda::tensor_core::gather_by(
              kernel, {operands.problem, direction, precision, operands.source.raw(), operands.w.raw(), operands.bias.raw(),
                       out.raw(), pointers_of(epilogue, operands, out), 0, cuda::current_stream(0)});
        };
        const std::uint64_t before = cuda::computed_again(0);
        run({}, plain);
        CHECK_MESSAGE(is_written(plain), problem, ' ', direction, ' ', precision);
        if (is_spread) CHECK(cuda::computed_again(0) > before);
        for (const Activation activation : {Activation::none, Activation::relu, Activation::leaky_relu})
          for (const bool adds : {false, true})
            for (const bool derives : {false, true}) {
              if (derives && activation == Activation::none) continue;
              if (is_reduced() && activation != Activation::leaky_relu) continue;
              CAPTURE(problem);
              CAPTURE(direction);
              CAPTURE(precision);
              CAPTURE(is_spread);
              CAPTURE(static_cast<int>(activation));
              CAPTURE(adds);
              CAPTURE(derives);
              CAPTURE(misalignment);
              CAPTURE(further);
              ConvEpilogue epilogue{.activation = activation, .slope = 0.25, .scale = 0.3};
              if (adds) epilogue.residual = operands.residual;
              if (derives) epilogue.derivative = operands.result;
              const Tensor expected = operands.target(), out = operands.target();
              if (!fuses(asked, pointers_of(epilogue, operands, out))) continue;
              ran += adds || derives ? 1 : 0;
              gpu().copy(expected, plain);
              finish_in_place(gpu(), epilogue, expected);
              run(epilogue, out);
              CHECK(bytes_of(out) == bytes_of(expected));
            }
      }
  return ran;
}

/// Whether check_light() ran all epilogues; in a reduced run, whether it ran any.
bool is_all(int ran, int all) { return is_reduced() ? ran > 0 : ran == all; }

/// Whether an epilogue has at most one aux tensor, at an offset from the output that is a multiple of kBytes.
template <std::int64_t kBytes>
bool has_one_aux(const cuda::tensor_core::KernelProblem&, const cuda::Epilogue& epilogue) {
  return epilogue.is_light() && (epilogue.residual == 0 || epilogue.derivative == 0) &&
         (epilogue.residual + epilogue.derivative) % kBytes == 0;
}

/// Whether an epilogue with an aux tensor has outputs of stride 1.
bool is_without_aux_or_stride_1(const cuda::tensor_core::KernelProblem& asked, const cuda::Epilogue& epilogue) {
  return epilogue.is_light() && (!epilogue.has_aux() || asked.direction == ConvDirection::dgrad || asked.problem.S == 1);
}

}  // namespace

TEST_CASE("tensor cores that keep their weights apply ReLU and LeakyReLU, and some of 16 bits add a residual") {
  if (!has_gpu() || cuda::properties(0).arch() != 90 || cuda::tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  ConvProblem p = sized({.N = 32, .C_in = 32, .C_out = 64, .L_in = 131072, .K = 5, .P_l = 6, .P_r = 6, .D = 3});
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
    const auto fuses = [&](DType dtype, const cuda::Epilogue& epilogue) {
      p.dtype = dtype;
      return cuda::tensor_core::fuses({p, direction, Precision::fp32}, epilogue, 0);
    };
    CHECK(fuses(DType::bf16, {Activation::relu}));
    CHECK(fuses(DType::f16, {Activation::leaky_relu, 0.1}));
    CHECK(fuses(DType::bf16, {.residual = 32}));
    CHECK_FALSE(fuses(DType::bf16, {.residual = 16}));
    CHECK(fuses(DType::f16, {.activation = Activation::relu, .derivative = 32}));
    CHECK_FALSE(fuses(DType::bf16, {.activation = Activation::leaky_relu, .slope = 0.1, .residual = 16, .derivative = 16}));
    CHECK_FALSE(fuses(DType::bf16, {Activation::tanh}));
    CHECK_FALSE(fuses(DType::bf16, {Activation::snake}));
    CHECK(fuses(DType::f32, {Activation::relu}));  // source_tma
    CHECK(fuses(DType::f32, {.activation = Activation::leaky_relu, .slope = 0.1, .residual = 16}));
    CHECK_FALSE(fuses(DType::f32, {Activation::tanh}));
  }
  const ConvProblem strided = sized({.N = 1, .C_in = 128, .C_out = 20, .L_in = 210, .K = 9, .S = 3});
  const auto fuses = [&](const cuda::Epilogue& epilogue) {
    return cuda::tensor_core::fuses({strided, ConvDirection::forward, Precision::fp32}, epilogue, 0);
  };
  CHECK(fuses({Activation::relu}));
  CHECK(fuses({Activation::leaky_relu, 0.1}));
}

TEST_CASE("rows of 128 columns add a residual and go through a derivative where they store pairs") {
  if (!has_gpu() || cuda::properties(0).arch() != 90 || cuda::tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  using namespace cuda::tensor_core;
  const auto of_rows = [](const KernelProblem& asked, const cuda::Epilogue& epilogue) {
    return kStride1.fuses(asked, epilogue, 0);
  };
  const auto ran_of = [&](const ConvProblem& problem) { return check_light(problem, GatherKernel::stride1, of_rows); };
  // Whole tiles and ends of rows, samples that begin inside and outside of the padding, one and two halves of a tile. The third
  // problem tests the release of a stage in fp32 with two aux tensors, where the reads of the stage wait for those of the
  // residual.
  CHECK(is_all(ran_of(sized({.N = 3, .C_in = 128, .C_out = 128, .L_in = 1000, .K = 3, .P_l = 1, .P_r = 1})), 7 * 8));
  CHECK(is_all(ran_of(sized({.N = 2, .C_in = 128, .C_out = 64, .L_in = 1440, .K = 5})), 7 * 4));
  CHECK(is_all(ran_of(sized({.N = 2, .C_in = 256, .C_out = 256, .L_in = 384, .K = 3, .P_l = 4, .P_r = 6, .G = 2})), 7 * 8));
  ConvProblem p = sized({.N = 64, .C_in = 128, .C_out = 128, .L_in = 8192, .K = 3, .P_l = 1, .P_r = 1});
  const auto fuses = [&](const cuda::Epilogue& epilogue, Precision precision = Precision::fp32, std::uintptr_t out = 0) {
    return cuda::tensor_core::fuses({p, ConvDirection::forward, precision, {.out = static_cast<int>(out)}}, epilogue, 0);
  };
  const auto kernel = cuda::tensor_core::chosen_kernel({p, ConvDirection::forward, Precision::fp32}, 0);
  REQUIRE((kernel && kernel->kernel == cuda::tensor_core::GatherKernel::stride1));
  CHECK(fuses({.residual = 16}));
  CHECK(fuses({.residual = 8}));
  CHECK_FALSE(fuses({.residual = 4}));  // pairs of elements are not aligned
  CHECK_FALSE(fuses({.residual = 16}, Precision::fp32, 4));
  CHECK(fuses({.activation = Activation::leaky_relu, .slope = 0.1, .residual = 16, .derivative = 32}));
  CHECK_FALSE(fuses({.activation = Activation::tanh, .derivative = 16}));
  CHECK_FALSE(fuses({.activation = Activation::relu, .before = 16}));
}

TEST_CASE("tensor cores with weights in registers apply ReLU and LeakyReLU, after the recompute of suspect sums") {
  if (!has_gpu() || cuda::properties(0).arch() != 90 || cuda::tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  using cuda::tensor_core::GatherKernel;
  // Most tiles have a number that is too small, and a warp has more suspect tiles than its list holds.
  const std::int64_t N = is_reduced() ? 3 : 150;
  const ConvProblem p = sized({.N = N, .C_in = 16, .C_out = 16, .L_in = 2048, .K = 8, .S = 4, .P_l = 2, .P_r = 2});
  Tensor values = Tensor::randn({N, 16, 2048});
  for (std::int64_t i = 0; i < values.numel(); i += 61) values.data<float>()[i] *= 1e-9F;
  const Tensor source = values.to(Device::cuda()), w = Tensor::randn({16, 16, 8}).to(Device::cuda());
  const auto run = [&](const cuda::Epilogue& epilogue) {
    Tensor out = Tensor::empty({N, 16, p.L_out}, {.device = Device::cuda()});
    cuda::tensor_core::gather_by(GatherKernel::source_bulk, {p, ConvDirection::forward, Precision::fp32, source.raw(), w.raw(),
                                                             nullptr, out.raw(), epilogue, 0, cuda::current_stream(0)});
    return out;
  };
  const std::uint64_t before = cuda::computed_again(0);
  const Tensor plain = run({});
  CHECK(cuda::computed_again(0) > before);
  CHECK(bytes_of(run({Activation::leaky_relu, 0.1})) == bytes_of(leaky_relu(plain, 0.1)));
  CHECK(bytes_of(run({Activation::relu})) == bytes_of(relu(plain)));

  const ConvProblem chosen = sized({.N = 32, .C_in = 64, .C_out = 32, .L_in = 2048, .K = 8, .S = 4, .P_l = 2, .P_r = 2});
  const auto kernel = cuda::tensor_core::chosen_kernel({chosen, ConvDirection::forward, Precision::fp32}, 0);
  REQUIRE((kernel && kernel->kernel == GatherKernel::source_bulk));
  const auto fuses = [&](const cuda::Epilogue& epilogue) {
    return cuda::tensor_core::fuses({chosen, ConvDirection::forward, Precision::fp32}, epilogue, 0);
  };
  CHECK(fuses({Activation::relu}));
  CHECK(fuses({Activation::leaky_relu, 0.1}));
  CHECK_FALSE(fuses({Activation::tanh}));
  CHECK_FALSE(fuses({.residual = 16}));
  CHECK_FALSE(fuses({.activation = Activation::relu, .derivative = 16}));
}

TEST_CASE("source_tma adds a residual and applies a derivative while it stages outputs") {
  if (!has_gpu() || cuda::properties(0).arch() != 90 || cuda::tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  using namespace cuda::tensor_core;
  const auto fuses_staged = [](const KernelProblem& asked, const cuda::Epilogue& epilogue) {
    return kSourceTma.fuses(asked, epilogue, 0);
  };
  const auto ran_of = [&](const ConvProblem& problem, std::int64_t misalignment = 0, std::int64_t further = 0) {
    return check_light(problem, GatherKernel::source_tma, fuses_staged, misalignment, further);
  };
  // Rows of whole 128-byte lines, of whole sectors, even, odd, shorter than a tile, shorter than a sector; dynamic and static
  // scheduler; groups.
  constexpr int kEach = 5, kAll = 7;  // for each direction, precision and kind of data; kAll: both aux tensors too
  CHECK(is_all(ran_of(sized({.N = 2, .C_in = 32, .C_out = 32, .L_in = 1024, .K = 7, .P_l = 3, .P_r = 3})), 8 * kAll));
  CHECK(is_all(ran_of(sized({.N = 2, .C_in = 32, .C_out = 32, .L_in = 1000, .K = 3, .P_l = 1, .P_r = 1}), 0, 4), 8 * kAll));
  if (!is_reduced()) {  // racecheck takes minutes for the cases above
    CHECK(is_all(ran_of(sized({.N = 2, .C_in = 64, .C_out = 64, .L_in = 1016, .K = 2, .P_r = 1})), 8 * kAll));
    CHECK(ran_of(sized({.N = 1, .C_in = 32, .C_out = 32, .L_in = 512, .K = 9, .P_l = 4, .P_r = 4})) > 0);  // fp32: not both
    CHECK(is_all(ran_of(sized({.N = 2, .C_in = 32, .C_out = 64, .L_in = 700, .K = 5, .P_l = 6, .P_r = 6, .D = 3}), 0, 8),
                 8 * kEach));
    CHECK(ran_of(sized({.N = 1, .C_in = 32, .C_out = 32, .L_in = 702, .K = 3}), 2, 4) > 0);
  }
  CHECK(ran_of(sized({.N = 1, .C_in = 64, .C_out = 64, .L_in = 701, .K = 3, .P_l = 1, .P_r = 1}), 1, 12) > 0);
  CHECK(ran_of(sized({.N = 3, .C_in = 8, .C_out = 8, .L_in = 5, .K = 9, .P_l = 3, .P_r = 4})) > 0);
  CHECK(ran_of(sized({.N = 2, .C_in = 48, .C_out = 80, .L_in = 256, .K = 2, .D = 7, .G = 2})) > 0);
  CHECK(is_all(ran_of(sized({.N = is_reduced() ? 10 : 150, .C_in = 16, .C_out = 32, .L_in = 512, .K = 3, .P_l = 1, .P_r = 1})),
               6 * kAll + 2 * kEach));  // 16 rows of a source are less than a step of sparse products
  const ConvProblem p = sized({.N = 16, .C_in = 64, .C_out = 64, .L_in = 65536, .K = 5, .P_l = 2, .P_r = 2});
  const auto fuses = [&](const cuda::Epilogue& epilogue) {
    return cuda::tensor_core::fuses({p, ConvDirection::forward, Precision::tf32}, epilogue, 0);
  };
  const auto kernel = chosen_kernel({p, ConvDirection::forward, Precision::tf32}, 0);
  REQUIRE((kernel && kernel->kernel == GatherKernel::source_tma));
  CHECK(fuses({.residual = 16}));
  CHECK_FALSE(fuses({.residual = 8}));
  CHECK(fuses({.activation = Activation::leaky_relu, .slope = 0.1, .derivative = 16}));
  CHECK(fuses({.activation = Activation::relu, .residual = 16, .derivative = 32}));
  CHECK_FALSE(fuses({.activation = Activation::relu, .residual = 16, .derivative = 40}));
  CHECK_FALSE(fuses({.activation = Activation::tanh, .derivative = 16}));
}

TEST_CASE("16-bit convolutions of few channels add a residual or go through a derivative where they stage outputs") {
  if (!has_gpu() || cuda::properties(0).arch() != 90 || cuda::tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  using cuda::tensor_core::GatherKernel;
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const auto ran_of = [&](const ConvProblem& problem, std::int64_t misalignment = 0, std::int64_t further = 0) {
      return check_light(problem, GatherKernel::source_tma_16bit, has_one_aux<2>, misalignment, further, dtype);
    };
    // Rows of whole words and odd rows; in the second problem single elements only; outputs without taps.
    constexpr int kEach = 5;
    CHECK(is_all(ran_of(sized({.N = 2, .C_in = 32, .C_out = 32, .L_in = 1024, .K = 7, .P_l = 3, .P_r = 3})), 2 * kEach));
    CHECK(is_all(ran_of(sized({.N = 2, .C_in = 32, .C_out = 32, .L_in = 1000, .K = 3, .P_l = 1, .P_r = 1}), 0, 1), 2 * kEach));
    CHECK(ran_of(sized({.N = 2, .C_in = 32, .C_out = 64, .L_in = 702, .K = 5, .P_l = 6, .P_r = 6, .D = 3}), 2, 16) > 0);
    CHECK(ran_of(sized({.N = 3, .C_in = 16, .C_out = 16, .L_in = 1500, .K = 4, .S = 2, .P_l = 1, .P_r = 2, .D = 2})) > 0);
  }
}

TEST_CASE("weights in shared memory add a residual and go through a derivative where they stage outputs") {
  if (!has_gpu() || cuda::properties(0).arch() != 90 || cuda::tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  using namespace cuda::tensor_core;
  const auto of_stationary = [](const KernelProblem& asked, const cuda::Epilogue& epilogue) {
    const bool is_split = asked.problem.dtype == DType::f32 && asked.precision == Precision::fp32;
    return is_without_aux_or_stride_1(asked, epilogue) && (is_split || has_one_aux<4>(asked, epilogue));
  };
  const auto ran_of = [&](const ConvProblem& problem, std::int64_t misalignment = 0, std::int64_t further = 0,
                          DType dtype = DType::f32) {
    return check_light(problem, GatherKernel::stationary, of_stationary, misalignment, further, dtype);
  };
  // Rows and tiles of whole sectors, the last one short; even and odd rows of other lengths; a residual with a better or worse
  // alignment than the output; a last tile with fewer columns; groups; a strided source; more suspect tiles than a warp's list
  // holds.
  constexpr int kOne = 5, kAll = 7, kEach = kAll + kOne;  // for fp32, which also fuses both aux tensors, and tf32
  CHECK(is_all(ran_of(sized({.N = 2, .C_in = 64, .C_out = 64, .L_in = 1000, .K = 7, .P_l = 3, .P_r = 3})), 4 * kEach));
  CHECK(is_all(ran_of(sized({.N = 2, .C_in = 64, .C_out = 40, .L_in = 1000, .K = 3}), 0, 3), 4 * kEach));
  CHECK(is_all(ran_of(sized({.N = 1, .C_in = 64, .C_out = 80, .L_in = 701, .K = 5, .P_l = 4, .P_r = 6, .D = 3}), 1, 4),
               4 * kEach));
  CHECK(
      is_all(ran_of(sized({.N = 2, .C_in = 96, .C_out = 144, .L_in = 254, .K = 3, .P_l = 1, .P_r = 1, .G = 2}), 2), 4 * kEach));
  CHECK(is_all(ran_of(sized({.N = 2, .C_in = 32, .C_out = 64, .L_in = 520, .K = 4, .S = 2, .P_l = 1, .P_r = 1})), 2 * kEach));
  // A reduced run still has several tiles of each kind.
  const std::int64_t L = is_reduced() ? 96 : 8192;
  CHECK(is_all(ran_of(sized({.N = is_reduced() ? 600 : 72, .C_in = 16, .C_out = 8, .L_in = L, .K = 3, .P_l = 1, .P_r = 1})),
               4 * kEach));
  for (const DType dtype : {DType::f16, DType::bf16}) {
    if (is_reduced() && dtype == DType::bf16) continue;
    const auto of = [&](const ConvProblem& problem, std::int64_t further) { return ran_of(problem, 0, further, dtype); };
    CHECK(is_all(of(sized({.N = 2, .C_in = 64, .C_out = 64, .L_in = 1008, .K = 7, .P_l = 3, .P_r = 3}), 0), 2 * kOne));
    CHECK(
        is_all(of(sized({.N = 1, .C_in = 96, .C_out = 80, .L_in = 272, .K = 11, .P_l = 25, .P_r = 25, .D = 5}), 8), 2 * kOne));
    CHECK(of(sized({.N = 2, .C_in = 32, .C_out = 64, .L_in = 528, .K = 4, .S = 2, .P_l = 1, .P_r = 1}), 0) > 0);
  }
  ConvProblem p = sized({.N = 16, .C_in = 64, .C_out = 64, .L_in = 16384, .K = 7, .P_l = 3, .P_r = 3});
  const auto fuses = [&](const cuda::Epilogue& epilogue, std::uintptr_t out = 0) {
    return cuda::tensor_core::fuses({p, ConvDirection::forward, Precision::fp32, {.out = static_cast<int>(out)}}, epilogue, 0);
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    p.dtype = dtype;
    const auto kernel = cuda::tensor_core::chosen_kernel({p, ConvDirection::forward, Precision::fp32}, 0);
    REQUIRE((kernel && kernel->kernel == GatherKernel::stationary));
    const bool is_f32 = dtype == DType::f32;
    CHECK(fuses({.activation = Activation::leaky_relu, .slope = 0.1, .residual = 16}));
    CHECK(fuses({.activation = Activation::relu, .derivative = 32}));
    CHECK(fuses({.activation = Activation::relu, .residual = 16, .derivative = 32}) == is_f32);
    CHECK_FALSE(fuses({.activation = Activation::relu, .residual = 8, .derivative = 32}));
    CHECK_FALSE(fuses({.activation = Activation::tanh, .residual = 16}));
    CHECK(fuses({.residual = 8}) == is_f32);
    CHECK(fuses({.residual = 32}, 16) == is_f32);
  }
}

TEST_CASE("weights in registers add a residual or go through a derivative where they stage outputs") {
  if (!has_gpu() || cuda::properties(0).arch() != 90 || cuda::tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  using namespace cuda::tensor_core;
  const auto of_narrow = [](const KernelProblem& asked, const cuda::Epilogue& epilogue) {
    return is_without_aux_or_stride_1(asked, epilogue) && has_one_aux<4>(asked, epilogue) &&
           source_bulk_activates(asked, cuda::properties(0));
  };
  const auto ran_of = [&](const ConvProblem& problem, std::int64_t misalignment = 0, std::int64_t further = 0,
                          DType dtype = DType::f32) {
    return check_light(problem, GatherKernel::source_bulk, of_narrow, misalignment, further, dtype);
  };
  // As above; few and many columns, few and many products; static and dynamic scheduler.
  constexpr int kEach = 5;
  CHECK(is_all(ran_of(sized({.N = 2, .C_in = 32, .C_out = 32, .L_in = 1000, .K = 7, .P_l = 9, .P_r = 9, .D = 3})), 8 * kEach));
  CHECK(is_all(ran_of(sized({.N = 2, .C_in = 48, .C_out = 48, .L_in = 1000, .K = 3}), 0, 3), 8 * kEach));
  CHECK(is_all(ran_of(sized({.N = 1, .C_in = 64, .C_out = 96, .L_in = 701, .K = 1}), 1, 4), 8 * kEach));
  CHECK(
      is_all(ran_of(sized({.N = 2, .C_in = 48, .C_out = 80, .L_in = 254, .K = 3, .P_l = 1, .P_r = 1, .G = 2}), 2), 8 * kEach));
  CHECK(is_all(ran_of(sized({.N = 2, .C_in = 32, .C_out = 32, .L_in = 520, .K = 4, .S = 2, .P_l = 1, .P_r = 1})), 4 * kEach));
  const std::int64_t L = is_reduced() ? 96 : 8192;
  CHECK(is_all(ran_of(sized({.N = is_reduced() ? 600 : 72, .C_in = 8, .C_out = 16, .L_in = L, .K = 3, .P_l = 1, .P_r = 1})),
               8 * kEach));
  for (const DType dtype : {DType::f16, DType::bf16}) {
    if (is_reduced() && dtype == DType::bf16) continue;
    const auto of = [&](const ConvProblem& problem, std::int64_t further) { return ran_of(problem, 0, further, dtype); };
    CHECK(is_all(of(sized({.N = 2, .C_in = 64, .C_out = 96, .L_in = 1008, .K = 3, .P_l = 1, .P_r = 1}), 0), 2 * kEach));
    CHECK(is_all(of(sized({.N = 1, .C_in = 96, .C_out = 80, .L_in = 272, .K = 1}), 8), 2 * kEach));
  }
  const ConvProblem p = sized({.N = 16, .C_in = 32, .C_out = 64, .L_in = 131072, .K = 3, .S = 2, .P_l = 1, .P_r = 1, .D = 2});
  const auto fuses = [&](const cuda::Epilogue& epilogue) {
    return cuda::tensor_core::fuses({p, ConvDirection::dgrad, Precision::fp32}, epilogue, 0);
  };
  const auto kernel = chosen_kernel({p, ConvDirection::dgrad, Precision::fp32}, 0);
  REQUIRE((kernel && kernel->kernel == GatherKernel::source_bulk));
  CHECK(fuses({.residual = 4}));
  CHECK(fuses({.activation = Activation::leaky_relu, .slope = 0.1, .derivative = 16}));
  CHECK_FALSE(fuses({.activation = Activation::relu, .residual = 16, .derivative = 32}));  // one aux tensor fits
  CHECK_FALSE(fuses({.activation = Activation::tanh, .residual = 16}));
}

TEST_CASE("the preconverted kernel adds a residual, and in f32 takes a derivative, where it puts rows together") {
  if (!has_gpu() || cuda::properties(0).arch() != 90 || cuda::tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  ConvProblem p = sized({.N = 4, .C_in = 256, .C_out = 256, .L_in = 8192, .K = 7, .P_l = 3, .P_r = 3});
  const auto fuses = [&](DType dtype, const cuda::Epilogue& epilogue) {
    p.dtype = dtype;
    return cuda::tensor_core::fuses({p, ConvDirection::forward, Precision::fp32}, epilogue, 0);
  };
  const cuda::Epilogue sum{.residual = 16}, active{.activation = Activation::leaky_relu, .slope = 0.1, .residual = 16};
  const cuda::Epilogue derivative{.activation = Activation::relu, .derivative = 16};
  for (const cuda::Epilogue& epilogue : {sum, active, derivative}) CHECK(fuses(DType::f32, epilogue));
  CHECK(fuses(DType::bf16, sum));
  for (const cuda::Epilogue& epilogue : {active, derivative, cuda::Epilogue{.residual = 16, .scale = 0.5}})
    CHECK_FALSE(fuses(DType::bf16, epilogue));
  CHECK_FALSE(fuses(DType::f32, {.activation = Activation::relu, .residual = 16, .derivative = 32}));  // one fits
  CHECK_FALSE(fuses(DType::f32, {.activation = Activation::tanh, .derivative = 16}));
  CHECK_FALSE(fuses(DType::f32, {.activation = Activation::snake, .before = 16}));
  p.N = 2;  // fits in the L2 cache
  CHECK_FALSE(fuses(DType::f32, sum));
  CHECK(fuses(DType::bf16, sum));
  p.L_in = p.L_out = 8191;  // no whole vectors
  CHECK_FALSE(fuses(DType::bf16, sum));
  p.L_in = p.L_out = 8192;

  // Whether the kernel stores it, whatever the size.
  const auto stores = [](const cuda::tensor_core::KernelProblem& asked, const cuda::Epilogue& epilogue) {
    const auto plan = cuda::tensor_core::preconverted_plan(asked.problem, asked.direction, asked.precision, 0);
    return has_one_aux<4>(asked, epilogue) && is_without_aux_or_stride_1(asked, epilogue) && plan && plan->tiling.slices == 1;
  };
  // Rows of whole vectors and others, tiles that end inside of a vector, groups, strides.
  const std::int64_t most = is_reduced() ? 2 : 9;
  const std::vector<ConvProblem> problems{
      sized({.N = most, .C_in = 64, .C_out = 192, .L_in = 1024, .K = 3, .P_l = 1, .P_r = 1}),
      sized({.N = 9, .C_in = 64, .C_out = 96, .L_in = 611, .K = 3, .D = 3}),
      sized({.N = 9, .C_in = 128, .C_out = 256, .L_in = 700, .K = 2, .P_l = 1, .G = 2}),
      sized({.N = 8, .C_in = 192, .C_out = 96, .L_in = 1030, .K = 2, .S = 2}),
      sized({.N = 2, .C_in = 128, .C_out = 192, .L_in = 1024, .K = 5, .P_l = 2, .P_r = 2})};
  for (const ConvProblem& problem : thinned(problems))
    for (const std::int64_t further : {0, 1})
      CHECK(check_light(problem, cuda::tensor_core::GatherKernel::preconverted, stores, 0, further) > 0);
}

TEST_CASE("kernels that activate their source as they read it: the bits of a pass before them, also of sums made again") {
  if (!has_gpu() || cuda::properties(0).arch() != 90 || cuda::tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  using namespace cuda::tensor_core;
  struct Kind {
    DType dtype;
    Precision precision;
  };
  std::vector<ConvProblem> problems{sized({.N = 2, .C_in = 64, .C_out = 64, .L_in = 1000, .K = 7, .P_l = 9, .P_r = 9, .D = 3}),
                                    sized({.N = 2, .C_in = 48, .C_out = 24, .L_in = 777, .K = 8, .S = 4, .P_l = 2, .P_r = 2}),
                                    sized({.N = 3, .C_in = 32, .C_out = 40, .L_in = 515, .K = 11, .P_l = 5, .P_r = 5}),
                                    sized({.N = 1, .C_in = 32, .C_out = 32, .L_in = 2048, .K = 3, .P_l = 1, .P_r = 1, .G = 2})};
  if (is_reduced()) problems.resize(2);
  for (const GatherKernel kernel : kGatherKernels) {
    if (!entry_of(kernel).activates_source) continue;
    int ran = 0;
    for (const ConvProblem& p : problems)
      for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad})
        for (const auto& [dtype, precision] : {Kind{DType::f32, Precision::fp32},
                                               {DType::f32, Precision::tf32},
                                               {DType::f16, Precision::fp32},
                                               {DType::bf16, Precision::fp32}})
          for (const bool is_spread : {false, true}) {
            if (is_spread && dtype != DType::f32) continue;
            // A reduced run: forward in fp32, with and without sums made again; dgrad in tf32 and f16 without.
            const bool is_fp32 = dtype == DType::f32 && precision == Precision::fp32;
            const bool is_left_out =
                dtype == DType::bf16 || is_fp32 != (direction == ConvDirection::forward) || (is_spread && !is_fp32);
            if (is_reduced() && is_left_out) continue;
            const Operands operands(p, direction, dtype, 0, is_spread);
            const KernelProblem asked{operands.problem, direction, precision};
            if (!kernel_cost(kernel, asked, cuda::properties(0))) continue;
            for (const float slope : {0.1F, 0.0F}) {
              if (slope == 0 && is_reduced()) continue;
              CAPTURE(name_of(kernel));
              CAPTURE(p);
              CAPTURE(direction);
              CAPTURE(dtype);
              CAPTURE(precision);
              CAPTURE(is_spread);
              const Tensor active = operands.placed(Tensor::zeros(operands.source.shape(), {.device = Device::cpu()}));
              if (slope == 0)  // zeros for ReLU
                operands.source.narrow(2, 100, 1).fill_(-std::numeric_limits<double>::infinity());
              gpu().map(slope == 0 ? MapOp::relu : MapOp::leaky_relu, active, std::array{operands.source}, {slope, 0});
              const auto run = [&](const Tensor& source, float source_slope) {
                const Tensor out = operands.target();
                Gather call{
                    operands.problem, direction, precision, source.raw(),           operands.w.raw(), operands.bias.raw(),
                    out.raw(),        {},        0,         cuda::current_stream(0)};
                call.gemm.source_slope = source_slope;
                gather_by(kernel, call);
                return bytes_of(out);
              };
              CHECK(run(operands.source, slope) == run(active, 1));
              CHECK(run(operands.source, slope) != run(operands.source, 1));
              ++ran;
            }
          }
    CHECK(ran >= (is_reduced() ? 1 : 16));
  }
}
