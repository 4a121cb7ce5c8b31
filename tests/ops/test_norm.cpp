#include "ops/norm.hpp"

#include <doctest/doctest.h>

#include "autograd/gradcheck.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Inputs = std::vector<Tensor>;

const BatchNormOptions kTraining = {.training = true};

// (x - mean)/sqrt(var + eps) over dims, from elementary operations.
Tensor plain_normalize(const Tensor& x, const std::vector<int>& dims, double epsilon) {
  return (x - mean(x, dims, true)) / sqrt(var(x, dims, true, 0) + epsilon);
}

}  // namespace

TEST_CASE("group_norm agrees with primitive operations") {
  const Tensor w = random_f64({4}, 2);
  const Tensor b = random_f64({4}, 3);
  for (const Shape& shape : {Shape{2, 4, 5}, Shape{3, 4}, Shape{2, 4, 3, 2}}) {
    const Tensor x = random_f64(shape) + 3.0;
    Shape channel = Shape::filled(shape.rank() - 1, 1);
    channel[0] = 4;
    for (const std::int64_t groups : {1, 2}) {
      const Tensor rows = x.reshape({shape[0], groups, -1});
      const Tensor normal = plain_normalize(rows, {2}, 1e-5).reshape(shape);
      CHECK(max_difference(group_norm(x, groups), normal) <= kDoubleSum);
      CHECK(max_difference(group_norm(x, groups, w, b), normal * w.reshape(channel) + b.reshape(channel)) <= kDoubleSum);
      CHECK(max_difference(group_norm(x, groups, {}, b), normal + b.reshape(channel)) <= kDoubleSum);
    }
  }
}

TEST_CASE("group_norm: gradients") {
  const auto function = [](std::int64_t groups) {
    return [groups](const Inputs& in) { return group_norm(in[0], groups, in[1], in[2], 1e-3); };
  };
  for (const std::int64_t groups : {1, 2, 4}) {
    CHECK(gradcheck(function(groups), {leaf_f64({2, 4, 3}), leaf_f64({4}, 2), leaf_f64({4}, 3)}) == "");
    CHECK(gradcheck(function(groups), {leaf_f64({2, 4, 3}), Tensor(), Tensor()}) == "");
  }
  CHECK(gradcheck(function(2), {leaf_f64({3, 4}), leaf_f64({4}, 2), Tensor()}) == "");
  CHECK(gradcheck(function(2), {random_f64({2, 4, 3}), leaf_f64({4}, 2), leaf_f64({4}, 3)}) == "");
  CHECK(gradcheck(function(2), {leaf_f64({0, 4, 3}), leaf_f64({4}, 2), leaf_f64({4}, 3)}) == "");
  const auto strided = [](const Inputs& in) { return group_norm(in[0].transpose(1, 2), 2, {}, {}, 1e-3); };
  CHECK(gradcheck(strided, {leaf_f64({2, 3, 4})}) == "");
}

TEST_CASE("layer_norm and rms_norm agree with their formulas") {
  const Tensor w = random_f64({5}, 2), b = random_f64({5}, 3);
  for (const Shape& shape : {Shape{2, 4, 5}, Shape{3, 5}, Shape{5}}) {
    const Tensor x = random_f64(shape) + 3.0;
    const auto values = x.to_vector<double>(), weights = w.to_vector<double>(), biases = b.to_vector<double>();
    const auto normal = layer_norm(x, w, b, 1e-3).to_vector<double>(), plain = layer_norm(x).to_vector<double>();
    const auto root = rms_norm(x, w, 1e-3).to_vector<double>(), plain_root = rms_norm(x).to_vector<double>();
    for (std::size_t row = 0; row < values.size(); row += 5) {
      double mean = 0, variance = 0, square = 0;
      for (std::size_t c = 0; c < 5; ++c) mean += values[row + c] / 5, square += values[row + c] * values[row + c] / 5;
      for (std::size_t c = 0; c < 5; ++c) variance += (values[row + c] - mean) * (values[row + c] - mean) / 5;
      for (std::size_t c = 0; c < 5; ++c) {
        const double centred = values[row + c] - mean;
        CHECK(std::abs(normal[row + c] - (centred / std::sqrt(variance + 1e-3) * weights[c] + biases[c])) <= kDoubleSum);
        CHECK(std::abs(plain[row + c] - centred / std::sqrt(variance + 1e-5)) <= kDoubleSum);
        CHECK(std::abs(root[row + c] - values[row + c] / std::sqrt(square + 1e-3) * weights[c]) <= kDoubleSum);
        CHECK(std::abs(plain_root[row + c] - values[row + c] / std::sqrt(square + 0x1p-52)) <= kDoubleSum);
      }
    }
  }
}

TEST_CASE("layer_norm of another dimension is that of the last one, transposed") {
  const Tensor w = random_f64({5}, 2), b = random_f64({5}, 3), x = random_f64({3, 5, 9}) + 3.0;
  const Tensor expected = layer_norm(x.transpose(1, 2), w, b, 1e-3).transpose(1, 2);
  CHECK(max_difference(layer_norm(x, w, b, 1e-3, 1), expected) <= kDoubleSum);
  CHECK(max_difference(layer_norm(x, w, b, 1e-3, -2), expected) <= kDoubleSum);
  const Tensor first = x.permute({1, 0, 2});
  CHECK(max_difference(layer_norm(first, w, {}, 1e-3, 0), layer_norm(x, w, {}, 1e-3, 1).permute({1, 0, 2})) <= kDoubleSum);
  const auto middle = [](const Inputs& in) { return layer_norm(in[0], in[1], in[2], 1e-3, 1); };
  for (const Shape& shape : {Shape{2, 4, 3}, Shape{2, 4, 1}, Shape{2, 4, 0}})
    CHECK(gradcheck(middle, {leaf_f64(shape), leaf_f64({4}, 2), leaf_f64({4}, 3)}) == "");
  CHECK(error_of<ShapeError>([&] { return layer_norm(x, random_f64({9}), {}, 1e-3, 1); }) ==
        "layer_norm: expected weight (C=5), got (9,)");
  CHECK(error_of<ShapeError>([&] { return layer_norm(x, {}, {}, 1e-3, 3); }) != "");
}

TEST_CASE("layer_norm and rms_norm: gradients") {
  const auto layer = [](const Inputs& in) { return layer_norm(in[0], in[1], in[2], 1e-3); };
  const auto root = [](const Inputs& in) { return rms_norm(in[0], in[1], 1e-3); };
  for (const Shape& shape : {Shape{2, 3, 4}, Shape{4}, Shape{0, 4}}) {
    CHECK(gradcheck(layer, {leaf_f64(shape), leaf_f64({4}, 2), leaf_f64({4}, 3)}) == "");
    CHECK(gradcheck(layer, {leaf_f64(shape), leaf_f64({4}, 2), Tensor()}) == "");
    CHECK(gradcheck(layer, {leaf_f64(shape), Tensor(), Tensor()}) == "");
    CHECK(gradcheck(root, {leaf_f64(shape), leaf_f64({4}, 2)}) == "");
    CHECK(gradcheck(root, {leaf_f64(shape), Tensor()}) == "");
  }
  const auto strided = [](const Inputs& in) { return layer_norm(in[0].transpose(1, 2)) + rms_norm(in[0].transpose(1, 2)); };
  CHECK(gradcheck(strided, {leaf_f64({2, 4, 3})}) == "");
}

TEST_CASE("layer_norm and rms_norm: dtypes and rows of nothing") {
  const Tensor x = uniform_f64({70, 40}, -1, 1);
  CHECK(max_difference(layer_norm(x.to(DType::f32)), layer_norm(x.to(DType::f32).to(DType::f64))) <= 4 * kFloatRounding);
  CHECK(max_difference(rms_norm(x.to(DType::f32)), rms_norm(x.to(DType::f32).to(DType::f64), {}, 0x1p-23)) <=
        4 * kFloatRounding);
  for (const auto& [dtype, rounding] : {std::pair{DType::f16, kHalfRounding}, std::pair{DType::bf16, kBFloat16Rounding}}) {
    const Tensor half = x.to(dtype), wide = half.to(DType::f64);
    CHECK(layer_norm(half).dtype() == dtype);
    CHECK(max_difference(layer_norm(half), layer_norm(wide)) <= rounding);
    CHECK(max_difference(rms_norm(half), rms_norm(wide, {}, 0x1p-23)) <= rounding);
  }
  CHECK(layer_norm(random_f64({3, 0})).shape() == Shape{3, 0});
  CHECK(rms_norm(random_f64({3, 0})).shape() == Shape{3, 0});
}

TEST_CASE("layer_norm and rms_norm: the bits of a row do not depend on the number of rows") {
  const Tensor x = uniform_f64({70, 40}, -1, 1);
  for (const DType dtype : {DType::f32, DType::f64})
    for (const std::int64_t width : {3, 31, 32, 40}) {
      const Tensor rows = x.narrow(1, 0, width).to(dtype).contiguous();
      const Tensor normal = layer_norm(rows), root = rms_norm(rows);
      for (std::int64_t i = 0; i < 70; i += 7) {
        CHECK(max_difference(layer_norm(rows.narrow(0, i, 1)), normal.narrow(0, i, 1)) == 0);
        CHECK(max_difference(rms_norm(rows.narrow(0, i, 1)), root.narrow(0, i, 1)) == 0);
        const Tensor column = rows.transpose(0, 1).contiguous().narrow(1, i, 1).transpose(0, 1);  // channels are first
        CHECK(max_difference(layer_norm(column), normal.narrow(0, i, 1)) == 0);
        CHECK(max_difference(rms_norm(rows.transpose(0, 1).contiguous().transpose(0, 1)), root) == 0);
      }
    }
}

TEST_CASE("batch_norm in training: output, running statistics") {
  const Tensor x = random_f64({3, 2, 4}) * 2.0 + 1.0;
  const Tensor running_mean = Tensor::full({2}, 0.5, {.dtype = DType::f64});
  const Tensor running_var = Tensor::full({2}, 2, {.dtype = DType::f64});
  CHECK(max_difference(batch_norm(x, running_mean, running_var, {}, {}, kTraining), plain_normalize(x, {0, 2}, 1e-5)) <=
        kDoubleSum);
  CHECK(max_difference(running_mean, mean(x, {0, 2}) * 0.1 + 0.45) <= kDoubleSum);
  CHECK(max_difference(running_var, var(x, {0, 2}) * 0.1 + 1.8) <= kDoubleSum);
  const Tensor flat = random_f64({5, 2});
  CHECK(max_difference(batch_norm(flat, {}, {}, {}, {}, kTraining), plain_normalize(flat, {0}, 1e-5)) <= kDoubleSum);
}

TEST_CASE("batch_norm outside training uses the running statistics and leaves them") {
  const Tensor x = random_f64({3, 2, 4});
  const Tensor running_mean = Tensor::from_vector<double>({0.5, -1});
  const Tensor running_var = Tensor::from_vector<double>({2, 0.25});
  const Tensor w = random_f64({2}, 2);
  const Tensor b = random_f64({2}, 3);
  const auto column = [](const Tensor& t) { return t.reshape({2, 1}); };
  const Tensor normal = (x - column(running_mean)) / sqrt(column(running_var) + 1e-5);
  CHECK(max_difference(batch_norm(x, running_mean, running_var), normal) <= kDoubleSum);
  CHECK(max_difference(batch_norm(x, running_mean, running_var, w, b), normal * column(w) + column(b)) <= kDoubleSum);
  CHECK(running_mean.to_vector<double>() == std::vector<double>{0.5, -1});
}

TEST_CASE("batch_norm: gradients") {
  const Tensor running_mean = random_f64({2}, 4);
  const Tensor running_var = uniform_f64({2}, 0.5, 2, 5);
  for (const bool training : {true, false}) {
    const BatchNormOptions options = {.training = training, .epsilon = 1e-3};
    const auto function = [&](const Inputs& in) {
      return batch_norm(in[0], running_mean.clone(), running_var.clone(), in[1], in[2], options);
    };
    CHECK(gradcheck(function, {leaf_f64({3, 2, 2}), leaf_f64({2}, 2), leaf_f64({2}, 3)}) == "");
    CHECK(gradcheck(function, {leaf_f64({4, 2}), leaf_f64({2}, 2), leaf_f64({2}, 3)}) == "");
    CHECK(gradcheck(function, {leaf_f64({3, 2, 2}), Tensor(), Tensor()}) == "");
  }
}

TEST_CASE("16-bit types normalise in f32") {
  const Tensor x = uniform_f64({2, 4, 30}, -1, 1).to(DType::f16);
  CHECK(max_difference(group_norm(x, 2), group_norm(x.to(DType::f64), 2)) <= kHalfRounding);
  CHECK(max_difference(group_norm(x.to(DType::bf16), 2), group_norm(x.to(DType::bf16).to(DType::f64), 2)) <= kBFloat16Rounding);
  const Tensor running_mean = Tensor::zeros({4}, {.dtype = DType::f16});
  const Tensor running_var = Tensor::ones({4}, {.dtype = DType::f16});
  const Tensor y = batch_norm(x, running_mean, running_var, {}, {}, kTraining);
  CHECK(max_difference(y, batch_norm(x.to(DType::f64), {}, {}, {}, {}, kTraining)) <= kHalfRounding);
  CHECK(max_difference(running_mean, mean(x.to(DType::f64), {0, 2}) * 0.1) <= kHalfRounding);
  CHECK(max_difference(running_var, var(x.to(DType::f64), {0, 2}) * 0.1 + 0.9) <= kHalfRounding);
}

TEST_CASE("normalising keeps its digits far from zero") {
  for (const double offset : {0.0, 1.0, -1e3, 1e6, 1e7}) {
    CAPTURE(offset);
    const Tensor x = (random_f64({4, 2, 300}) * 2.0 + offset).to(DType::f32);
    const Tensor wide = x.to(DType::f64), w = random_f64({2}, 2), b = random_f64({2}, 3);
    const auto state = [](double value, DType dtype) { return Tensor::full({2}, value, {.dtype = dtype}); };
    const Tensor mean32 = state(0, DType::f32), var32 = state(0, DType::f32);
    const Tensor mean64 = state(0, DType::f64), var64 = state(0, DType::f64);
    const BatchNormOptions newest = {.training = true, .momentum = 1};
    const Tensor y = batch_norm(x, mean32, var32, {}, {}, newest), expected = batch_norm(wide, mean64, var64, {}, {}, newest);
    CHECK(max_difference(y, expected) <= kFloatRounding * 4);  // magnitudes up to 4
    CHECK(max_difference(mean32, mean64) <= std::abs(offset) * 0x1p-24 + kFloatRounding);
    CHECK(max_difference(div(var32.to(DType::f64), var64), Tensor::ones({2}, {.dtype = DType::f64})) <= 2 * kFloatVariance);
    CHECK(max_difference(group_norm(x, 2), group_norm(wide, 2)) <= kFloatRounding * 4);
    const Tensor kept = batch_norm(x, mean32, var32, w.to(DType::f32), b.to(DType::f32));
    CHECK(max_difference(kept, batch_norm(wide, mean32.to(DType::f64), var32.to(DType::f64), w, b)) <= kFloatRounding * 8);
  }
}

TEST_CASE("gradients far from zero") {
  const Tensor near_mean = random_f64({2}, 4) + 1e6, running_var = uniform_f64({2}, 0.5, 2, 5);
  for (const bool training : {true, false}) {
    const auto function = [&](const Inputs& in) {
      return batch_norm(in[0] + 1e6, near_mean.clone(), running_var.clone(), in[1], in[2], {.training = training});
    };
    CHECK(gradcheck(function, {leaf_f64({4, 2, 3}), leaf_f64({2}, 2), leaf_f64({2}, 3)}, {.step = 1e-4}) == "");
  }
  CHECK(gradcheck([](const Inputs& in) { return group_norm(in[0] + 1e6, 2, {}, {}, 1e-3); }, {leaf_f64({2, 4, 3})},
                  {.step = 1e-4}) == "");
}

TEST_CASE("gradients of f32 parameters outside training far from zero") {
  const auto gradient = [](DType dtype) {
    const Tensor x = (random_f64({4, 2, 300}) + 1e6).to(DType::f32).to(dtype);
    Tensor w = Tensor::ones({2}, {.dtype = dtype});
    w.set_requires_grad(true);
    const Tensor mean = Tensor::full({2}, 1e6, {.dtype = dtype}), variance = Tensor::ones({2}, {.dtype = dtype});
    sum(batch_norm(x, mean, variance, w) * random_f64({4, 2, 300}, 2).to(dtype)).backward();
    return w.grad();
  };
  CHECK(max_difference(gradient(DType::f32), gradient(DType::f64)) <= kLongFloatSum);
}

TEST_CASE("batch_norm outside training: a running mean written since the forward pass is an error") {
  Tensor w = leaf_f64({2}), mean = random_f64({2}, 2);
  const Tensor y = batch_norm(random_f64({3, 2, 4}), mean, Tensor::ones({2}, {.dtype = DType::f64}), w);
  mean.fill_(0);
  CHECK_THROWS_AS(sum(y).backward(), AutogradError);
}

TEST_CASE("batch_norm outside training: gradients of the running statistics") {
  Tensor variance = uniform_f64({2}, 0.5, 2, 5);
  variance.set_requires_grad(true);
  const auto function = [](const Inputs& in) { return batch_norm(in[0], in[1], in[2], {}, {}, {.epsilon = 1e-3}); };
  CHECK(gradcheck(function, {leaf_f64({3, 2, 2}), leaf_f64({2}, 2), variance}) == "");
}

TEST_CASE("errors") {
  const Tensor x = random_f64({2, 6, 3});
  CHECK(error_of<ShapeError>([&] { return group_norm(x, 4); }) == "group_norm: expected groups to divide C=6, got 4");
  CHECK(error_of<ShapeError>([&] { return group_norm(x, 0); }) == "group_norm: expected groups >= 1, got 0");
  CHECK(error_of<ShapeError>([&] { return group_norm(x, 2, random_f64({5})); }) ==
        "group_norm: expected weight (C=6), got (5,)");
  CHECK(error_of<ShapeError>([&] { return group_norm(random_f64({6}), 2); }) == "group_norm: expected x (N, C, ...), got (6,)");
  CHECK(error_of<ShapeError>([&] {
          return batch_norm(random_f64({1, 3}), {}, {}, {}, {}, kTraining);
        }) == "batch_norm: expected more than one value per channel when training, got x (1, 3)");
  CHECK(error_of<ShapeError>([&] { return batch_norm(x, {}, {}); }) ==
        "batch_norm: expected running_mean and running_var outside training, got none");
  CHECK(error_of<ShapeError>([&] {
          return batch_norm(random_f64({1, 2, 3, 4}), {}, {});
        }) == "batch_norm: expected x (N, C) or (N, C, L), got (1, 2, 3, 4)");
  CHECK(error_of<ShapeError>([&] { return batch_norm(x, random_f64({6}), random_f64({5})); }) ==
        "batch_norm: expected running_var (C=6), got (5,)");
  CHECK(error_of<ShapeError>([&] { return layer_norm(x, random_f64({4})); }) == "layer_norm: expected weight (C=3), got (4,)");
  CHECK(error_of<ShapeError>([&] {
          return layer_norm(x, {}, random_f64({3, 1}));
        }) == "layer_norm: expected bias (C=3), got (3, 1)");
  CHECK(error_of<ShapeError>([&] { return layer_norm(random_f64({})); }) == "layer_norm: expected x (..., C), got ()");
  CHECK(error_of<ShapeError>([&] { return rms_norm(x, random_f64({6})); }) == "rms_norm: expected weight (C=3), got (6,)");
  CHECK(error_of<DTypeError>([&] { return rms_norm(x, Tensor::ones({3})); }) ==
        "rms_norm: expected tensors of one dtype, got f64 and f32");
  CHECK(error_of<DTypeError>([&] { return group_norm(x, 2, Tensor::ones({6})); }) ==
        "group_norm: expected tensors of one dtype, got f64 and f32");
}

TEST_CASE("weight_norm: the separate operations, on the CPU to the bit, for a view of v too") {
  for (const Shape& shape : {Shape{5, 3, 7}, Shape{1, 1, 1}, Shape{4, 9}}) {
    const Tensor v = random_f64(shape);
    Shape kept = Shape::filled(shape.rank(), 1);
    kept[0] = shape[0];
    const Tensor g = random_f64(kept);
    std::vector<int> dims;
    for (int d = 1; d < v.rank(); ++d) dims.push_back(d);
    const Tensor separate = v * (g / norm(v, dims, /*keepdim=*/true));
    const double bound = default_device().is_cuda() ? kDoubleRounding : 0;  // a GPU's kernel adds in an order of its own
    CHECK(max_difference(weight_norm_of(v, g), separate) <= bound);
    const Tensor view = v.transpose(0, 1).contiguous().transpose(0, 1);
    CHECK(max_difference(weight_norm_of(view, g), separate) <= kDoubleRounding);
  }
}

TEST_CASE("weight_norm: gradients, zero rows, errors") {
  const auto f = [](const std::vector<Tensor>& in) { return weight_norm_of(in[0], in[1]); };
  CHECK(gradcheck(f, {leaf_f64({3, 2, 5}), leaf_f64({3, 1, 1})}) == "");
  const auto zero = weight_norm_of(Tensor::zeros({2, 3}), Tensor::ones({2, 1})).to_vector<float>();
  for (const float value : zero) CHECK(std::isnan(value));
  CHECK_THROWS_AS((void)weight_norm_of(Tensor::ones({2, 3}), Tensor::ones({2})), ShapeError);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor v = random_f64({3, 4}).to(dtype), g = random_f64({3, 1}).to(dtype);
    const Tensor expected = weight_norm_of(v.to(DType::f32), g.to(DType::f32)).to(dtype);
    CHECK(weight_norm_of(v, g).dtype() == dtype);
    CHECK(max_difference(weight_norm_of(v, g), expected) == 0);
  }
}

TEST_CASE("weight_norm: gradients of several weights of a pass, whose leaves have other uses and gradients already") {
  const auto separate = [](const Tensor& v, const Tensor& g) { return v * (g / norm(v, {1, 2}, /*keepdim=*/true)); };
  const auto fused = [](const Tensor& v, const Tensor& g) { return weight_norm_of(v, g); };
  const auto gradients = [](const auto& weight) {
    const Tensor v = leaf_f64({3, 2, 5}, 1), g = leaf_f64({3, 1, 1}, 2), u = leaf_f64({4, 3, 1}, 3), h = leaf_f64({4, 1, 1}, 4);
    const Tensor fixed = random_f64({3, 1, 1}, 5);
    const auto loss = [&] {
      const Tensor w = weight(v, g), other = weight(u, h), same = weight(v, g);
      // Before and behind the weights' nodes: other uses of their leaves, a second node of the same leaves, a leaf without one.
      return sum(square(w) * w) + sum(square(other)) + sum(w * same) + sum(v * v) + sum(weight(v * 2.0, g)) +
             sum(exp(weight(v, fixed)));
    };
    loss().backward();
    loss().backward();  // added to what is there
    const Tensor kept = loss();
    kept.backward({}, /*retain_graph=*/true);
    kept.backward();
    std::vector<Tensor> all;
    for (const Tensor& tensor : {v, g, u, h}) all.push_back(tensor.grad());
    return all;
  };
  const std::vector<Tensor> expected = gradients(separate), got = gradients(fused);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(allclose(got[i], expected[i], 1e-11, 1e-11));
}
