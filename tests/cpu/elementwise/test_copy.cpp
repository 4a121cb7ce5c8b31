#include "cpu/elementwise/copy.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/threads.hpp"
#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64};
using Doubles = std::vector<double>;
using Ints = std::vector<std::int64_t>;

Tensor copied(const Tensor& in, DType dtype) {
  Tensor out = Tensor::full(in.shape(), 7, {.dtype = dtype});
  cpu::copy(out, in);
  return out;
}

// The elements in row-major order, read one by one without a copy. Small integers.
Doubles elements(const Tensor& t) {
  Doubles values;
  const Shape walk = contiguous_strides(t.shape());
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    std::int64_t offset = 0;
    for (int d = 0; d < t.rank(); ++d) offset += i / walk[d] % t.shape()[d] * t.strides()[d];
    dispatch(t.dtype(), [&](auto element) {
      using T = decltype(element);
      if constexpr (std::is_same_v<T, std::int64_t>) {
        values.push_back(static_cast<double>(t.data<T>()[offset]));
      } else {
        values.push_back(static_cast<double>(static_cast<float>(t.data<T>()[offset])));
      }
    });
  }
  return values;
}

Tensor counting(const Shape& shape, DType dtype) {
  Tensor t = Tensor::empty(shape, {.dtype = DType::i64});
  for (std::int64_t i = 0; i < t.numel(); ++i) t.data<std::int64_t>()[i] = i % 251 - 100;
  return copied(t, dtype);
}

}  // namespace

TEST_CASE("every dtype to every other, in every layout") {
  for (const DType from : kTypes)
    for (const DType to : kTypes) {
      CAPTURE(from);
      CAPTURE(to);
      for (const Tensor& in : {counting({3, 5, 70}, from), counting({70, 5, 3}, from).transpose(0, 2),
                               counting({3, 5, 141}, from).slice(2, 1, 141, 2), counting({5, 1}, from).expand({3, 5, 70})}) {
        CHECK(elements(copied(in, to)) == elements(in));
        const Tensor out = Tensor::full({70, 5, 6}, 7, {.dtype = to}).slice(2, 0, 6, 2).transpose(0, 2);
        cpu::copy(out, in);
        CHECK(elements(out) == elements(in));
      }
    }
}

TEST_CASE("transpositions by tiles, whole and cut") {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16})
    for (const Shape& shape :
         {Shape{64, 32}, Shape{70, 133}, Shape{4, 4}, Shape{3, 200}, Shape{2, 33, 65}, Shape{2, 5, 33, 34}})
      for (int d = 1; d < shape.rank(); ++d) {
        const Tensor in = counting(shape, dtype).transpose(d - 1, d);
        CAPTURE(in.strides());
        CHECK(elements(copied(in, dtype)) == elements(in));
      }
}

TEST_CASE("the thread count does not matter") {
  const int before = num_threads();
  for (const Tensor& in : {counting({301, 1009}, DType::f32), counting({1009, 301}, DType::f32).transpose(0, 1)})
    for (const int threads : {1, 2, 3}) {
      set_num_threads(threads);
      CHECK(elements(copied(in, DType::f32)) == elements(in));
      CHECK(elements(copied(in, DType::bf16)) == elements(in));
    }
  set_num_threads(before);
}

TEST_CASE("f64 to f16 is rounded once") {
  // Just above the midpoint of two f16 numbers. Rounded to f32 first it would become the midpoint, then the even neighbour
  // below.
  const double above = 1 + 0x1p-11 + 0x1p-40, below = 1 + 3 * 0x1p-11 - 0x1p-40;
  CHECK(copied(Tensor::from_vector<double>({above, below, -above}), DType::f16).to(DType::f64).to_vector<double>() ==
        Doubles{1 + 0x1p-10, 1 + 0x1p-10, -1 - 0x1p-10});
  CHECK(copied(Tensor::from_vector<double>({1 + 0x1p-8 + 0x1p-40}), DType::bf16).item() == 1 + 0x1p-7);
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(copied(Tensor::from_vector<double>({1e300, -infinity, 1e-300}), DType::f16).to(DType::f64).to_vector<double>() ==
        Doubles{infinity, -infinity, 0});
  CHECK(std::isnan(copied(Tensor::from_vector<double>({std::nan("")}), DType::f16).item()));
}

TEST_CASE("to integers: truncated and kept in range") {
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(copied(Tensor::from_vector<double>({2.9, -2.9, infinity, -1e30, std::nan("")}), DType::i64).to_vector<std::int64_t>() ==
        Ints{2, -2, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min(), 0});
  CHECK(copied(Tensor::from_vector<double>({0x1.8p62, -0x1p63}), DType::i64).to_vector<std::int64_t>() ==
        Ints{std::int64_t{3} << 61, std::numeric_limits<std::int64_t>::min()});
}

TEST_CASE("fill") {
  for (const DType dtype : kTypes) {
    Tensor t = counting({4, 6}, dtype);
    const Doubles before = elements(t.slice(1, 1, 6, 2));
    cpu::fill(t.slice(1, 0, 6, 2).transpose(0, 1), 3);
    CHECK(elements(t.slice(1, 0, 6, 2)) == Doubles(12, 3));
    CHECK(elements(t.slice(1, 1, 6, 2)) == before);
  }
  cpu::fill(Tensor::empty({0, 3}), 1);
  Tensor large = Tensor::empty({100001});
  cpu::fill(large, -1.5);
  CHECK(elements(large) == Doubles(100001, -1.5));
}

TEST_CASE("arange: computed in f64, rounded once") {
  const Tensor out = Tensor::empty({5000}, {.dtype = DType::f32, .device = Device::cpu()});
  cpu::arange(out, -1.5, 0.1);
  for (std::int64_t i = 0; i < 5000; ++i)
    REQUIRE(out.data<float>()[i] == static_cast<float>(-1.5 + static_cast<double>(i) * 0.1));
  const Tensor half = Tensor::empty({4}, {.dtype = DType::f16, .device = Device::cpu()});
  cpu::arange(half, 2048, 1);
  CHECK(half.to(DType::f64).to_vector<double>() == std::vector<double>{2048, 2048, 2050, 2052});
  const Tensor integers = Tensor::empty({3}, {.dtype = DType::i64, .device = Device::cpu()});
  cpu::arange(integers, 5, -4);
  CHECK(integers.to_vector<std::int64_t>() == std::vector<std::int64_t>{5, 1, -3});
}
