#include "cuda/conv/epilogue/epilogue.cuh"

#include <doctest/doctest.h>

#include "cuda/conv/direct/direct.hpp"
#include "cuda/conv/direct/tiling.hpp"
#include "cuda/runtime/runtime.hpp"
#include "support/epilogue_operands.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::leaky_relu, Activation::tanh,
                                       Activation::snake};

/// `run(epilogue, out)` has the bits of `plain` followed by map(), for every activation, with and without residual and
/// argument.
template <class Run>
void check_epilogues(const Operands& operands, const Tensor& plain, const Run& run) {
  CHECK_MESSAGE(is_written(plain), operands.problem, ' ', operands.direction);
  for (const Activation activation : kActivations)
    for (const bool adds : {false, true})
      for (const bool keeps : {false, true}) {
        if (activation == Activation::none && !adds && !keeps) continue;
        CAPTURE(operands.problem);
        CAPTURE(operands.direction);
        CAPTURE(static_cast<int>(activation));
        CAPTURE(adds);
        CAPTURE(keeps);
        CAPTURE(operands.misalignment);
        ConvEpilogue epilogue{activation, 0.25, operands.alpha, operands.beta, {}, 0.3};
        if (adds) epilogue.residual = operands.residual;
        // The kept argument may be aligned differently from the output.
        if (keeps) epilogue.before = operands.target(operands.misalignment % 2);
        const Tensor expected = operands.target(), out = operands.target();
        gpu().copy(expected, plain);
        finish_in_place(gpu(), {activation, 0.25, operands.alpha, operands.beta, epilogue.residual, 0.3}, expected);
        run(epilogue, out);
        CHECK(bytes_of(out) == bytes_of(expected));
        if (!keeps) continue;
        const Tensor kept = operands.target(operands.misalignment % 2);
        gpu().copy(kept, plain);
        CHECK(bytes_of(epilogue.before) == bytes_of(kept));
      }
}

/// The same for a product with an activation's derivative, with and without a sum.
template <class Run>
void check_derivatives(const Operands& operands, const Tensor& plain, const Run& run) {
  for (const Activation activation : {Activation::relu, Activation::leaky_relu, Activation::tanh})
    for (const bool adds : {false, true}) {
      CAPTURE(operands.problem);
      CAPTURE(operands.direction);
      CAPTURE(static_cast<int>(activation));
      CAPTURE(adds);
      CAPTURE(operands.misalignment);
      ConvEpilogue epilogue{.activation = activation, .slope = 0.25, .scale = 0.3, .derivative = operands.result};
      if (adds) epilogue.residual = operands.residual;
      const Tensor expected = operands.target(), out = operands.target();
      gpu().copy(expected, plain);
      finish_in_place(gpu(), epilogue, expected);
      run(epilogue, out);
      CHECK(bytes_of(out) == bytes_of(expected));
    }
}

/// Runs every algorithm and precision that can compute the problem and returns how many there are.
int check_algorithms(const ConvProblem& problem, DType dtype, std::int64_t misalignment, bool is_spread = false) {
  int ran = 0;
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
    const Operands operands(problem, direction, dtype, misalignment, is_spread);
    for (const Algorithm algorithm : {Algorithm::direct, Algorithm::depthwise, Algorithm::gemm, Algorithm::tensor_core})
      for (const Precision precision : {Precision::fp32, Precision::tf32}) {
        if (precision == Precision::tf32 && (dtype != DType::f32 || algorithm != Algorithm::tensor_core)) continue;
        if (gpu().can_implement(operands.problem, direction, algorithm, precision)) continue;
        CAPTURE(algorithm);
        const auto run = [&](const ConvEpilogue& epilogue, const Tensor& out) {
          gpu().conv_activated(operands.problem, direction, operands.source, operands.w, operands.bias, out, {}, epilogue,
                               algorithm, precision);
        };
        const Tensor plain = operands.plain(algorithm, precision);
        check_epilogues(operands, plain, run);
        check_derivatives(operands, plain, run);
        ++ran;
      }
  }
  return ran;
}

/// Cases of storing: strides, gaps between taps, groups, rows of any alignment, few and many channels.
std::vector<ConvProblem> problems() {
  return thinned(std::vector<ConvProblem>{
      sized({.N = 2, .C_in = 3, .C_out = 18, .L_in = 150, .K = 5}),
      sized({.N = 1, .C_in = 3, .C_out = 18, .L_in = 151, .K = 4, .S = 2, .P_l = 1}),
      sized({.N = 1, .C_in = 3, .C_out = 5, .L_in = 150, .K = 3, .S = 2, .D = 2}),
      sized({.N = 2, .C_in = 3, .C_out = 18, .L_in = 150, .K = 3, .S = 5, .P_l = 2, .P_r = 1}),
      sized({.N = 1, .C_in = 16, .C_out = 24, .L_in = 700, .K = 8, .S = 4, .P_l = 2, .P_r = 2}),
      sized({.N = 3, .C_in = 64, .C_out = 64, .L_in = 301, .K = 3, .P_l = 1, .P_r = 1}),
      sized({.N = 2, .C_in = 32, .C_out = 16, .L_in = 260, .K = 3, .S = 2, .P_l = 1, .OP = 1, .G = 2}),
      sized({.N = 1, .C_in = 256, .C_out = 256, .L_in = 200, .K = 3, .P_l = 1, .P_r = 1}),
      sized({.N = 2, .C_in = 128, .C_out = 128, .L_in = 600, .K = 3}),
      sized({.N = 3, .C_in = 160, .C_out = 136, .L_in = 333, .K = 7, .P_l = 9, .P_r = 9, .D = 3}),
      sized({.N = 2, .C_in = 256, .C_out = 140, .L_in = 2001, .K = 3, .P_l = 1, .P_r = 1}),
      sized({.N = 2, .C_in = 32, .C_out = 32, .L_in = 530, .K = 11, .P_l = 5, .P_r = 5}),
      sized({.N = 2, .C_in = 32, .C_out = 64, .L_in = 404, .K = 5, .D = 3}),
      sized({.N = 1, .C_in = 300, .C_out = 40, .L_in = 50, .K = 16, .S = 8, .P_l = 4}),
      sized({.N = 2, .C_in = 128, .C_out = 20, .L_in = 210, .K = 9, .S = 3, .P_l = 2}),
      sized({.N = 2, .C_in = 6, .C_out = 6, .L_in = 1031, .K = 7, .P_l = 3, .P_r = 3, .G = 6}),
      sized({.N = 2, .C_in = 6, .C_out = 12, .L_in = 517, .K = 8, .S = 4, .P_l = 2, .P_r = 2, .G = 6}),
      sized({.N = 1, .C_in = 6, .C_out = 6, .L_in = 300, .K = 3, .S = 3, .D = 2, .G = 6}),
      sized({.N = 2, .C_in = 6, .C_out = 6, .L_in = 1100, .K = 7, .P_l = 9, .P_r = 9, .D = 3, .G = 6}),
      sized({.N = 1, .C_in = 4, .C_out = 4, .L_in = 1, .K = 1, .G = 4}),
  });
}

void check_all(DType dtype) {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  int ran = 0, turn = 0;
  for (const ConvProblem& problem : problems()) ran += check_algorithms(problem, dtype, turn++ % 3);
  CHECK(ran >= 2);
}

}  // namespace

TEST_CASE("f32: every algorithm, activation, sum and kept argument has the bits of the separate steps") {
  check_all(DType::f32);
}
TEST_CASE("f64: every algorithm, activation, sum and kept argument has the bits of the separate steps") {
  check_all(DType::f64);
}
TEST_CASE("f16: every algorithm, activation, sum and kept argument has the bits of the separate steps") {
  check_all(DType::f16);
}
TEST_CASE("bf16: every algorithm, activation, sum and kept argument has the bits of the separate steps") {
  check_all(DType::bf16);
}

TEST_CASE("f32: sums that are recomputed after the product get the same epilogue") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  int ran = 0, turn = 0;
  for (const ConvProblem& problem : problems()) ran += check_algorithms(problem, DType::f32, turn++ % 3, true);
  CHECK(ran >= 2);
}

TEST_CASE("every tile of the direct kernels, and sums of slices") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const auto tiles = static_cast<int>(cuda::direct::kTiles32.size());
  for (const ConvProblem& problem : {sized({.N = 2, .C_in = 40, .C_out = 34, .L_in = 290, .K = 4, .S = 2, .P_l = 1}),
                                     sized({.N = 1, .C_in = 21, .C_out = 19, .L_in = 601, .K = 5, .P_l = 2, .D = 2})})
    for (int tile = 0; tile < tiles; ++tile)
      for (const int slices : {0, 3}) {
        if (is_reduced() && (tile + slices) % 5 != 0) continue;
        const Operands operands(problem, ConvDirection::forward, DType::f32, tile % 3);
        CAPTURE(tile);
        CAPTURE(slices);
        const auto run = [&](const ConvEpilogue& epilogue, const Tensor& out) {
          cuda::direct::gather(operands.problem, operands.direction, operands.source.raw(), operands.w.raw(),
                               operands.bias.raw(), out.raw(), pointers_of(epilogue, operands, out), 0, cuda::current_stream(0),
                               tile, slices);
        };
        const Tensor plain = operands.target();
        run({}, plain);
        check_epilogues(operands, plain, run);
        check_derivatives(operands, plain, run);
      }
}

TEST_CASE("which algorithms form a derivative where they store") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const ConvProblem p = sized({.N = 1, .C_in = 32, .C_out = 32, .L_in = 400, .K = 5, .P_l = 2, .P_r = 2});
  const ConvProblem apart = sized({.N = 1, .C_in = 32, .C_out = 32, .L_in = 400, .K = 5, .P_l = 2, .P_r = 2, .G = 32});
  const ConvEpilogue epilogue{.activation = Activation::relu, .derivative = Tensor::empty({1})};
  const auto fuses = [&](const ConvProblem& problem, Algorithm algorithm) {
    return gpu().fuses(problem, ConvDirection::dgrad, epilogue, algorithm, Precision::fp32);
  };
  CHECK(fuses(p, Algorithm::direct));
  CHECK(fuses(apart, Algorithm::depthwise));
  CHECK(fuses(apart, Algorithm::automatic));
  CHECK_FALSE(fuses(p, Algorithm::gemm));  // cuBLAS stores the result
}
