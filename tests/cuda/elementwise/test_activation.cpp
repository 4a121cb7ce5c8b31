#include "cuda/elementwise/activation.hpp"

#include <doctest/doctest.h>

#include <array>

#include "ops/elementwise.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr MapOp kActivations[] = {MapOp::relu,      MapOp::leaky_relu, MapOp::elu,  MapOp::gelu,
                                  MapOp::gelu_tanh, MapOp::silu,       MapOp::tanh, MapOp::sigmoid};

}  // namespace

TEST_CASE("activations of contiguous tensors have the bits of the general kernel, for every length and dtype") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const MapOp op : kActivations)
    for (const DType dtype : kFloatTypes)
      for (const std::int64_t length : {1, 7, 8, 4096, 5003, 100001}) {
        CAPTURE(static_cast<int>(op));
        CAPTURE(dtype);
        CAPTURE(length);
        const Tensor values = (random_f64({length, 1}) * 8.0).to(dtype);
        const Tensor x = mirrored(values), on_host = poisoned({length, 1}, dtype), y = mirrored(on_host);
        // Every second element of a tensor: the general kernel's layout.
        Tensor spread = mirrored(poisoned({length, 2}, dtype)).narrow(1, 0, 1);
        spread.copy_(x);
        const Tensor expected = mirrored(on_host);
        gpu().map(op, expected, std::array{spread}, {1.5, 0});
        gpu().map(op, y, std::array{x}, {1.5, 0});
        gpu().copy_to_host(on_host.storage().data(), expected.storage().data(), on_host.storage().bytes());
        CHECK(different(on_host, y) == 0);
      }
}

TEST_CASE("other operations and layouts are left to the general kernel") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor x = Tensor::zeros({8, 8}, {.device = Device::cuda()}), y = Tensor::zeros_like(x);
  CHECK_FALSE(cuda::activate(MapOp::neg, y, x, 0, nullptr));
  CHECK_FALSE(cuda::activate(MapOp::silu, y, x.transpose(0, 1), 0, nullptr));
  CHECK_FALSE(cuda::activate(MapOp::silu, y.flatten().narrow(0, 1, 8), x.flatten().narrow(0, 0, 8), 0, nullptr));
}
