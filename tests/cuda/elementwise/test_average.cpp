#include "cuda/elementwise/average.hpp"

#include <doctest/doctest.h>

#include "support/device.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("sums, quotients and activations have the bits of the host's steps, at every alignment") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const std::int64_t count : {1, 2, 3, 4, 5})
      for (const std::int64_t L : {1, 1023, 5000})
        for (const std::int64_t misalignment : {0, 1})
          for (const Activation activation : {Activation::none, Activation::relu, Activation::leaky_relu}) {
            CAPTURE(dtype);
            CAPTURE(count);
            CAPTURE(L);
            std::vector<Tensor> parts, device_parts;
            for (std::int64_t i = 0; i < count; ++i) {
              const Tensor part = random_f64({3, L}, static_cast<std::uint64_t>(i)).to(dtype);
              parts.push_back(part), device_parts.push_back(mirrored(part));
            }
            const Tensor out = poisoned({3, L}, dtype, misalignment), device_out = mirrored(out);
            host().average_of(out, parts, static_cast<double>(count), activation, 0.1);
            gpu().average_of(device_out, device_parts, static_cast<double>(count), activation, 0.1);
            CHECK(different(out, device_out) == 0);
          }
}
