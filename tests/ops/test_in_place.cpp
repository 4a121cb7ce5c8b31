#include <doctest/doctest.h>

#include <cmath>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "tensor/tensor.hpp"

namespace pp = polyphase;
using pp::DType;
using pp::Tensor;
using Floats = std::vector<float>;

TEST_CASE("fill_ writes the elements of a view and no others") {
  Tensor x = Tensor::arange(6).reshape({2, 3});
  Tensor column = x.select(1, 1);
  column.fill_(9);
  CHECK(x.to_vector<float>() == Floats{0, 9, 2, 3, 9, 5});
  x.zero_();
  CHECK(x.to_vector<float>() == Floats(6, 0));
  CHECK(Tensor::zeros({0}).fill_(1).numel() == 0);
}

TEST_CASE("fill_ refuses what an integer cannot hold") {
  Tensor x = Tensor::full({2}, 3, {.dtype = DType::i64});
  for (const double value : {0.5, double{NAN}, 1e30})
    CHECK_THROWS_WITH_AS(x.fill_(value), pp::concat("fill_: expected a value that i64 can hold, got ", value).c_str(),
                         pp::DTypeError);
  CHECK(x.to_vector<std::int64_t>() == std::vector<std::int64_t>{3, 3});
}

TEST_CASE("copy_ broadcasts and converts") {
  Tensor x = Tensor::zeros({2, 3});
  x.copy_(Tensor::from_vector<std::int64_t>({1, 2, 3}));
  CHECK(x.to_vector<float>() == Floats{1, 2, 3, 1, 2, 3});
  x.transpose(0, 1).copy_(Tensor::arange(0, 6, 1, {.dtype = DType::f16}).reshape({3, 2}));
  CHECK(x.to_vector<float>() == Floats{0, 2, 4, 1, 3, 5});
  x.copy_(x);
  x.copy_(Tensor::full({}, 7, {.dtype = DType::f64}));
  CHECK(x.to_vector<float>() == Floats(6, 7));
}

TEST_CASE("copy_ within one storage reads before it writes") {
  Tensor x = Tensor::arange(9).reshape({3, 3});
  x.copy_(x.transpose(0, 1));
  CHECK(x.to_vector<float>() == Floats{0, 3, 6, 1, 4, 7, 2, 5, 8});
  Tensor row = Tensor::arange(5);
  row.slice(0, 1, 5).copy_(row.slice(0, 0, 4));
  CHECK(row.to_vector<float>() == Floats{0, 0, 1, 2, 3});
  // Larger than the block that is read at a time.
  Tensor square = Tensor::arange(2500, {.dtype = DType::i64}).reshape({50, 50});
  const Tensor turned = square.transpose(0, 1).clone();
  square.copy_(square.transpose(0, 1));
  CHECK(square.to_vector<std::int64_t>() == turned.to_vector<std::int64_t>());
}

TEST_CASE("copy_ refuses what does not fit, and leaves the tensor as it was") {
  Tensor x = Tensor::ones({2, 3});
  CHECK_THROWS_WITH_AS(x.copy_(Tensor::zeros({2})), "copy_: expected shapes that broadcast together, got (2, 3) and (2,)",
                       pp::ShapeError);
  CHECK_THROWS_WITH_AS(x.copy_(Tensor::zeros({4, 2, 3})), "copy_: expected a source that broadcasts to (2, 3), got (4, 2, 3)",
                       pp::ShapeError);
  CHECK_THROWS_WITH_AS(x.copy_(Tensor()), "copy_: the source is undefined", pp::Error);
  Tensor stretched = Tensor::ones({1, 3}).expand({2, 3});
  CHECK_THROWS_WITH_AS(stretched.copy_(x),
                       "copy_: expected a destination whose elements are distinct, got shape (2, 3) with strides (0, 1)",
                       pp::ShapeError);
  stretched = Tensor::ones({2, 1}).expand({2, 3});
  CHECK_THROWS_AS(stretched.copy_(x), pp::ShapeError);
  CHECK(x.to_vector<float>() == Floats(6, 1));
}

TEST_CASE("what the tape follows is not written to while it records") {
  Tensor x = Tensor::ones({2}, {.requires_grad = true});
  CHECK_THROWS_WITH_AS(x.fill_(2),
                       "fill_: the tensor requires grad and in-place writes are not recorded; use a NoGradGuard or detach()",
                       pp::AutogradError);
  CHECK_THROWS_AS(x.copy_(Tensor::zeros({2})), pp::AutogradError);
  CHECK_THROWS_AS(x.select(0, 1).zero_(), pp::AutogradError);
  CHECK(x.to_vector<float>() == Floats{1, 1});
  {
    const pp::NoGradGuard guard;
    x.fill_(3);
  }
  x.detach().select(0, 0).fill_(4);
  CHECK(x.to_vector<float>() == Floats{4, 3});
}

TEST_CASE("backward notices that a saved tensor was written") {
  Tensor x = Tensor::ones({2}, {.requires_grad = true});
  const std::uint64_t before = x.storage().version();
  Tensor loss = pp::sum(pp::square(x));
  x.detach().fill_(5);
  CHECK(x.storage().version() == before + 1);
  CHECK_THROWS_AS(loss.backward(), pp::AutogradError);
}

TEST_CASE("copy_ refuses to lose a gradient") {
  Tensor x = Tensor::ones({2});
  const Tensor source = Tensor::zeros({2}, {.requires_grad = true});
  CHECK_THROWS_WITH_AS(x.copy_(source),
                       "copy_: the source requires grad and in-place writes are not recorded; use a NoGradGuard or detach()",
                       pp::AutogradError);
  CHECK(x.to_vector<float>() == Floats{1, 1});
  x.copy_(source.detach());
  CHECK(x.to_vector<float>() == Floats{0, 0});
  const pp::NoGradGuard guard;
  x.copy_(source + 1.0);
  CHECK(x.to_vector<float>() == Floats{1, 1});
}

namespace {

std::vector<double> values(const Tensor& x) { return x.detach().to(DType::f64).to_vector<double>(); }

/// Calls `check` for the four operators, in place and not.
template <class Right, class Check>
void for_each_operator(const Right& b, const Check& check) {
  check([&](Tensor& a) { a += b; }, [&](const Tensor& a) { return a + b; });
  check([&](Tensor& a) { a -= b; }, [&](const Tensor& a) { return a - b; });
  check([&](Tensor& a) { a *= b; }, [&](const Tensor& a) { return a * b; });
  check([&](Tensor& a) { a /= b; }, [&](const Tensor& a) { return a / b; });
}

template <class Right>
void check_operators(const Tensor& start, const Right& b) {
  for_each_operator(b, [&](const auto& in_place, const auto& apart) {
    Tensor a = start.clone();
    const Tensor handle = a;
    const std::vector<double> expected = values(apart(a));
    const std::uint64_t version = a.storage().version();
    in_place(a);
    CHECK(values(handle) == expected);
    CHECK(a.dtype() == start.dtype());
    CHECK(a.storage().version() == version + 1);
  });
}

}  // namespace

TEST_CASE("+=, -=, *= and /= have the bits of +, -, * and /, in every dtype") {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    CAPTURE(dtype);
    const auto random = [&](const pp::Shape& shape, std::uint64_t seed) {
      return pp::testing::random_f64(shape, seed).to(dtype);
    };
    for (const pp::Shape& shape : {pp::Shape{5, 300}, pp::Shape{5, 1}, pp::Shape{300}, pp::Shape{}})
      check_operators(random({5, 300}, 1), random(shape, 2));
    check_operators(random({5, 300}, 1), random({300, 5}, 2).transpose(0, 1));
    for (const double value : {3.0, 0.1, -7.25, 1e-3}) check_operators(random({5, 300}, 1), value);
    check_operators(random({}, 1), 2.5);
    check_operators(random({}, 1), 3);  // an int
  }
  const Tensor whole = Tensor::arange(-6, 6, 1, {.dtype = DType::i64}).reshape({3, 4});
  check_operators(whole, Tensor::arange(1, 5, 1, {.dtype = DType::i64}));
  check_operators(whole, 3);
  // Not computed through f64.
  Tensor large = Tensor::full({1}, 0x1p62, {.dtype = DType::i64});
  large += 1;
  CHECK(large.item<std::int64_t>() == (std::int64_t{1} << 62) + 1);
}

TEST_CASE("in-place operators write the elements of a view and no others") {
  Tensor x = Tensor::arange(12).reshape({3, 4});
  x.select(1, 1) += 10;
  x.slice(1, 2, 4).slice(0, 0, 3, 2) *= Tensor::from_vector<float>({2, 3});
  CHECK(x.to_vector<float>() == Floats{0, 11, 4, 9, 4, 15, 6, 7, 8, 19, 20, 33});
  x.transpose(0, 1) -= Tensor::from_vector<float>({0, 1, 2});
  CHECK(x.to_vector<float>() == Floats{0, 11, 4, 9, 3, 14, 5, 6, 6, 17, 18, 31});
  x.select(0, 2) /= 2;
  CHECK(x.select(0, 2).to_vector<float>() == Floats{3, 8.5, 9, 15.5});
  Tensor nothing = Tensor::zeros({0, 3});
  nothing += 1;
  nothing /= Tensor::ones({3});
  CHECK(nothing.numel() == 0);
}

TEST_CASE("in-place operators read elements that both sides share before they write") {
  Tensor x = Tensor::arange(1, 5);
  x += x;
  CHECK(x.to_vector<float>() == Floats{2, 4, 6, 8});
  x.slice(0, 1, 4) += x.slice(0, 0, 3);
  CHECK(x.to_vector<float>() == Floats{2, 6, 10, 14});
  x -= x.select(0, 0);
  CHECK(x.to_vector<float>() == Floats{0, 4, 8, 12});
  Tensor square = pp::testing::random_f64({70, 70});
  const Tensor expected = square * square.transpose(0, 1);
  square *= square.transpose(0, 1);
  CHECK(values(square) == values(expected));
}

TEST_CASE("in-place operators refuse operands that do not fit, and leave the tensor unchanged") {
  Tensor x = Tensor::ones({2, 3});
  CHECK_THROWS_WITH_AS(x += Tensor::zeros({2}), "+=: expected shapes that broadcast together, got (2, 3) and (2,)",
                       pp::ShapeError);
  CHECK_THROWS_WITH_AS(x *= Tensor::zeros({4, 2, 3}), "*=: expected a right side that broadcasts to (2, 3), got (4, 2, 3)",
                       pp::ShapeError);
  Tensor row = Tensor::ones({1, 3});
  CHECK_THROWS_WITH_AS(row -= x, "-=: expected a right side that broadcasts to (1, 3), got (2, 3)", pp::ShapeError);
  CHECK_THROWS_WITH_AS(x /= Tensor(), "/=: the right side is undefined", pp::Error);
  CHECK_THROWS_WITH_AS(x += Tensor::ones({3}, {.dtype = DType::f64}), "+=: expected tensors of one dtype, got f32 and f64",
                       pp::DTypeError);
  Tensor here = Tensor::ones({2, 3}, {.device = pp::Device::cpu()});
  CHECK_THROWS_WITH_AS(here += pp::testing::elsewhere({2, 3}, DType::f32),
                       "+=: expected tensors on one device, got cpu and cuda:0", pp::DeviceError);
  Tensor stretched = row.expand({2, 3});
  CHECK_THROWS_WITH_AS(stretched += x,
                       "+=: expected a destination whose elements are distinct, got shape (2, 3) with strides (0, 1)",
                       pp::ShapeError);
  CHECK_THROWS_AS(stretched *= 2, pp::ShapeError);
  CHECK_THROWS_AS(stretched /= 2, pp::ShapeError);
  CHECK(x.to_vector<float>() == Floats(6, 1));
  CHECK(row.to_vector<float>() == Floats(3, 1));
  Tensor whole = Tensor::ones({2}, {.dtype = DType::i64});
  CHECK_THROWS_WITH_AS(whole += 0.5, "+=: expected a value that i64 can hold, got 0.5", pp::DTypeError);
  CHECK_THROWS_WITH_AS(whole -= 0.5, "-=: expected a value that i64 can hold, got 0.5", pp::DTypeError);
  CHECK_THROWS_WITH_AS(whole *= 1e30, "*=: expected a value that i64 can hold, got 1e+30", pp::DTypeError);
  CHECK_THROWS_WITH_AS(whole /= 0.5, "/=: expected a value that i64 can hold, got 0.5", pp::DTypeError);
  CHECK(whole.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 1});
}

TEST_CASE("in-place operators refuse to lose a gradient; under a NoGradGuard they write") {
  Tensor leaf = Tensor::ones({2}, {.requires_grad = true});
  const char* text =
      "+=: the left side requires grad and in-place writes are not recorded; write a = a + b, or use a NoGradGuard or detach()";
  CHECK_THROWS_WITH_AS(leaf += 1, text, pp::AutogradError);
  CHECK_THROWS_WITH_AS(leaf += Tensor::ones({2}), text, pp::AutogradError);
  CHECK_THROWS_AS(leaf /= 2, pp::AutogradError);
  CHECK_THROWS_AS(leaf *= 2, pp::AutogradError);
  Tensor made = leaf * 2.0;
  CHECK_THROWS_WITH_AS(made -= 1,
                       "-=: the left side requires grad and in-place writes are not recorded; write a = a - b, or use a "
                       "NoGradGuard or detach()",
                       pp::AutogradError);
  Tensor total = Tensor::zeros({});
  CHECK_THROWS_WITH_AS(total -= pp::sum(leaf),
                       "-=: the right side requires grad and in-place writes are not recorded; write a = a - b, or use a "
                       "NoGradGuard or detach()",
                       pp::AutogradError);
  total += pp::sum(leaf).detach();
  CHECK(total.item() == 2);
  {
    const pp::NoGradGuard guard;
    leaf -= leaf * 0.25;
    leaf /= 3;
  }
  CHECK(leaf.to_vector<float>() == Floats{0.25, 0.25});
  CHECK(leaf.requires_grad());
  CHECK(leaf.is_leaf());
  Tensor loss = pp::sum(pp::square(leaf));
  leaf.detach() += 1;
  CHECK_THROWS_AS(loss.backward(), pp::AutogradError);  // a saved tensor was changed
}

TEST_CASE("under an AutocastGuard the dtype of the left side stays") {
  const pp::AutocastGuard guard(DType::bf16);
  const Tensor b = pp::testing::random_f64({7}, 2).to(DType::bf16);
  Tensor wide = pp::testing::random_f64({7}, 1).to(DType::f32);
  const std::vector<double> expected = values(wide + b);
  wide += b;
  CHECK(wide.dtype() == DType::f32);
  CHECK(values(wide) == expected);
  Tensor narrow = b.clone();
  const std::vector<double> rounded = values((narrow * wide).to(DType::bf16));
  narrow *= wide;
  CHECK(narrow.dtype() == DType::bf16);
  CHECK(values(narrow) == rounded);
}
