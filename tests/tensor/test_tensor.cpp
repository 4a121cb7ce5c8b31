#include "tensor/tensor.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "device/backend.hpp"
#include "tensor/random.hpp"

namespace pp = polyphase;
using pp::DType;
using pp::Shape;
using pp::Tensor;

namespace {

constexpr std::array kAllTypes = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64};

std::vector<double> values_of(const Tensor& tensor) { return tensor.to(DType::f64).to_vector<double>(); }

}  // namespace

TEST_CASE("an undefined tensor can only be asked whether it is defined") {
  const Tensor tensor;
  CHECK_FALSE(tensor.defined());
  CHECK_THROWS_WITH_AS((void)tensor.shape(), "tensor: the tensor is undefined", pp::Error);
  CHECK(tensor.is_same(Tensor()));
}

TEST_CASE("factories, in every dtype") {
  for (const DType dtype : kAllTypes) {
    CAPTURE(pp::name_of(dtype));
    const Tensor zeros = Tensor::zeros({2, 3}, {.dtype = dtype});
    CHECK(zeros.dtype() == dtype);
    CHECK(zeros.shape() == Shape{2, 3});
    CHECK(zeros.strides() == Shape{3, 1});
    CHECK(values_of(zeros) == std::vector<double>(6, 0));
    CHECK(values_of(Tensor::ones({3}, {.dtype = dtype})) == std::vector<double>(3, 1));
    CHECK(values_of(Tensor::full({2}, -7, {.dtype = dtype})) == std::vector<double>(2, -7));
    CHECK(values_of(Tensor::arange(2, 11, 3, {.dtype = dtype})) == std::vector<double>{2, 5, 8});
    const Tensor like = Tensor::zeros_like(Tensor::ones({4, 1}, {.dtype = dtype}));
    CHECK(like.dtype() == dtype);
    CHECK(like.shape() == Shape{4, 1});
  }
  CHECK(values_of(Tensor::full({}, 2.5)) == std::vector<double>{2.5});
  CHECK(values_of(Tensor::ones_like(Tensor::zeros({2}))) == std::vector<double>{1, 1});
}

TEST_CASE("arange") {
  CHECK(Tensor::arange(4).to_vector<float>() == std::vector<float>{0, 1, 2, 3});
  CHECK(Tensor::arange(1, 2, 0.25, {.dtype = DType::f64}).to_vector<double>() == std::vector<double>{1, 1.25, 1.5, 1.75});
  CHECK(Tensor::arange(3, 0, -1).to_vector<float>() == std::vector<float>{3, 2, 1});
  CHECK(Tensor::arange(0, 7, 3).to_vector<float>() == std::vector<float>{0, 3, 6});  // the last step is shorter
  CHECK(Tensor::arange(3, 0).numel() == 0);
  CHECK_THROWS_WITH_AS((void)Tensor::arange(0, 1, 0),
                       "arange: expected finite bounds and a step other than 0, got start 0, end 1, step 0", pp::ShapeError);
  CHECK_THROWS_AS((void)Tensor::arange(0, std::numeric_limits<double>::infinity()), pp::ShapeError);
  CHECK_THROWS_AS((void)Tensor::arange(std::nan(""), 1), pp::ShapeError);
  CHECK_THROWS_WITH_AS((void)Tensor::arange(0, 4, 0.5, {.dtype = DType::i64}),
                       "arange: expected a value that i64 can hold, got 0.5", pp::DTypeError);
}

TEST_CASE("from_vector and back") {
  const std::vector<std::int64_t> integers = {1, std::numeric_limits<std::int64_t>::max(), -3};
  CHECK(Tensor::from_vector(integers).to_vector<std::int64_t>() == integers);
  const Tensor tensor = Tensor::from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(tensor.shape() == Shape{2, 3});
  CHECK(tensor.transpose(0, 1).to_vector<float>() == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK_THROWS_WITH_AS((void)Tensor::from_vector<float>({1, 2, 3}, {2, 2}),
                       "from_vector: expected 4 values for shape (2, 2), got 3", pp::ShapeError);
  CHECK_THROWS_WITH_AS((void)tensor.to_vector<double>(), "to_vector: expected f64, the tensor is f32", pp::DTypeError);
  CHECK_THROWS_WITH_AS((void)tensor.data<pp::Half>(), "data: expected f16, the tensor is f32", pp::DTypeError);
}

TEST_CASE("empty tensors and impossible ones") {
  const Tensor empty = Tensor::zeros({2, 0, 3});
  CHECK(empty.numel() == 0);
  CHECK(empty.is_contiguous());
  CHECK(empty.to_vector<float>().empty());
  const Tensor row = Tensor::zeros({2, 3, 0}).select(1, 2);  // a view that begins after the first of no elements
  CHECK(row.raw() == nullptr);
  CHECK(row.to_vector<float>().empty());
  CHECK(Tensor::randn({0}).numel() == 0);
  CHECK_THROWS_WITH_AS((void)Tensor::zeros({2, -1}), "shape: expected sizes of at least 0, got (2, -1)", pp::ShapeError);
  CHECK_THROWS_WITH_AS((void)Tensor::empty({std::int64_t{1} << 62}),
                       "empty: the bytes of (4611686018427387904,) f32 do not fit 64 bits", pp::ShapeError);
  CHECK_THROWS_WITH_AS((void)Tensor::empty({std::int64_t{1} << 50}), doctest::Contains("asked 4503599627370496 bytes"),
                       pp::OutOfMemory);
  CHECK_THROWS_WITH_AS((void)Tensor::full({2}, 0.5, {.dtype = DType::i64}), "full: expected a value that i64 can hold, got 0.5",
                       pp::DTypeError);
}

TEST_CASE("random factories follow the generator") {
  pp::Generator generator(7);
  const Tensor first = Tensor::randn({5, 3}, {}, &generator);
  CHECK(generator.state().offset == 4);  // 15 words in blocks of 4
  const Tensor second = Tensor::randn({5, 3}, {}, &generator);
  CHECK(first.to_vector<float>() != second.to_vector<float>());
  generator.seed(7);
  CHECK(Tensor::randn({5, 3}, {}, &generator).to_vector<float>() == first.to_vector<float>());
  {
    pp::Generator other(7);
    const pp::GeneratorGuard guard(other);
    CHECK(Tensor::randn({5, 3}).to_vector<float>() == first.to_vector<float>());
  }
  generator.seed(7);
  CHECK(values_of(Tensor::randn({5, 3}, {.dtype = DType::bf16}, &generator)) == values_of(first.to(DType::bf16)));
  generator.seed(7);
  (void)Tensor::rand({3}, {.dtype = DType::f64}, &generator);
  CHECK(generator.state().offset == 2);  // two words each
  CHECK_THROWS_WITH_AS((void)Tensor::randn({2}, {.dtype = DType::i64}), "randn: expected a floating-point dtype, got i64",
                       pp::DTypeError);
  CHECK_THROWS_WITH_AS((void)Tensor::uniform({2}, 1, 0), "uniform: expected finite bounds with low <= high, got [1, 0)",
                       pp::ShapeError);
}

TEST_CASE("random values are distributed as named") {
  pp::Generator generator(1);
  for (const DType dtype : {DType::f32, DType::f64}) {
    double sum = 0;
    double squares = 0;
    const int count = 100000;
    for (const double v : values_of(Tensor::randn({count}, {.dtype = dtype}, &generator))) {
      sum += v;
      squares += v * v;
    }
    CHECK(std::abs(sum / count) < 5 / std::sqrt(count));
    CHECK(std::abs(squares / count - 1) < 5 * std::sqrt(2.0 / count));
    double low = 1e9;
    double high = -1e9;
    sum = 0;
    for (const double v : values_of(Tensor::uniform({count}, -2, 6, {.dtype = dtype}, &generator))) {
      low = std::min(low, v);
      high = std::max(high, v);
      sum += v;
    }
    CHECK(low >= -2);
    CHECK(low < -1.99);
    CHECK(high < 6);
    CHECK(high > 5.99);
    CHECK(std::abs(sum / count - 2) < 5 * 8 / std::sqrt(12.0 * count));
  }
}

TEST_CASE("uniform numbers stay below `high` as their dtype has it, and are `low` where that is the same number") {
  using Bounds = std::pair<double, double>;
  const std::vector<Bounds> all{{0, 1}, {1, 2}, {-1, 0}, {-2, -1}, {1, 1 + 1e-12}, {0.1, 0.7}, {2, 2}, {-1, 1e-3}};
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    CAPTURE(pp::name_of(dtype));
    for (const Bounds& bounds : all) {
      const double from = bounds.first, to = bounds.second;
      CAPTURE(to);
      const double low = Tensor::full({}, from, {.dtype = dtype}).item(), high = Tensor::full({}, to, {.dtype = dtype}).item();
      pp::Generator generator(1);
      const std::vector<double> drawn = values_of(Tensor::uniform({20000}, from, to, {.dtype = dtype}, &generator));
      const auto [least, most] = std::minmax_element(drawn.begin(), drawn.end());
      CHECK(*least >= low);
      CHECK((low < high ? *most < high : *most == low));
    }
  }
}

TEST_CASE("item") {
  CHECK(Tensor::full({1, 1}, 2.5).item<float>() == 2.5f);
  CHECK(Tensor::from_vector<float>({1, 2, 3}).select(0, 1).item() == 2.0);
  CHECK(Tensor::full({}, 3, {.dtype = DType::i64}).item<int>() == 3);
  CHECK(Tensor::from_vector<std::int64_t>({9007199254740993}).item<std::int64_t>() == 9007199254740993);  // 2^53 + 1
  CHECK(Tensor::from_vector<std::int64_t>({-9007199254740993}).item<long long>() == -9007199254740993);
  CHECK(Tensor::full({}, 0.5).item<bool>());
  CHECK(Tensor::full({}, 1e19).item<std::uint64_t>() == static_cast<std::uint64_t>(1e19f));
  CHECK(Tensor::full({}, 0.5, {.dtype = DType::f16}).item() == 0.5);
  CHECK(Tensor::full({}, -0.5, {.dtype = DType::bf16}).item() == -0.5);
  CHECK_THROWS_WITH_AS((void)Tensor::zeros({2, 3}).item(), "item: expected a tensor of one element, got shape (2, 3)",
                       pp::ShapeError);
}

TEST_CASE("sizes and strides by dimension") {
  const Tensor tensor = Tensor::zeros({4, 5, 6});
  CHECK(tensor.size(0) == 4);
  CHECK(tensor.size(-1) == 6);
  CHECK(tensor.stride(-2) == 6);
  CHECK(tensor.rank() == 3);
  CHECK_THROWS_WITH_AS((void)tensor.size(3), "size: expected a dimension in [-3, 3), got 3", pp::ShapeError);
}

TEST_CASE("contiguity") {
  const Tensor tensor = Tensor::zeros({2, 3, 4});
  CHECK(tensor.is_contiguous());
  CHECK_FALSE(tensor.transpose(0, 1).is_contiguous());
  CHECK_FALSE(tensor.slice(2, 0, 4, 2).is_contiguous());
  CHECK(tensor.slice(0, 1, 2).is_contiguous());
  CHECK(Tensor::zeros({2, 1, 3}).transpose(0, 1).is_contiguous());  // the stride of a dimension of size 1 does not count
  CHECK_FALSE(Tensor::zeros({1, 3}).expand({2, 3}).is_contiguous());
  CHECK(Tensor::zeros({}).is_contiguous());
}

TEST_CASE("over: a tensor over existing memory, checked") {
  std::array<float, 6> memory = {0, 1, 2, 3, 4, 5};
  const pp::Storage storage(memory.data(), sizeof memory, pp::Device::cpu(), {});
  const Tensor tensor = Tensor::over(storage, {2, 2}, {3, 1}, 1, DType::f32);
  CHECK(tensor.to_vector<float>() == std::vector<float>{1, 2, 4, 5});
  CHECK(tensor.data<float>() == memory.data() + 1);
  CHECK(Tensor::over(storage, {4, 2}, {0, 1}, 4, DType::f32).to_vector<float>() == std::vector<float>{4, 5, 4, 5, 4, 5, 4, 5});
  CHECK(Tensor::over(storage, {0, 9}, {9, 1}, 6, DType::f32).numel() == 0);
  CHECK_THROWS_WITH_AS((void)Tensor::over(storage, {2, 2}, {3, 1}, 2, DType::f32),
                       "over: shape (2, 2) with strides (3, 1) at offset 2 reaches outside of 6 elements of f32",
                       pp::ShapeError);
  CHECK_THROWS_AS((void)Tensor::over(storage, {4}, {1}, 0, DType::f64), pp::ShapeError);
  CHECK_THROWS_AS((void)Tensor::over(storage, {1}, {1}, -1, DType::f32), pp::ShapeError);
  CHECK_THROWS_AS((void)Tensor::over(storage, {3}, {std::int64_t{1} << 62}, 0, DType::f32), pp::ShapeError);
  CHECK_THROWS_WITH_AS((void)Tensor::over(storage, {3}, {-1}, 2, DType::f32), "over: expected strides of at least 0, got (-1,)",
                       pp::ShapeError);
  CHECK_THROWS_WITH_AS((void)Tensor::over(storage, {3}, {}, 0, DType::f32),
                       "over: expected as many strides as sizes, got shape (3,) and strides ()", pp::ShapeError);
}

TEST_CASE("copies of a tensor are handles on the same elements") {
  Tensor first = Tensor::zeros({2});
  const Tensor second = first;
  first.fill_(3);
  CHECK(second.to_vector<float>() == std::vector<float>{3, 3});
  CHECK(second.is_same(first));
  CHECK_FALSE(first.clone().is_same(first));
}
