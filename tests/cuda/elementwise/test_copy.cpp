#include "cuda/elementwise/copy.hpp"

#include <doctest/doctest.h>

#include <functional>

#include "cuda/runtime/runtime.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

// Copies on the host and on the GPU, from and to the same layouts, and counts the differences.
std::int64_t copy_differs(const Tensor& in, const Tensor& out) {
  const Tensor gpu_in = mirrored(in), gpu_out = mirrored(out);
  host().copy(out, in);
  gpu().copy(gpu_out, gpu_in);
  return different(out, gpu_out);
}

std::vector<Tensor> layouts(DType dtype) {
  return {counting({3, 5, 70}, dtype),
          counting({3, 5, 71}, dtype).slice(2, 1, 71),
          counting({70, 5, 3}, dtype).transpose(0, 2),
          counting({3, 5, 141}, dtype).slice(2, 1, 141, 2),
          counting({5, 1}, dtype).expand({3, 5, 70}),
          counting({}, dtype).expand({3, 5, 70}),
          counting({3, 70, 5}, dtype).transpose(1, 2),
          counting({5, 70, 3}, dtype).permute({2, 0, 1})};
}

}  // namespace

TEST_CASE("every dtype to every other, from every layout to every layout, and nothing around it is written") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType from : kAllTypes)
    for (const DType to : kAllTypes)
      for (const Tensor& in : layouts(from)) {
        CAPTURE(from);
        CAPTURE(to);
        CAPTURE(in.strides());
        CHECK(copy_differs(in, poisoned({3, 5, 70}, to)) == 0);
        CHECK(copy_differs(in, poisoned({3, 5, 70}, to, 1)) == 0);
        CHECK(copy_differs(in, poisoned({3, 5, 80}, to).slice(2, 5, 75)) == 0);
        CHECK(copy_differs(in, poisoned({70, 5, 3}, to).transpose(0, 2)) == 0);
      }
}

TEST_CASE("transpositions around the tile's edges") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : {DType::f16, DType::f32, DType::f64})
    for (const std::int64_t rows : {1, 15, 16, 31, 32, 33, 65, 200})
      for (const std::int64_t columns : {1, 16, 31, 32, 33, 97}) {
        CAPTURE(rows);
        CAPTURE(columns);
        CHECK(copy_differs(counting({3, rows, columns}, dtype).transpose(1, 2), poisoned({3, columns, rows}, dtype)) == 0);
        CHECK(copy_differs(counting({rows, 2, columns}, dtype).transpose(0, 2), poisoned({columns, 2, rows}, dtype)) == 0);
      }
}

TEST_CASE("conversions round once and saturate as on the host") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> values = {0.0,
                                -0.0,
                                1e-45,
                                6e-8,
                                2.98e-8,
                                65504,
                                65519.999,
                                65520,
                                1e39,
                                -1e39,
                                infinity,
                                -infinity,
                                NAN,
                                9.3e18,
                                -9.3e18,
                                0x1p63,
                                2.5,
                                -2.5,
                                1 + 0x1p-11,
                                1 + 0x1p-11 + 0x1p-40,
                                1 + 0x1p-8 + 0x1p-40,
                                1 + 0x1p-8,
                                1 - 0x1p-9,
                                3.4028236e38,
                                1e300};
  Generator generator(5);
  for (int i = 0; i < 3000; ++i)
    values.push_back(std::ldexp(generator.uniform() - 0.5, static_cast<int>(generator.integer(80)) - 40));
  const Tensor wide = Tensor::from_vector(values, {static_cast<std::int64_t>(values.size())}, Device::cpu());
  for (const DType from : kAllTypes)
    for (const DType to : kAllTypes) {
      CAPTURE(from);
      CAPTURE(to);
      CHECK(copy_differs(wide.to(from), poisoned(wide.shape(), to)) == 0);
    }
}

TEST_CASE("fill writes the value, in every dtype and layout, and nothing else") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : kAllTypes)
    for (const double value : {0.0, -0.0, 1.0, -2.5, 1e10, 0.1}) {
      const std::function<Tensor(const Tensor&)> views[] = {
          [](const Tensor& t) { return t; }, [](const Tensor& t) { return t.slice(2, 1, 70); },
          [](const Tensor& t) { return t.slice(2, 0, 70, 3); }, [](const Tensor& t) { return t.transpose(0, 2); }};
      for (const auto& view : views) {
        CAPTURE(dtype);
        CAPTURE(value);
        const Tensor out = poisoned_view({3, 5, 70}, dtype, view), device = mirrored(out);
        host().fill(out, value);
        gpu().fill(device, value);
        CHECK(different(out, device) == 0);
      }
    }
}

TEST_CASE("nothing is copied of empty tensors") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor empty = Tensor::empty({3, 0}, {.device = Device::cuda()});
  gpu().copy(empty, empty);
  gpu().fill(empty, 1);
  gpu().copy_to_host(nullptr, nullptr, 0);
  CHECK(empty.cpu().numel() == 0);
}

TEST_CASE("more than 2^31 elements") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  std::size_t free = 0, total = 0;
  CHECK_CUDA(cudaMemGetInfo(&free, &total));
  constexpr std::int64_t kCount = (std::int64_t{1} << 31) + 3;
  if (free < 3 * std::size_t{kCount} * 2) SKIP_TEST("less than 13 GB of device memory free");
  const TensorOptions options{.dtype = DType::bf16, .device = Device::cuda()};
  const Tensor big = Tensor::empty({kCount}, options);
  gpu().fill(big, 1);
  gpu().fill(big.narrow(0, kCount - 1, 1), 3);
  const Tensor other = Tensor::empty({kCount + 1}, options).narrow(0, 1, kCount);
  gpu().copy(other.narrow(0, 0, kCount - 1), big.narrow(0, 1, kCount - 1));  // misaligned: element by element
  CHECK(other.narrow(0, kCount - 3, 2).to(DType::f32).to_vector<float>() == std::vector<float>{1, 3});
  const Tensor out = Tensor::empty({1}, options);
  gpu().reduce(ReduceOp::sum, out, big);
  CHECK(out.item() == 0x1p31);
  gpu().reduce(ReduceOp::max, out, big);
  CHECK(out.item() == 3);
  const std::array<Tensor, 1> inputs{big};
  gpu().map(MapOp::neg, big, inputs, {});
  gpu().reduce(ReduceOp::min, out, big);
  CHECK(out.item() == -3);
}

TEST_CASE("arange gives the host's bits") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : kAllTypes)
    for (const std::int64_t count : {1, 5, 1000, 100003}) {
      CAPTURE(dtype);
      CAPTURE(count);
      const Tensor out = poisoned({count}, dtype), device = mirrored(out);
      const double step = dtype == DType::i64 ? -3 : 0.1;
      host().arange(out, 7, step);
      gpu().arange(device, 7, step);
      CHECK(different(out, device) == 0);
    }
}
