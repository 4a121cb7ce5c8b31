#include "cpu/elementwise/length.hpp"

#include <doctest/doctest.h>

#include "cpu/threads.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64};

// Integers from -8 to 8. They and their sums here are exact in every dtype.
Tensor integers(const Shape& shape, DType dtype, std::uint64_t seed = 1) {
  return uniform_f64(shape, -8, 9, seed).to(DType::i64).to(dtype);
}
Tensor positions(std::int64_t count, std::int64_t bound) {
  return uniform_f64({count}, 0, static_cast<double>(bound), 9).to(DType::i64);
}
double dot(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to(DType::f64).to_vector<double>(), y = b.to(DType::f64).to_vector<double>();
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

}  // namespace

TEST_CASE("gather and scatter_add by their definitions, and adjoint to each other") {
  for (const DType dtype : kTypes)
    for (const auto& size : {std::array<std::int64_t, 3>{1, 7, 20}, {3, 40, 13}, {2, 1, 5}, {4, 3, 0}, {37, 300, 900}}) {
      const std::int64_t R = size[0], I = size[1], J = size[2];
      CAPTURE(dtype);
      CAPTURE(I);
      const Tensor x = integers({R, I}, dtype), index = positions(J, I), y = integers({R, J}, dtype, 2);
      const Tensor out = Tensor::full({R, J}, 7, {.dtype = dtype}), back = Tensor::full({R, I}, 7, {.dtype = dtype});
      cpu::gather(out, x, index);
      cpu::scatter_add(back, y, index);
      const auto from = x.to(DType::f64).to_vector<double>(), got = out.to(DType::f64).to_vector<double>();
      const auto where = index.to_vector<std::int64_t>();
      bool right = true;
      for (std::int64_t i = 0; i < R * J; ++i)
        right = right && got[static_cast<std::size_t>(i)] ==
                             from[static_cast<std::size_t>(i / J * I + where[static_cast<std::size_t>(i % J)])];
      CHECK(right);
      CHECK(dot(out, y) == dot(x, back));
    }
}

TEST_CASE("scatter_add by hand") {
  const Tensor out = Tensor::full({2, 3}, 9);
  cpu::scatter_add(out, Tensor::from_vector<float>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4}),
                   Tensor::from_vector<std::int64_t>({2, 0, 2, 2}));
  CHECK(out.to_vector<float>() == std::vector<float>{2, 0, 8, 6, 0, 20});
}

TEST_CASE("sums of f16 are rounded once") {
  const Tensor out = Tensor::empty({1, 1}, {.dtype = DType::f16});
  cpu::scatter_add(out, Tensor::full({1, 4097}, 1, {.dtype = DType::f16}), Tensor::zeros({4097}, {.dtype = DType::i64}));
  CHECK(out.item() == 4096);  // in f16, 2048 + 1 is 2048: a sum in f16 would stop there
  const Tensor folded = Tensor::empty({1, 1}, {.dtype = DType::bf16});
  cpu::fold(folded, Tensor::full({1, 1, 1}, 3, {.dtype = DType::bf16}), 1);
  CHECK(folded.item() == 3);
}

TEST_CASE("fold by its definition, and adjoint to unfold") {
  for (const DType dtype : kTypes)
    for (const auto& size : {std::array<std::int64_t, 4>{2, 20, 5, 2},
                             {1, 3000, 256, 64},
                             {3, 17, 4, 4},
                             {2, 30, 3, 7},
                             {1, 1025, 1025, 1},
                             {2, 600, 1, 1}}) {
      const std::int64_t R = size[0], L = size[1], W = size[2], step = size[3];
      CAPTURE(dtype);
      CAPTURE(L);
      const Tensor x = integers({R, L}, dtype);
      const Tensor frames = integers(x.unfold(W, step).shape(), dtype, 2);
      const Tensor out = Tensor::full({R, L}, 7, {.dtype = dtype});
      cpu::fold(out, frames, step);
      const auto from = frames.to(DType::f64).to_vector<double>();
      std::vector<double> want(static_cast<std::size_t>(R * L), 0);
      const std::int64_t F = frames.size(1);
      for (std::int64_t i = 0; i < frames.numel(); ++i)
        want[static_cast<std::size_t>(i / (F * W) * L + i / W % F * step + i % W)] += from[static_cast<std::size_t>(i)];
      CHECK(out.to(DType::f64).to_vector<double>() == want);
      CHECK(dot(x.unfold(W, step), frames) == dot(x, out));
    }
}

TEST_CASE("the thread count does not change a bit") {
  const Tensor frames = random_f64({2, 200, 1024}).to(DType::f32), index = positions(5000, 3000);
  const Tensor y = random_f64({31, 5000}).to(DType::f32);
  const int before = num_threads();
  std::vector<float> folded, scattered;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    const Tensor a = Tensor::empty({2, 199 * 256 + 1024}), b = Tensor::empty({31, 3000});
    cpu::fold(a, frames, 256);
    cpu::scatter_add(b, y, index);
    if (threads == 1) folded = a.to_vector<float>(), scattered = b.to_vector<float>();
    CHECK(a.to_vector<float>() == folded);
    CHECK(b.to_vector<float>() == scattered);
  }
  set_num_threads(before);
}

TEST_CASE("positions outside are refused with the first of them") {
  const Tensor index = Tensor::from_vector<std::int64_t>({0, 3, 5, -2});
  cpu::check_index(index.slice(0, 0, 3), 6);
  CHECK(error_of<ShapeError>([&] { return cpu::check_index(index, 5), 0; }) ==
        "index_select: expected positions in [0, 5), got 5");
  CHECK(error_of<ShapeError>([&] { return cpu::check_index(index.slice(0, 3, 4), 5), 0; }) ==
        "index_select: expected positions in [0, 5), got -2");
}
