#include "cuda/conv/tensor_core/pipeline/kernel_entry.hpp"

#include <doctest/doctest.h>

#include "cuda/conv/tensor_core/choice/kernels.hpp"
#include "support/conv.hpp"

using namespace polyphase;
using namespace polyphase::testing;
using namespace polyphase::cuda::tensor_core;

TEST_CASE("every kernel has a row: a name of its own, an estimate, a rule of epilogues and a launch") {
  for (const GatherKernel kernel : kGatherKernels) {
    const KernelEntry& entry = entry_of(kernel);
    CHECK((entry.counts != nullptr) != (entry.seconds != nullptr));
    CHECK((entry.fuses != nullptr && entry.gather != nullptr));
    for (const GatherKernel other : kGatherKernels) CHECK((name_of(other) == entry.name) == (other == kernel));
  }
  CHECK(name_of(GatherKernel::source_tma_16bit) == "source_tma_16bit");
  CHECK(name_of(GatherKernel::stride1) == "stride1");
}

TEST_CASE("rows that are staged take an aux operand where it comes as they are stored") {
  ConvProblem p = sized({.N = 1, .C_in = 64, .C_out = 64, .L_in = 96, .K = 3, .P_l = 1, .P_r = 1});
  const cuda::Epilogue one{.residual = 16}, both{.activation = Activation::relu, .residual = 16, .derivative = 32};
  const auto takes = [&](const cuda::Epilogue& epilogue, bool may_add = true, cuda::Alignment at = {}) {
    return staging_takes_aux({p, ConvDirection::forward, Precision::fp32, at}, epilogue, may_add);
  };
  CHECK(takes(one));
  CHECK(takes({.residual = 4}));
  CHECK(takes(both));
  CHECK(!takes(both, false));
  CHECK(!takes(both, true, {.out = 16}));
  p.dtype = DType::bf16;
  CHECK(takes(one));
  CHECK(!takes({.residual = 4}));
  CHECK(!takes(one, true, {.out = 16}));
  p.dtype = DType::f32;
  p = sized({.N = 1, .C_in = 64, .C_out = 64, .L_in = 96, .K = 4, .S = 2});
  CHECK(!takes(one));  // neighbouring outputs have two different phases
}
