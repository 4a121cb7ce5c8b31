#include "cuda/length/upsample.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "cpu/isa.hpp"
#include "cuda/cuda.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/reduce.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/upsampling_formula.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("linear upsampling and its gradient give the bits of a host with fused multiply-adds") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  if (cpu_isa() == "baseline") SKIP_TEST("no fused multiply-adds on this CPU");
  for (const DType dtype : kFloatTypes)
    for (const UpsampleCase& at : kUpsampleCases)
      for (const std::int64_t misalignment : {0, 1}) {
        CAPTURE(dtype);
        CAPTURE(at.L);
        CAPTURE(at.scale);
        CAPTURE(misalignment);
        const Tensor x = random_f64({at.rows, at.L}).to(dtype), g = random_f64({at.rows, at.L * at.scale}, 2).to(dtype);
        const Tensor out = poisoned(g.shape(), dtype, misalignment), device_out = mirrored(out);
        host().upsample_linear(out, x, at.scale);
        gpu().upsample_linear(device_out, mirrored(x), at.scale);
        CHECK(different(out, device_out) == 0);
        const Tensor back = poisoned(x.shape(), dtype, misalignment), device_back = mirrored(back);
        host().upsample_linear_backward(back, g, at.scale);
        gpu().upsample_linear_backward(device_back, mirrored(g), at.scale);
        CHECK(different(back, device_back) == 0);
      }
}

TEST_CASE("long rows are upsampled in a graph, and back") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const UpsampleMode mode : {UpsampleMode::nearest, UpsampleMode::linear})
    for (const std::int64_t scale : {2, 40}) {
      Tensor x = random_f64({2, 1, 100000}).to(DType::f32).to(Device::cuda()).set_requires_grad(true);
      Tensor y;
      const auto work = [&] {
        x.set_grad({});
        y = upsample1d(x, scale, mode);
        sum(y * y).backward();
      };
      work();
      const Tensor eager = y.detach().clone(), eager_grad = x.grad().clone();
      cuda::Graph graph = cuda::capture(work);
      graph.replay();
      CHECK(y.to_vector<float>() == eager.to_vector<float>());
      CHECK(x.grad().to_vector<float>() == eager_grad.to_vector<float>());
    }
}
