#include <doctest/doctest.h>

#include <cmath>

#include "autograd/no_grad.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
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
  // Larger than the block that is read at once.
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
