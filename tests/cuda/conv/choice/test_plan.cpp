#include "cuda/conv/choice/plan.hpp"

#include <doctest/doctest.h>

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
    return seconds(p, Algorithm::direct) < forms.front().seconds + cuda::kWrittenWeights;
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
    CHECK(plan.candidates.size() == 3);
    CHECK(concat(plan) == concat(cuda::make_conv_plan({p, direction, Precision::fp32})));
  }
}
