#include "cuda/length/length.hpp"

#include <doctest/doctest.h>

#include "support/device.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

// An index of J positions below I: random, all the same, ascending or descending.
Tensor index_of(std::int64_t J, std::int64_t I, int kind) {
  Generator generator(3);
  std::vector<std::int64_t> values;
  for (std::int64_t j = 0; j < J; ++j)
    values.push_back(kind == 0 ? generator.integer(I) : kind == 1 ? I - 1 : kind == 2 ? j * I / J : I - 1 - j * I / J);
  return Tensor::from_vector(values, {J}, Device::cpu());
}

}  // namespace

TEST_CASE("gather and scatter_add give the host's bits, for every index") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : kAllTypes)
    for (const std::int64_t rows : {1, 3, 65})
      for (const std::int64_t I : {1, 2, 33, 1000})
        for (const std::int64_t J : {1, 7, 300, 2049})
          for (int kind = 0; kind < 4; ++kind) {
            CAPTURE(dtype);
            CAPTURE(I);
            CAPTURE(J);
            CAPTURE(kind);
            const Tensor index = index_of(J, I, kind), device_index = mirrored(index);
            const Tensor x = random_f64({rows, I}).to(dtype), g = random_f64({rows, J}, 2).to(dtype);
            const Tensor out = poisoned({rows, J}, dtype), device_out = mirrored(out);
            host().gather(out, x, index);
            gpu().gather(device_out, mirrored(x), device_index);
            CHECK(different(out, device_out) == 0);
            const Tensor back = poisoned({rows, I}, dtype), device_back = mirrored(back);
            host().scatter_add(back, g, index);
            gpu().scatter_add(device_back, mirrored(g), device_index);
            CHECK(different(back, device_back) == 0);
          }
}

TEST_CASE("scattering nothing leaves zeros") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor out = mirrored(poisoned({2, 5}, DType::f32));
  gpu().scatter_add(out, Tensor::empty({2, 0}, {.device = Device::cuda()}),
                    Tensor::empty({0}, {.dtype = DType::i64, .device = Device::cuda()}));
  CHECK(out.to_vector<float>() == std::vector<float>(10, 0));
}

TEST_CASE("fold gives the host's bits for every overlap, and zeros in the gaps") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : kAllTypes)
    for (const std::int64_t frames : {1, 2, 9, 200})
      for (const std::int64_t size : {1, 4, 33})
        for (const std::int64_t step : {1, 3, 4, 40})
          for (const std::int64_t rest : {0, 5}) {
            CAPTURE(dtype);
            CAPTURE(frames);
            CAPTURE(size);
            CAPTURE(step);
            const Tensor in = random_f64({3, frames, size}).to(dtype);
            const Tensor out = poisoned({3, (frames - 1) * step + size + rest}, dtype), device = mirrored(out);
            host().fold(out, in, step);
            gpu().fold(device, mirrored(in), step);
            CHECK(different(out, device) == 0);
          }
}
