#include "cuda/conv/choice/plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>

#include "cuda/conv/tensor_core/choice/kernels.hpp"
#include "cuda/conv/tensor_core/wgrad/tiling.hpp"
#include "cuda/runtime/runtime.hpp"
#include "support/conv.hpp"
#include "support/skip.hpp"
#include "tensor/error.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

double seconds(const ConvProblem& p, Algorithm algorithm, ConvDirection direction = ConvDirection::forward,
               Precision precision = Precision::fp32) {
  return cuda::estimate(p, direction, algorithm, precision, cuda::GpuRates{});
}

ConvProblem of_type(ConvProblem p, DType dtype) {
  p = sized(p);
  p.dtype = dtype;
  return p;
}

}  // namespace

TEST_CASE("the model ranks the known cases as they are measured") {
  const ConvProblem a = of_type({.N = 64, .C_in = 128, .C_out = 128, .L_in = 65536, .K = 3}, DType::f32);
  CHECK(seconds(a, Algorithm::direct) < seconds(a, Algorithm::gemm));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const ConvProblem istft = of_type({.N = 1, .C_in = 1026, .C_out = 1, .L_in = 224, .K = 1024, .S = 256}, dtype);
    for (const ConvDirection direction : kDirections)
      CHECK(seconds(istft, Algorithm::gemm, direction) < seconds(istft, Algorithm::direct, direction));
  }
  const ConvProblem depthwise =
      of_type({.N = 8, .C_in = 256, .C_out = 256, .L_in = 16384, .K = 12, .S = 2, .P_l = 5, .P_r = 5, .G = 256}, DType::f32);
  CHECK(seconds(depthwise, Algorithm::depthwise) < seconds(depthwise, Algorithm::direct));
  const ConvProblem hifigan =
      of_type({.N = 16, .C_in = 512, .C_out = 256, .L_in = 256, .K = 16, .S = 8, .P_l = 4, .P_r = 4}, DType::bf16);
  CHECK(seconds(hifigan, Algorithm::gemm) < seconds(hifigan, Algorithm::direct));
  ConvProblem tf32 = hifigan;
  tf32.dtype = DType::f32;
  CHECK(seconds(tf32, Algorithm::gemm, ConvDirection::forward, Precision::tf32) < seconds(tf32, Algorithm::direct));
  for (const ConvDirection direction : kDirections) {
    CHECK(seconds(a, Algorithm::tensor_core, direction) < seconds(a, Algorithm::direct, direction));
    CHECK(seconds(tf32, Algorithm::tensor_core, direction) < seconds(tf32, Algorithm::gemm, direction));
    // The time of a small problem is the time of its launches.
    const ConvProblem small =
        of_type({.N = 4, .C_in = 64, .C_out = 64, .L_in = 64, .K = 8, .S = 4, .P_l = 2, .P_r = 2}, DType::f32);
    CHECK(seconds(small, Algorithm::direct, direction) < seconds(small, Algorithm::tensor_core, direction));
  }
  // 19 million weights, which cuBLAS sums in f32: 214 us, against 200 on an H200.
  const ConvProblem dac =
      of_type({.N = 1, .C_in = 1536, .C_out = 768, .L_in = 432, .K = 16, .S = 8, .P_l = 4, .P_r = 4}, DType::bf16);
  const auto known = cuda::tensor_core::wgrad_cost(dac, Precision::fp32, 132, 232448);
  REQUIRE(known);
  CHECK(*known < seconds(dac, Algorithm::gemm, ConvDirection::wgrad));
  // 42 million weights of ten phases: 564 us against 590.
  const ConvProblem oobleck =
      of_type({.N = 1, .C_in = 2048, .C_out = 1024, .L_in = 215, .K = 20, .S = 10, .P_l = 5, .P_r = 5}, DType::f32);
  const auto turned = cuda::tensor_core::wgrad_cost(oobleck, Precision::fp32, 132, 232448);
  REQUIRE(turned);
  CHECK(*turned > seconds(oobleck, Algorithm::gemm, ConvDirection::wgrad));
}

TEST_CASE("small problems: the chosen algorithm is at most a fifth slower than the fastest") {
  struct Measured {
    bool is_forward;  // else a convolution, whose outputs are L long
    std::int64_t in, out, K, S, L;
    DType dtype;
    Precision precision;
    double direct, tensor_core, gemm;  // us on an H200, with a bias, in a CUDA graph, weights packed before; 2026-12-01
  };
  cuda::DeviceProperties gpu;
  gpu.major = 9;
  gpu.sm_count = 132;
  gpu.shared_bytes_per_block = 232448;
  constexpr auto kFp32 = Precision::fp32, kTf32 = Precision::tf32;
  for (const Measured& m : {Measured{false, 128, 512, 7, 1, 7, DType::f32, kFp32, 10.1, 19.3, 18.4},
                            {false, 128, 512, 7, 1, 7, DType::f32, kTf32, 10.1, 18.9, 13.9},
                            {false, 128, 128, 3, 1, 8, DType::f32, kTf32, 7.7, 13.0, 9.8},
                            {false, 64, 64, 3, 1, 512, DType::f32, kTf32, 8.0, 9.6, 8.8},
                            {false, 512, 512, 3, 1, 2048, DType::f32, kFp32, 91.4, 33.4, 126.6},
                            {false, 128, 512, 7, 1, 7, DType::f16, kFp32, 55.6, 12.4, 10.2},
                            {false, 64, 64, 3, 1, 8, DType::f16, kFp32, 14.5, 7.4, 5.5},
                            {false, 64, 64, 3, 1, 2048, DType::f16, kFp32, 16.0, 6.2, 9.9},
                            {false, 128, 128, 3, 1, 32, DType::f16, kFp32, 28.5, 12.7, 6.2},
                            {false, 512, 512, 7, 1, 2048, DType::f16, kFp32, 353.2, 23.0, 98.3},
                            {true, 256, 128, 10, 5, 8, DType::f32, kTf32, 11.6, 29.6, 7.7},
                            {true, 128, 64, 8, 4, 40, DType::f16, kFp32, 21.4, 8.0, 4.8},
                            {true, 64, 32, 4, 2, 160, DType::f16, kFp32, 13.1, 6.1, 4.9}}) {
    ConvProblem p{.N = 1, .C_in = m.out, .C_out = m.in, .L_in = m.L, .K = m.K, .S = m.S};
    if (m.is_forward) std::swap(p.C_in, p.C_out);
    p = of_type(p, m.dtype);
    CAPTURE(p);
    CAPTURE(m.precision);
    const ConvDirection direction = m.is_forward ? ConvDirection::forward : ConvDirection::dgrad;
    const auto kernels = cuda::tensor_core::gather_kernels({p, direction, m.precision}, gpu);
    REQUIRE(!kernels.empty());
    const double of_kernel = std::max(kernels.front().seconds, cuda::least_tensor_core_seconds(m.dtype, m.precision)) +
                             cuda::packing_seconds(m.dtype);
    const double direct = seconds(p, Algorithm::direct, direction, m.precision),
                 gemm = seconds(p, Algorithm::gemm, direction, m.precision);
    const double least = std::min({direct, of_kernel, gemm});
    const double chosen = least == direct ? m.direct : least == gemm ? m.gemm : m.tensor_core;
    CHECK(chosen <= 1.2 * std::min({m.direct, m.tensor_core, m.gemm}));
  }
}

TEST_CASE("dgrad of one tap is one product, three times as long if its rows are misaligned") {
  ConvProblem p = of_type({.N = 1, .C_in = 256, .C_out = 256, .L_in = 60000, .K = 1}, DType::f32);
  const auto of = [&](std::int64_t L) {
    p.L_in = p.L_out = L;
    return seconds(p, Algorithm::gemm, ConvDirection::dgrad, Precision::tf32);
  };
  // 44 us on an H200, without a bias. 16 x 3750, as many numbers in rows that are not at multiples of 16 bytes, takes 91.
  CHECK(of(60000) > 35e-6);
  CHECK(of(60000) < 55e-6);
  CHECK(of(60002) > 1.5 * of(60000));
}

TEST_CASE("weights that a training step packs count where a layer is small, and not where it is large") {
  cuda::DeviceProperties gpu;
  gpu.major = 9;
  gpu.sm_count = 132;
  gpu.shared_bytes_per_block = 232448;
  const auto is_direct = [&](std::int64_t N, std::int64_t L_in, std::int64_t C_out) {
    const ConvProblem p =
        of_type({.N = N, .C_in = 64, .C_out = C_out, .L_in = L_in, .K = 8, .S = 4, .P_l = 2, .P_r = 2}, DType::f32);
    const auto forms = cuda::tensor_core::gather_kernels({p, ConvDirection::forward, Precision::fp32}, gpu);
    REQUIRE(!forms.empty());
    return seconds(p, Algorithm::direct) < forms.front().seconds + cuda::packing_seconds(p.dtype);
  };
  // The upsamplers of bench/training_step. In a step on an H200: 12 and 12 us against 18 and 19; 41 and 74 against 30 and 38.
  CHECK(is_direct(4, 64, 64));
  CHECK(is_direct(4, 256, 32));
  CHECK(!is_direct(32, 512, 64));
  CHECK(!is_direct(32, 2048, 32));
}

TEST_CASE("a plan names the problem, the choice and what lost") {
  cuda::ConvPlan plan;
  plan.problem = of_type({.N = 1, .C_in = 2, .C_out = 3, .L_in = 4, .K = 5}, DType::f32);
  plan.candidates = {{Algorithm::direct, 12e-6}, {Algorithm::gemm, 30e-6}};
  CHECK(concat(plan) == concat("forward ", plan.problem, " fp32: direct (direct 12 us, gemm 30 us)"));
  plan.algorithm = Algorithm::tensor_core;
  plan.kernel = cuda::tensor_core::GatherKernel::source_tma;
  plan.tiling = "11 tiles a block, 1 of columns";
  plan.has_epilogue = true;
  plan.candidates.clear();
  CHECK(concat(plan) ==
        concat("forward ", plan.problem, " fp32: tensor_core by source_tma (11 tiles a block, 1 of columns), epilogue fused"));
  plan.fuses = false;
  CHECK(concat(plan).ends_with(", epilogue by launches of its own"));
}

TEST_CASE("every problem has a plan, and the same one every time") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const ConvProblem p = of_type({.N = 2, .C_in = 6, .C_out = 6, .L_in = 100, .K = 4, .S = 2, .G = 6}, DType::f16);
  for (const ConvDirection direction : kDirections) {
    const cuda::ConvPlan plan = cuda::make_conv_plan({p, direction, Precision::fp32});
    CHECK(plan.candidates.size() == (direction == ConvDirection::wgrad ? 3 : 2));  // too small for the scratch memory of gemm
    CHECK(concat(plan) == concat(cuda::make_conv_plan({p, direction, Precision::fp32})));
  }
}
