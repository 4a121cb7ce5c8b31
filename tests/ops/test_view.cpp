#include <doctest/doctest.h>

#include <functional>
#include <limits>

#include "autograd/gradcheck.hpp"
#include "autograd/no_grad.hpp"
#include "ops/reduce.hpp"
#include "tensor/tensor.hpp"

namespace pp = polyphase;
using pp::DType;
using pp::Shape;
using pp::Tensor;
using Floats = std::vector<float>;

namespace {

Tensor range(const Shape& shape) { return Tensor::arange(static_cast<double>(shape.numel())).reshape(shape); }

bool shares(const Tensor& a, const Tensor& b) { return a.storage().shares_with(b.storage()); }

// Compares the tape's gradient of `view` with finite differences; empty if they agree.
std::string check(const Shape& shape, const std::function<Tensor(const Tensor&)>& view) {
  Tensor x = Tensor::randn(shape, {.dtype = DType::f64, .requires_grad = true});
  return pp::gradcheck([&](const std::vector<Tensor>& inputs) { return view(inputs[0]); }, {x});
}

}  // namespace

TEST_CASE("slice follows Python") {
  const Tensor x = range({6});
  CHECK(x.slice(0, 1, 4).to_vector<float>() == Floats{1, 2, 3});
  CHECK(x.slice(0, -2, 6).to_vector<float>() == Floats{4, 5});
  CHECK(x.slice(0, 0, -4).to_vector<float>() == Floats{0, 1});
  CHECK(x.slice(0, -100, 100, 2).to_vector<float>() == Floats{0, 2, 4});
  CHECK(x.slice(0, 1, std::numeric_limits<std::int64_t>::max(), 4).to_vector<float>() == Floats{1, 5});
  CHECK(x.slice(0, 0, 6, std::numeric_limits<std::int64_t>::max()).to_vector<float>() == Floats{0});
  CHECK(x.slice(0, 4, 2).numel() == 0);
  CHECK(x.slice(0, 9, 12).numel() == 0);
  CHECK(range({2, 3}).slice(-1, 1, 3).to_vector<float>() == Floats{1, 2, 4, 5});
  CHECK(shares(x.slice(0, 1, 4), x));
  CHECK_THROWS_WITH_AS((void)x.slice(0, 0, 3, 0), "slice: expected a step of at least 1, got 0", pp::ShapeError);
  CHECK_THROWS_WITH_AS((void)x.slice(1, 0, 3), "slice: expected a dimension in [-1, 1), got 1", pp::ShapeError);
}

TEST_CASE("narrow and select need elements that exist") {
  const Tensor x = range({2, 3});
  CHECK(x.narrow(1, 1, 2).to_vector<float>() == Floats{1, 2, 4, 5});
  CHECK(x.narrow(1, 3, 0).shape() == Shape{2, 0});
  CHECK(x.select(0, 1).to_vector<float>() == Floats{3, 4, 5});
  CHECK(x.select(1, -1).to_vector<float>() == Floats{2, 5});
  CHECK(x.select(1, 0).shape() == Shape{2});
  CHECK_THROWS_WITH_AS((void)x.narrow(1, 2, 2),
                       "narrow: expected a range inside [0, 3) of dimension 1, got start 2 and length 2", pp::ShapeError);
  CHECK_THROWS_AS((void)x.narrow(1, -1, 2), pp::ShapeError);
  CHECK_THROWS_AS((void)x.narrow(1, 1, std::numeric_limits<std::int64_t>::max()), pp::ShapeError);
  CHECK_THROWS_WITH_AS((void)x.select(0, 2), "select: expected an index in [-2, 2) of dimension 0, got 2", pp::ShapeError);
}

TEST_CASE("transpose and permute") {
  const Tensor x = range({2, 3, 4});
  CHECK(x.transpose(0, -1).shape() == Shape{4, 3, 2});
  CHECK(x.transpose(0, -1).strides() == Shape{1, 4, 12});
  CHECK(x.permute({2, 0, 1}).shape() == Shape{4, 2, 3});
  CHECK(x.permute({2, 0, 1}).select(0, 1).to_vector<float>() == Floats{1, 5, 9, 13, 17, 21});
  CHECK(x.permute({-1, 0, -2}).shape() == Shape{4, 2, 3});
  CHECK_THROWS_WITH_AS((void)x.permute({0, 1}), "permute: expected 3 dimensions for shape (2, 3, 4), got 2", pp::ShapeError);
  CHECK_THROWS_WITH_AS((void)x.permute({0, 1, -2}), "permute: expected each dimension once, got 1 twice", pp::ShapeError);
}

TEST_CASE("expand") {
  const Tensor x = range({2, 1});
  CHECK(x.expand({2, 3}).to_vector<float>() == Floats{0, 0, 0, 1, 1, 1});
  CHECK(x.expand({2, 2, -1}).to_vector<float>() == Floats{0, 1, 0, 1});
  CHECK(x.expand({2, 0}).numel() == 0);
  CHECK(Tensor::full({}, 4).expand({3}).to_vector<float>() == Floats{4, 4, 4});
  CHECK(shares(x.expand({2, 3}), x));
  CHECK_THROWS_WITH_AS((void)x.expand({3, 3}), "expand: expected a shape that (2, 1) broadcasts to, got (3, 3)",
                       pp::ShapeError);
  CHECK_THROWS_WITH_AS((void)x.expand({-1, 2, 3}), "expand: expected a shape that (2, 1) broadcasts to, got (-1, 2, 3)",
                       pp::ShapeError);
  CHECK_THROWS_WITH_AS((void)x.expand({2}), "expand: expected at least 2 sizes for shape (2, 1), got (2,)", pp::ShapeError);
}

TEST_CASE("reshape is a view where it can be") {
  const Tensor x = range({2, 3, 4});
  CHECK(x.reshape({4, 6}).strides() == Shape{6, 1});
  CHECK(x.reshape({-1, 2}).shape() == Shape{12, 2});
  CHECK(shares(x.reshape({24}), x));
  const Tensor turned = x.transpose(0, 1);  // (3, 2, 4), strides (4, 12, 1)
  CHECK_FALSE(shares(turned.reshape({24}), x));
  CHECK(turned.reshape({6, 4}).to_vector<float>() == turned.to_vector<float>());
  CHECK(shares(turned.reshape({3, 2, 2, 2}), x));
  CHECK(shares(turned.reshape({3, 1, 2, 4, 1}), x));
  CHECK(turned.reshape({3, 2, 2, 2}).to_vector<float>() == turned.to_vector<float>());
  const Tensor part = x.slice(2, 0, 4, 2);  // (2, 3, 2), strides (12, 4, 2): one run
  CHECK(shares(part.reshape({12}), x));
  CHECK(part.reshape({12}).to_vector<float>() == part.to_vector<float>());
  CHECK(shares(part.reshape({4, 3}), x));
  CHECK(part.reshape({4, 3}).to_vector<float>() == part.to_vector<float>());
  CHECK_FALSE(shares(x.slice(2, 0, 3).reshape({18}), x));
  CHECK(shares(x.slice(2, 0, 3).reshape({6, 3}), x));
  // (2, 4, 1, 3), strides (24, 3, 48, 1): the stride of a dimension of size 1 does not count
  const Tensor thin = range({5, 2, 8, 3}).slice(0, 0, 1).slice(2, 0, 4).permute({1, 2, 0, 3});
  CHECK(shares(thin.reshape({2, 12}), thin));
  CHECK(thin.reshape({2, 12}).to_vector<float>() == thin.to_vector<float>());
  const Tensor stretched = range({3, 1}).expand({3, 4});
  CHECK(stretched.reshape({12}).to_vector<float>() == stretched.to_vector<float>());
  CHECK(Tensor::full({}, 3).reshape({1, 1}).shape() == Shape{1, 1});
  CHECK(Tensor::full({1, 1}, 3).reshape({}).rank() == 0);
  CHECK(Tensor::zeros({0, 3}).reshape({3, 0, 2}).shape() == Shape{3, 0, 2});
}

TEST_CASE("every pair of layouts that reshape calls a view holds the same elements in order") {
  const Tensor base = range({4, 6, 4});
  for (const Tensor& x : {base, base.transpose(0, 1), base.transpose(1, 2), base.slice(1, 0, 6, 2).transpose(0, 2),
                          base.slice(0, 0, 4, 2), base.narrow(0, 1, 1), base.select(1, 2).unsqueeze(1).expand({4, 3, 4}),
                          base.slice(2, 0, 2).permute({2, 0, 1}), base.narrow(1, 2, 1).transpose(0, 2)}) {
    const std::int64_t n = x.numel();
    for (std::int64_t a = 1; a <= n; ++a) {
      for (std::int64_t b = 1; n % a == 0 && b <= n / a; ++b) {
        if (n / a % b != 0) continue;
        CHECK(x.reshape({a, b, n / a / b}).to_vector<float>() == x.to_vector<float>());
      }
    }
  }
}

TEST_CASE("reshape and view refuse with the numbers") {
  const Tensor x = range({2, 3});
  CHECK_THROWS_WITH_AS((void)x.reshape({4, 2}), "reshape: expected a shape of 6 elements like (2, 3), got (4, 2)",
                       pp::ShapeError);
  CHECK_THROWS_WITH_AS((void)x.reshape({-1, -1}), "reshape: expected at most one size of -1, got (-1, -1)", pp::ShapeError);
  CHECK_THROWS_WITH_AS((void)x.reshape({-1, 4}), "reshape: cannot fill in the -1 of (-1, 4) with the 6 elements of (2, 3)",
                       pp::ShapeError);
  CHECK_THROWS_AS((void)Tensor::zeros({0}).reshape({-1, 0}), pp::ShapeError);
  CHECK_THROWS_AS((void)x.reshape({-2, 3}), pp::ShapeError);
  CHECK(x.view({3, 2}).to_vector<float>() == x.to_vector<float>());
  CHECK_THROWS_WITH_AS((void)x.transpose(0, 1).view({6}),
                       "view: shape (3, 2) with strides (1, 3) cannot be seen as (6,) without a copy; use reshape",
                       pp::ShapeError);
}

TEST_CASE("flatten, squeeze, unsqueeze") {
  const Tensor x = range({2, 3, 4});
  CHECK(x.flatten().shape() == Shape{24});
  CHECK(x.flatten(1).shape() == Shape{2, 12});
  CHECK(x.flatten(0, 1).shape() == Shape{6, 4});
  CHECK(Tensor::full({}, 1).flatten().shape() == Shape{1});
  CHECK_THROWS_WITH_AS((void)x.flatten(2, 0), "flatten: expected start_dim <= end_dim, got 2 and 0", pp::ShapeError);
  CHECK(x.unsqueeze(0).shape() == Shape{1, 2, 3, 4});
  CHECK(x.unsqueeze(-1).shape() == Shape{2, 3, 4, 1});
  CHECK(x.unsqueeze(1).is_contiguous());
  CHECK(x.unsqueeze(1).squeeze(1).strides() == x.strides());
  CHECK(x.squeeze(0).shape() == x.shape());
  CHECK_THROWS_AS((void)x.unsqueeze(4), pp::ShapeError);
}

TEST_CASE("unfold") {
  const Tensor x = range({2, 5});
  const Tensor windows = x.unfold(3, 2);
  CHECK(windows.shape() == Shape{2, 2, 3});
  CHECK(windows.to_vector<float>() == Floats{0, 1, 2, 2, 3, 4, 5, 6, 7, 7, 8, 9});
  CHECK(shares(windows, x));
  CHECK(x.unfold(5, 100).shape() == Shape{2, 1, 5});
  CHECK(x.transpose(0, 1).unfold(2, INT64_MAX).to_vector<float>() == Floats{0, 5, 1, 6, 2, 7, 3, 8, 4, 9});
  CHECK_THROWS_WITH_AS((void)x.unfold(6, 1), "unfold: expected 1 <= size <= L=5 and step >= 1, got size 6 and step 1",
                       pp::ShapeError);
  CHECK_THROWS_AS((void)x.unfold(0, 1), pp::ShapeError);
  CHECK_THROWS_AS((void)x.unfold(2, 0), pp::ShapeError);
  CHECK_THROWS_WITH_AS((void)Tensor::full({}, 1).unfold(1, 1), "unfold: expected (..., L), got a tensor of rank 0",
                       pp::ShapeError);
}

TEST_CASE("gradients of the views") {
  CHECK(check({5, 4}, [](const Tensor& x) { return x.slice(0, 1, 5, 2); }) == "");
  CHECK(check({5, 4}, [](const Tensor& x) { return x.narrow(-1, 1, 2); }) == "");
  CHECK(check({5, 4}, [](const Tensor& x) { return x.select(1, -2); }) == "");
  CHECK(check({2, 3, 4}, [](const Tensor& x) { return x.transpose(0, 2); }) == "");
  CHECK(check({2, 3, 4}, [](const Tensor& x) { return x.permute({2, 0, 1}); }) == "");
  CHECK(check({3, 1}, [](const Tensor& x) { return x.expand({2, 3, 4}); }) == "");
  CHECK(check({2, 6}, [](const Tensor& x) { return x.reshape({3, 4}); }) == "");
  CHECK(check({2, 6}, [](const Tensor& x) { return x.transpose(0, 1).reshape({3, 4}); }) == "");
  CHECK(check({2, 6}, [](const Tensor& x) { return x.view({12}); }) == "");
  CHECK(check({2, 3, 2}, [](const Tensor& x) { return x.flatten(1); }) == "");
  CHECK(check({2, 1, 2}, [](const Tensor& x) { return x.squeeze(1); }) == "");
  CHECK(check({2, 2}, [](const Tensor& x) { return x.unsqueeze(1); }) == "");
  CHECK(check({2, 9}, [](const Tensor& x) { return x.unfold(4, 2); }) == "");
  CHECK(check({2, 9}, [](const Tensor& x) { return x.unfold(2, 3); }) == "");
  CHECK(check({2, 9}, [](const Tensor& x) { return x.unfold(2, INT64_MAX); }) == "");
  CHECK(check({9, 2}, [](const Tensor& x) { return x.transpose(0, 1).unfold(4, 3).transpose(1, 2); }) == "");
}

TEST_CASE("views of nothing pass gradients of nothing") {
  Tensor x = Tensor::zeros({2, 0, 5}, {.requires_grad = true});
  pp::sum(x.unfold(2, 1)).backward();
  CHECK(x.grad().shape() == Shape{2, 0, 5});
  Tensor y = Tensor::zeros({3}, {.requires_grad = true});
  pp::sum(y.slice(0, 2, 1)).backward();
  CHECK(y.grad().to_vector<float>() == Floats{0, 0, 0});
}

TEST_CASE("a view stays on the tape, and leaves it under a NoGradGuard") {
  Tensor x = Tensor::ones({2, 3}, {.requires_grad = true});
  CHECK(x.transpose(0, 1).requires_grad());
  const pp::NoGradGuard guard;
  CHECK_FALSE(x.transpose(0, 1).requires_grad());
}
