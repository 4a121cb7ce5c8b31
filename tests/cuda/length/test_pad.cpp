#include "cuda/length/pad.hpp"

#include <doctest/doctest.h>

#include "cuda/cuda.hpp"
#include "layers/conv1d.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/reduce.hpp"
#include "support/device.hpp"
#include "support/padding_formula.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

// A contiguous random tensor whose first element is `misalignment` elements after an aligned address.
Tensor shifted(const Shape& shape, DType dtype, std::int64_t misalignment) {
  const Tensor all = random_f64({shape.numel() + misalignment}).to(dtype);
  return Tensor::over(all.storage(), shape, contiguous_strides(shape), misalignment, dtype);
}

}  // namespace

TEST_CASE("padding and its gradient give the host's bits, for every alignment of rows") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : kAllTypes)
    for (const PadCase& at : kPadCases)
      for (const PaddingMode mode : kPaddingModes)
        for (const std::int64_t misalignment : {0, 1, 3}) {
          if (mode == PaddingMode::reflect && !at.reflects()) continue;
          CAPTURE(dtype);
          CAPTURE(at.L);
          CAPTURE(static_cast<int>(mode));
          CAPTURE(misalignment);
          const std::int64_t P = at.left + at.L + at.right;
          const Tensor x = shifted({at.rows, at.L}, dtype, misalignment);
          for (const std::int64_t out_misalignment : {0, 1}) {
            const Tensor out = poisoned({at.rows, P}, dtype, out_misalignment), device_out = mirrored(out);
            host().pad(out, x, at.left, mode);
            gpu().pad(device_out, mirrored(x), at.left, mode);
            CHECK(different(out, device_out) == 0);
            if (mode == PaddingMode::zeros) continue;
            const Tensor g = shifted({at.rows, P}, dtype, misalignment);
            const Tensor back = poisoned({at.rows, at.L}, dtype, out_misalignment), device_back = mirrored(back);
            host().pad_backward(back, g, at.left, mode);
            gpu().pad_backward(device_back, mirrored(g), at.left, mode);
            CHECK(different(back, device_back) == 0);
          }
        }
}

TEST_CASE("a padding of a million on each side") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor g = random_f64({3, 2100000}).to(DType::f32);
  for (const PaddingMode mode : {PaddingMode::reflect, PaddingMode::replicate}) {
    const std::int64_t L = mode == PaddingMode::reflect ? 1000000 : 100;
    const Tensor out = poisoned({3, L}, DType::f32), device = mirrored(out);
    host().pad_backward(out, g, mode == PaddingMode::reflect ? 500000 : 1000000, mode);
    gpu().pad_backward(device, mirrored(g), mode == PaddingMode::reflect ? 500000 : 1000000, mode);
    CHECK(different(out, device) == 0);
  }
}

TEST_CASE("long paddings are recorded in a graph, forward and backward, by the function and by Conv1d") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const PaddingMode mode : kPaddingModes) {
    CAPTURE(static_cast<int>(mode));
    Tensor x = random_f64({2, 1, 200000}).to(DType::f32).to(Device::cuda()).set_requires_grad(true);
    Conv1d conv({.in_channels = 1, .out_channels = 2, .kernel_size = 7, .padding = 3, .padding_mode = mode});
    conv.to(Device::cuda());
    Tensor y, z;
    const auto work = [&] {
      x.set_grad({});
      y = pad1d(x, {5, 70000}, mode);
      z = conv(x);
      (sum(y) + sum(z)).backward();
    };
    work();
    const Tensor eager_y = y.detach().clone(), eager_z = z.detach().clone(), eager_grad = x.grad().clone();
    cuda::Graph graph = cuda::capture(work);
    graph.replay();
    CHECK(y.to_vector<float>() == eager_y.to_vector<float>());
    CHECK(z.to_vector<float>() == eager_z.to_vector<float>());
    CHECK(x.grad().to_vector<float>() == eager_grad.to_vector<float>());
  }
}
