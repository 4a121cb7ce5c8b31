#include <doctest/doctest.h>

#include <array>
#include <limits>

#include "autograd/gradcheck.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "tensor/tensor.hpp"

namespace pp = polyphase;
using pp::DType;
using pp::Tensor;
using Floats = std::vector<float>;

TEST_CASE("contiguous copies only what has gaps") {
  const Tensor x = Tensor::arange(6).reshape({2, 3});
  CHECK(x.contiguous().is_same(x));
  const Tensor turned = x.transpose(0, 1).contiguous();
  CHECK(turned.is_contiguous());
  CHECK_FALSE(turned.storage().shares_with(x.storage()));
  CHECK(turned.to_vector<float>() == Floats{0, 3, 1, 4, 2, 5});
}

TEST_CASE("clone has elements of its own") {
  const Tensor x = Tensor::arange(3);
  Tensor copy = x.clone();
  copy.fill_(7);
  CHECK(x.to_vector<float>() == Floats{0, 1, 2});
  CHECK(x.expand({2, 3}).clone().strides() == pp::Shape{3, 1});
  CHECK(Tensor::zeros({0, 2}).clone().shape() == pp::Shape{0, 2});
}

TEST_CASE("to(dtype), between all pairs, of any strides") {
  constexpr std::array types = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64};
  for (const DType from : types) {
    for (const DType to : types) {
      CAPTURE(pp::name_of(from));
      CAPTURE(pp::name_of(to));
      const Tensor x = Tensor::arange(-40, 40, 1, {.dtype = from}).reshape({8, 10});
      const Tensor converted = x.to(to);
      CHECK(converted.dtype() == to);
      CHECK(converted.is_same(x) == (from == to));
      CHECK(converted.to(DType::i64).to_vector<std::int64_t>() == x.to(DType::i64).to_vector<std::int64_t>());
      const Tensor strided = x.transpose(0, 1).slice(0, 1, 10, 3);
      CHECK(strided.to(to).to(DType::i64).to_vector<std::int64_t>() == strided.to(DType::i64).to_vector<std::int64_t>());
    }
  }
}

TEST_CASE("conversions round to nearest") {
  CHECK(Tensor::from_vector<float>({2049, 2051}).to(DType::f16).to(DType::f32).to_vector<float>() == Floats{2048, 2052});
  CHECK(Tensor::from_vector<float>({257, 259}).to(DType::bf16).to(DType::f32).to_vector<float>() == Floats{256, 260});
  const double fine = 1 + std::numeric_limits<float>::epsilon() * 0.51;
  CHECK(Tensor::from_vector<double>({fine}).to(DType::f32).item<float>() == 1 + std::numeric_limits<float>::epsilon());
  CHECK(Tensor::from_vector<float>({70000}).to(DType::f16).item() == std::numeric_limits<double>::infinity());
}

TEST_CASE("to(device)") {
  const Tensor x = Tensor::arange(6).reshape({2, 3});
  CHECK(x.to(x.device()).is_same(x));
  CHECK(x.cpu().is_same(x) == x.device().is_cpu());
  const pp::Device best = pp::Device::best();
  CHECK(x.transpose(0, 1).to(best).to_vector<float>() == Floats{0, 3, 1, 4, 2, 5});
  CHECK(Tensor::zeros({0, 3}).to(best).shape() == pp::Shape{0, 3});
}

TEST_CASE("gradients pass through copies and come back in the input's dtype") {
  Tensor x = Tensor::randn({3, 4}, {.dtype = DType::f64, .requires_grad = true});
  using Inputs = std::vector<Tensor>;
  CHECK(pp::gradcheck([](const Inputs& in) { return in[0].transpose(0, 1).contiguous(); }, {x}) == "");
  CHECK(pp::gradcheck([](const Inputs& in) { return in[0].clone(); }, {x}) == "");
  Tensor half = Tensor::from_vector<float>({1, 2, 3}).to(DType::f16);
  half.set_requires_grad(true);
  const Tensor weights = Tensor::from_vector<float>({0.5f, 2, 4});
  pp::sum(half.to(DType::f32) * weights).backward();
  CHECK(half.grad().dtype() == DType::f16);
  CHECK(half.grad().to(DType::f32).to_vector<float>() == weights.to_vector<float>());
  CHECK_FALSE(half.to(DType::i64).requires_grad());
}
