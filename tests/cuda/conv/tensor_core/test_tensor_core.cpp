#include "cuda/conv/tensor_core/tensor_core.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/choice/kernels.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

namespace {

bool can(const ConvProblem& p, ConvDirection direction, Precision precision) {
  return !tensor_core::can_implement(p, direction, precision, 0).has_value();
}

bool has_tensor_cores() { return cuda::device_count() > 0 && cuda::properties(0).arch() >= 80; }

/// Every direction that the algorithm can compute, bit for bit against the reference on small integers. Returns the norm of
/// what was compared.
template <class E>
double check_bits(ConvProblem p, Precision precision, std::int64_t misalignment) {
  p.dtype = dtype_of<E>;
  const ConvArrays<E> arrays(p, kSmallIntegers);
  double norm = 0;
  for (const ConvDirection direction : kDirections) {
    if (!can(p, direction, precision)) continue;
    const Array<E> expected = arrays.run(direction, Algorithm::reference);
    bool intact = false;
    const Array<E> got =
        run_on_gpu(arrays, direction, by_algorithm(Algorithm::tensor_core, precision), intact, true, misalignment);
    CHECK_MESSAGE(same_bits(got, expected), p, ' ', direction, ' ', precision, " misaligned by ", misalignment);
    CHECK_MESSAGE(intact, p, ' ', direction, ": wrote outside its output");
    norm += expected.norm();
  }
  return norm;
}

}  // namespace

TEST_CASE("16-bit rows that are carried from tile to tile are activated where they are stored") {
  if (!has_tensor_cores() || cuda::properties(0).arch() != 90 || tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  const auto fuses = [](ConvProblem p, const cuda::Epilogue& epilogue) {
    p.dtype = DType::bf16;
    return tensor_core::fuses({p, ConvDirection::forward, Precision::fp32}, epilogue, 0);
  };
  const ConvProblem carried = sized({.N = 64, .C_in = 128, .C_out = 128, .L_in = 65536, .K = 3});
  const ConvProblem whole = sized({.N = 64, .C_in = 128, .C_out = 128, .L_in = 65536, .K = 3, .P_l = 1, .P_r = 1});
  CHECK(fuses(carried, {Activation::relu}));
  CHECK(fuses(carried, {Activation::leaky_relu, 0.1}));
  CHECK_FALSE(fuses(carried, {Activation::tanh}));
  CHECK_FALSE(fuses(carried, {.activation = Activation::relu, .residual = 16}));
  CHECK_FALSE(fuses(whole, {Activation::relu}));
}

TEST_CASE("small integers, bit for bit: every type and precision, forward and both gradients") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  double norm = 0;
  int turn = 0;
  std::vector<ConvProblem> problems = dense_problems();
  for (const ConvProblem& p : row_problems()) problems.push_back(p);
  for (const ConvProblem& p : spread_problems()) problems.push_back(p);
  for (const ConvProblem& p : problems) {
    norm += check_bits<float>(p, Precision::fp32, turn % 5);
    norm += check_bits<float>(p, Precision::tf32, turn % 3);
    if (turn % 2 == 0) norm += check_bits<Half>(p, Precision::fp32, turn % 9);
    if (turn % 2 == 1) norm += check_bits<BFloat16>(p, Precision::fp32, turn % 9);
    ++turn;
  }
  CHECK(norm > 0);
}

TEST_CASE("a bias of 16 bits that is infinite or no number is that of its own channel alone") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  // Rows whose end is carried from tile to tile, and rows of whole sectors.
  for (const std::int64_t length : {402, 398}) {
    const ConvProblem p = sized({.N = 2, .C_in = 128, .C_out = 128, .L_in = length, .K = 3});
    check_unusual_biases<Half>(p);
    check_unusual_biases<BFloat16>(p);
  }
}

/// fp32 against plain f32 sums.
void check_against_plain(const ConvArrays<float>& arrays, ConvDirection direction, const char* what) {
  bool intact = false;
  const Array<float> got = run_on_gpu(arrays, direction, by_algorithm(Algorithm::tensor_core), intact);
  check_as_accurate_as_plain(got, arrays, direction, concat(direction, what));
}

/// `wide`: over 160 powers of two in one row.
void check_accuracy(const ConvProblem& problem) {
  std::mt19937 random(3);
  for (const bool wide : {false, true}) {
    ConvArrays<float> arrays(problem, kNormal);
    if (wide) {
      for (std::int64_t i = 0; i < arrays.x.size(); ++i)
        arrays.x[i] = std::ldexp(arrays.x[i], static_cast<int>(random() % 160) - 80);
      for (std::int64_t i = 0; i < arrays.y.size(); ++i)
        arrays.y[i] = std::ldexp(arrays.y[i], static_cast<int>(random() % 80) - 60);
    }
    for (const ConvDirection direction : kDirections) {
      if (wide && direction == ConvDirection::wgrad) continue;  // sums of squares that overflow f32
      check_against_plain(arrays, direction, wide ? " wide" : "");
    }
  }
}

TEST_CASE("fp32 is as accurate as plain f32 sums, over 160 powers of two in one row as well") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  check_accuracy(sized({.N = 2, .C_in = 48, .C_out = 40, .L_in = 700, .K = 6, .S = 2, .P_l = 2, .P_r = 1}));
  check_accuracy(sized({.N = 2, .C_in = 32, .C_out = 64, .L_in = 601, .K = 5, .S = 1, .D = 3}));  // weights in registers
  check_accuracy(sized({.N = 1, .C_in = 72, .C_out = 80, .L_in = 450, .K = 3, .S = 1, .P_l = 1, .P_r = 0}));
}

TEST_CASE("fp32 is as accurate if nearly all numbers are too small for two f16, in more tiles than a warp's list holds") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  ConvArrays<float> arrays(sized({.N = 1, .C_in = 8, .C_out = 8, .L_in = is_reduced() ? 600 : 600'000, .K = 1}), kNormal);
  for (std::int64_t i = 0; i < 8; ++i) arrays.bias_out[i] = 0;
  for (std::int64_t i = 40; i < arrays.x.size(); ++i) arrays.x[i] = std::ldexp(arrays.x[i], -50);
  check_against_plain(arrays, ConvDirection::forward, " small");
}

void check_unusual(const ConvProblem& problem, Precision precision = Precision::fp32) {
  ConvArrays<float> arrays(problem, kSmallIntegers);
  make_unusual(arrays, 1500);
  for (std::int64_t i = 2000; i < 2050; ++i) arrays.x[i] = std::ldexp(3.0F, -140);
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
    bool intact = false;
    const Array<float> expected = arrays.run(direction, Algorithm::reference);
    const Array<float> got = run_on_gpu(arrays, direction, by_algorithm(Algorithm::tensor_core, precision), intact);
    check_unusual(got, expected, direction);
  }
}

TEST_CASE("infinities, NaN and subnormal numbers come out of fp32 as from plain sums") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  check_unusual(sized({.N = 1, .C_in = 16, .C_out = 16, .L_in = 400, .K = 3, .S = 2, .P_l = 1, .P_r = 1}));
  check_unusual(sized({.N = 1, .C_in = 32, .C_out = 64, .L_in = 400, .K = 3, .S = 2, .P_l = 1, .P_r = 1, .D = 2}));
  check_unusual(sized({.N = 1, .C_in = 70, .C_out = 66, .L_in = 400, .K = 3, .S = 1, .P_l = 1, .P_r = 1}));
  // Rows of whole sectors, and rows whose tiles overlap or carry: a warp recomputes what another warp has stored.
  for (const Precision precision : {Precision::fp32, Precision::tf32})
    for (const std::int64_t length : {400, 402, 401})
      check_unusual(sized({.N = 2, .C_in = 128, .C_out = 128, .L_in = length, .K = 3, .S = 1}), precision);
}

TEST_CASE("the same bits from run to run, over slices as well") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  const ConvArrays<float> arrays(sized({.N = 4, .C_in = 24, .C_out = 40, .L_in = 20001, .K = 5, .S = 1, .P_l = 2, .P_r = 2}),
                                 kNormal);
  for (const ConvDirection direction : kDirections) {
    bool intact = false;
    const auto first = run_on_gpu(arrays, direction, by_algorithm(Algorithm::tensor_core), intact);
    for (int again = 0; again < 5; ++again)
      CHECK(same_bits(run_on_gpu(arrays, direction, by_algorithm(Algorithm::tensor_core), intact), first));
  }
}

TEST_CASE("what it declines, and why") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  const ConvProblem few = sized({.N = 1, .C_in = 4, .C_out = 16, .L_in = 9, .K = 3});
  CHECK(tensor_core::can_implement(few, ConvDirection::forward, Precision::fp32, 0) ==
        "it needs 8 channels a group on both sides, got 4 and 16");
  ConvProblem dense = sized({.N = 1, .C_in = 16, .C_out = 16, .L_in = 9, .K = 3, .S = 2});
  CHECK(tensor_core::can_implement(dense, ConvDirection::forward, Precision::ieee, 0) ==
        "precision ieee needs unrounded products");
  // A phase has fewer taps than the others. Its sums that meet an infinity are recomputed.
  for (const Precision precision : {Precision::fp32, Precision::tf32})
    CHECK(!tensor_core::can_implement(dense, ConvDirection::forward, precision, 0).has_value());
  dense.dtype = DType::bf16;
  CHECK(!tensor_core::can_implement(dense, ConvDirection::forward, Precision::fp32, 0).has_value());
  dense.dtype = DType::f64;
  CHECK(tensor_core::can_implement(dense, ConvDirection::dgrad, Precision::fp32, 0) ==
        "there are no tensor cores for f64 convolutions here");
}
