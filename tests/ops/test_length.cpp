#include "ops/length.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "autograd/gradcheck.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Inputs = std::vector<Tensor>;
using Values = std::vector<double>;

Tensor ramp() { return Tensor::from_vector<double>({1, 2, 3, 4}); }

}  // namespace

TEST_CASE("pad1d by hand") {
  CHECK(pad1d(ramp(), {1, 2}).to_vector<double>() == Values{0, 1, 2, 3, 4, 0, 0});
  CHECK(pad1d(ramp(), {3, 2}, PaddingMode::reflect).to_vector<double>() == Values{4, 3, 2, 1, 2, 3, 4, 3, 2});
  CHECK(pad1d(ramp(), {1, 2}, PaddingMode::replicate).to_vector<double>() == Values{1, 1, 2, 3, 4, 4, 4});
  CHECK(pad1d(ramp(), {1, 0}, PaddingMode::replicate).to_vector<double>() == Values{1, 1, 2, 3, 4});  // another table
  const Tensor x = ramp();
  CHECK(pad1d(x, 0, PaddingMode::reflect).is_same(x));
  CHECK(pad1d(random_f64({0, 3}), 2, PaddingMode::reflect).shape() == Shape{0, 7});
  CHECK(pad1d(random_f64({2, 0}), 2).to_vector<double>() == Values(8, 0));
}

TEST_CASE("pad1d: gradients, strided input, 16-bit types") {
  for (const PaddingMode mode : {PaddingMode::zeros, PaddingMode::reflect, PaddingMode::replicate}) {
    CAPTURE(mode);
    for (const Padding padding : {Padding(2, 1), Padding(0, 3), Padding(3, 0)}) {
      CHECK(gradcheck([&](const Inputs& in) { return pad1d(in[0], padding, mode); }, {leaf_f64({2, 4})}) == "");
      CHECK(gradcheck([&](const Inputs& in) { return pad1d(in[0].transpose(0, 1), padding, mode); }, {leaf_f64({4, 2})}) == "");
    }
    const Tensor x = random_f64({2, 4}).to(DType::f16);
    CHECK(max_difference(pad1d(x, {1, 2}, mode), pad1d(x.to(DType::f64), {1, 2}, mode)) == 0);
  }
}

TEST_CASE("upsample1d by hand, as PyTorch without align_corners") {
  const Tensor x = Tensor::from_vector<double>({1, 3});
  CHECK(upsample1d(x, 3).to_vector<double>() == Values{1, 1, 1, 3, 3, 3});
  CHECK(upsample1d(x, 2, UpsampleMode::linear).to_vector<double>() == Values{1, 1.5, 2.5, 3});
  const Values thirds = {1, 1, 1 + 2.0 / 3, 1 + 4.0 / 3, 3, 3};
  CHECK(max_difference(upsample1d(x, 3, UpsampleMode::linear), Tensor::from_vector(thirds)) <= kDoubleRounding);
  CHECK(upsample1d(Tensor::from_vector<double>({5}), 2, UpsampleMode::linear).to_vector<double>() == Values{5, 5});
  CHECK(upsample1d(x, 1).is_same(x));
  for (const UpsampleMode mode : {UpsampleMode::nearest, UpsampleMode::linear}) {
    CHECK(upsample1d(random_f64({0, 2}), 3, mode).shape() == Shape{0, 6});
    CHECK(upsample1d(random_f64({2, 0}), 3, mode).shape() == Shape{2, 0});
    CHECK(gradcheck([&](const Inputs& in) { return upsample1d(in[0], 3, mode); }, {leaf_f64({2, 1, 4})}) == "");
    CHECK(gradcheck([&](const Inputs& in) { return upsample1d(in[0].transpose(0, 1), 2, mode); }, {leaf_f64({3, 2})}) == "");
  }
}

TEST_CASE("padding and upsampling of views, short rows and long paddings") {
  const Tensor x = random_f64({7, 3, 5}), turned = x.transpose(0, 2);  // (5, 3, 7), not contiguous
  for (const PaddingMode mode : {PaddingMode::zeros, PaddingMode::reflect, PaddingMode::replicate}) {
    CAPTURE(mode);
    CHECK(max_difference(pad1d(turned, {6, 2}, mode), pad1d(turned.contiguous(), {6, 2}, mode)) == 0);
    const auto half = [&](DType dtype) { return pad1d(x.to(dtype), {4, 3}, mode); };
    for (const DType dtype : {DType::f16, DType::bf16, DType::i64})
      CHECK(max_difference(half(dtype), pad1d(x.to(dtype).to(DType::f64), {4, 3}, mode)) == 0);
    CHECK(pad1d(random_f64({0, 3, 4}), {1, 2}, mode).shape() == Shape{0, 3, 7});
    if (mode != PaddingMode::reflect)
      CHECK(gradcheck([&](const Inputs& in) { return pad1d(in[0], {3, 200}, mode); }, {leaf_f64({2, 1})}) == "");
  }
  CHECK(max_difference(upsample1d(turned, 3, UpsampleMode::linear), upsample1d(turned.contiguous(), 3, UpsampleMode::linear)) ==
        0);
  CHECK(gradcheck([](const Inputs& in) { return upsample1d(in[0], 2, UpsampleMode::linear); }, {leaf_f64({2, 1})}) == "");
  CHECK(gradcheck([](const Inputs& in) { return upsample1d(in[0], 70, UpsampleMode::linear); }, {leaf_f64({1, 3})}) == "");
  CHECK(error_of<DTypeError>([] {
          return upsample1d(Tensor::from_vector<std::int64_t>({1, 2}), 2, UpsampleMode::linear);
        }) == "upsample1d: expected a floating-point tensor, got i64");
}

TEST_CASE("pixel_shuffle1d moves channels into time") {
  const Tensor x = Tensor::arange(12, {.dtype = DType::f64}).reshape({1, 4, 3});
  CHECK(pixel_shuffle1d(x, 2).to_vector<double>() == Values{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11});
  CHECK(pixel_shuffle1d(x, 2).shape() == Shape{1, 2, 6});
  CHECK(gradcheck([](const Inputs& in) { return pixel_shuffle1d(in[0], 2); }, {leaf_f64({2, 4, 3})}) == "");
  CHECK(pixel_shuffle1d(random_f64({0, 4, 3}), 2).shape() == Shape{0, 2, 6});
}

TEST_CASE("index_select: repeated positions add up in the gradient") {
  const Tensor index = Tensor::from_vector<std::int64_t>({3, 0, 0, 2});
  CHECK(index_select(ramp(), index).to_vector<double>() == Values{4, 1, 1, 3});
  CHECK(gradcheck([&](const Inputs& in) { return index_select(in[0], index); }, {leaf_f64({2, 4})}) == "");
  CHECK(gradcheck([&](const Inputs& in) { return index_select(in[0].transpose(0, 1), index); }, {leaf_f64({4, 2})}) == "");
  CHECK(index_select(ramp(), index.slice(0, 0, 0)).shape() == Shape{0});
}

TEST_CASE("index_select: an index that was written to later is refused in the backward pass") {
  Tensor index = Tensor::from_vector<std::int64_t>({3, 0});
  const Tensor x = leaf_f64({4});
  const Tensor y = sum(index_select(x, index));
  index.fill_(1000);
  CHECK(error_of<AutogradError>([&] { y.backward(); }) ==
        "index_select: a tensor saved for backward was written in place since (version 1, expected 0)");
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("cat and stack") {
  const Tensor a = Tensor::from_vector<double>({1, 2}, {1, 2});
  const Tensor b = Tensor::from_vector<double>({3, 4, 5, 6}, {2, 2});
  CHECK(cat({a, b}).to_vector<double>() == Values{1, 2, 3, 4, 5, 6});
  CHECK(cat({a.transpose(0, 1), b}, -1).to_vector<double>() == Values{1, 3, 4, 2, 5, 6});
  CHECK(cat({a, random_f64({0, 2}), a}).to_vector<double>() == Values{1, 2, 1, 2});
  CHECK(stack({a, a + 1.0}).shape() == Shape{2, 1, 2});
  CHECK(stack({ramp(), ramp() * 2.0}, -1).to_vector<double>() == Values{1, 2, 2, 4, 3, 6, 4, 8});
  CHECK(stack({Tensor::full({}, 1), Tensor::full({}, 2)}).to_vector<float>() == std::vector<float>{1, 2});
  for (const int dim : {0, 1, 2})
    CHECK(gradcheck(
              [&](const Inputs& in) {
                return cat({in[0], in[1], in[0]}, dim);
              },
              {leaf_f64({2, 2, 2}), leaf_f64({2, 2, 2}, 2)}) == "");
  // Tensors of several lengths, the middle one without a gradient.
  CHECK(gradcheck(
            [](const Inputs& in) {
              return cat({in[0], in[1], in[2]});
            },
            {leaf_f64({1, 2}), random_f64({3, 2}, 2), leaf_f64({2, 2}, 3)}) == "");
  CHECK(gradcheck([](const Inputs& in) { return stack({in[0], in[1]}, 1); }, {leaf_f64({2, 2}), random_f64({2, 2}, 2)}) == "");
}

TEST_CASE("cat of more tensors than a node of the tape takes") {
  Inputs leaves;
  for (std::uint64_t i = 0; i < 130; ++i) leaves.push_back(leaf_f64({1}, i));
  CHECK(cat(leaves).numel() == 130);
  CHECK(cat(leaves).slice(0, 129, 130).item() == leaves[129].item());
  CHECK(gradcheck([](const Inputs& in) { return cat(in); }, leaves) == "");
  for (const std::int64_t count : {64, 65}) {
    const Inputs some(leaves.begin(), leaves.begin() + count);
    CHECK(cat(some).slice(0, count - 1, 65).to_vector<double>() == some.back().to_vector<double>());
  }
}

TEST_CASE("lengths that memory cannot hold are refused in numbers") {
  const Tensor x = Tensor::ones({1, 1, 1});
  for (const int power : {40, 50, 61, 62}) {
    const std::int64_t huge = std::int64_t{1} << power;
    CAPTURE(power);
    const auto refused = [&](const auto& function) {
      const std::string error = error_of<Error>(function);
      CAPTURE(error);
      // The error has the number of bytes, or the shape whose size exceeds 64 bits.
      CHECK((error.find("out of memory: asked ") != std::string::npos || error.find("64 bits") != std::string::npos));
    };
    refused([&] { return upsample1d(Tensor::ones({1, 1, 4}), huge); });
    refused([&] { return upsample1d(x, huge, UpsampleMode::linear); });
    refused([&] { return pad1d(x, {0, huge - 1}); });
    refused([&] { return pad1d(x, {0, huge - 1}, PaddingMode::replicate); });
    refused([&] { return pad1d(x, {huge - 1, 0}, PaddingMode::replicate); });
    refused([&] { return pad1d(x.expand({1, 1, huge / 2 + 1}), {0, huge / 2 - 1}, PaddingMode::reflect); });
  }
}

TEST_CASE("errors") {
  const Tensor x = random_f64({2, 4});
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const PaddingMode mode : {PaddingMode::zeros, PaddingMode::replicate})
    CHECK(error_of<ShapeError>([&] {
            return pad1d(x, {1, kMost}, mode);
          }) == "pad1d: the length of (2, 4) padded by (1, 9223372036854775807) does not fit 64 bits");
  for (const UpsampleMode mode : {UpsampleMode::nearest, UpsampleMode::linear})
    CHECK(error_of<ShapeError>([&] { return upsample1d(x, kMost, mode); }) ==
          "upsample1d: the length of (2, 4) times 9223372036854775807 does not fit 64 bits");
  CHECK(error_of<ShapeError>([&] {
          return pad1d(x, {4, 0}, PaddingMode::reflect);
        }) == "pad1d: expected a reflect padding below L=4, got (4, 0)");
  CHECK(error_of<ShapeError>([&] {
          return pad1d(x, {0, 4}, PaddingMode::reflect);
        }) == "pad1d: expected a reflect padding below L=4, got (0, 4)");
  CHECK(error_of<ShapeError>([&] { return pad1d(x, {-1, 0}); }) == "pad1d: expected padding >= 0, got (-1, 0)");
  CHECK(error_of<ShapeError>([&] { return pad1d(x, Padding::same()); }) == "pad1d: expected a padding in numbers, got same");
  CHECK(error_of<ShapeError>([&] {
          return pad1d(random_f64({2, 0}), 1, PaddingMode::replicate);
        }) == "pad1d: expected L >= 1 to replicate, got (2, 0)");
  CHECK(error_of<ShapeError>([&] { return pad1d(random_f64({}), 1); }) == "pad1d: expected x (..., L), got ()");
  CHECK(error_of<ShapeError>([&] { return upsample1d(x, 0); }) == "upsample1d: expected scale >= 1, got 0");
  CHECK(error_of<ShapeError>([&] {
          return pixel_shuffle1d(random_f64({1, 5, 2}), 2);
        }) == "pixel_shuffle1d: expected x (N, C*2, L), got (1, 5, 2)");
  CHECK(error_of<ShapeError>([&] { return pixel_shuffle1d(x, 0); }) == "pixel_shuffle1d: expected upscale_factor >= 1, got 0");
  // On a GPU the copy to the host reports the error.
  CHECK(error_of<ShapeError>([&] {
          return index_select(x, Tensor::from_vector<std::int64_t>({1, 4})).cpu();
        }).starts_with("index_select: expected positions in [0, 4), got 4"));
  CHECK(error_of<ShapeError>([&] {
          return index_select(x, Tensor::from_vector<std::int64_t>({-1})).cpu();
        }).starts_with("index_select: expected positions in [0, 4), got -1"));
  CHECK(error_of<DTypeError>([&] { return index_select(x, x); }) == "index_select: expected an index of i64, got f64");
  CHECK(error_of<DeviceError>([] {
          return index_select(Tensor::zeros({4}, {.device = Device::cpu()}), elsewhere({1}, DType::i64));
        }) == "index_select: expected x and index on one device, got cpu and cuda:0");
  CHECK(error_of<ShapeError>([] { return cat({}); }) == "cat: expected at least one tensor, got none");
  CHECK(error_of<ShapeError>([&] {
          return cat({x, random_f64({2, 3})});
        }) == "cat: expected shapes that agree but for dimension 0, got (2, 4) and (2, 3)");
  CHECK(error_of<ShapeError>([&] {
          return cat({x, random_f64({4})}, 1);
        }) == "cat: expected shapes that agree but for dimension 1, got (2, 4) and (4,)");
  CHECK(error_of<DTypeError>([&] {
          return cat({x, Tensor::ones({2, 4})});
        }) == "cat: expected tensors of one dtype, got f64 and f32");
  const Tensor longest = Tensor::zeros({0, 1}).expand({0, INT64_MAX});
  CHECK(error_of<ShapeError>([&] {
          return cat({longest, longest, Tensor::zeros({0, 3})}, 1);
        }) == "cat: the size of dimension 1 of all 3 tensors does not fit 64 bits");
  CHECK(error_of<ShapeError>([&] {
          return stack({x, random_f64({2, 3})});
        }) == "stack: expected equal shapes, got (2, 4) and (2, 3)");
}

TEST_CASE("avg_pool1d by hand, as PyTorch") {
  const Tensor x = Tensor::from_vector<double>({1, 2, 3, 4, 5});
  CHECK(avg_pool1d(x, {.kernel_size = 2}).to_vector<double>() == Values{1.5, 3.5});
  CHECK(avg_pool1d(x, {.kernel_size = 4, .stride = 2, .padding = 2}).to_vector<double>() == Values{0.75, 2.5, 3});
  CHECK(avg_pool1d(x, {.kernel_size = 4, .stride = 2, .padding = 2, .count_include_pad = false}).to_vector<double>() ==
        Values{1.5, 2.5, 4});
  CHECK(avg_pool1d(random_f64({2, 3, 7}), {.kernel_size = 3, .stride = 2}).shape() == Shape{2, 3, 3});
}

TEST_CASE("avg_pool1d: gradients, and what it refuses") {
  for (const bool counts : {true, false}) {
    const AvgPool1dOptions options{.kernel_size = 4, .stride = 2, .padding = 2, .count_include_pad = counts};
    CHECK(gradcheck([&](const Inputs& in) { return avg_pool1d(in[0], options); }, {leaf_f64({2, 1, 7})}) == "");
  }
  CHECK(gradcheck([](const Inputs& in) { return avg_pool1d(in[0], {.kernel_size = 2, .stride = 3}); }, {leaf_f64({2, 6})}) ==
        "");
  const Tensor x = random_f64({1, 2});
  CHECK_THROWS_WITH_AS((void)avg_pool1d(x, {.kernel_size = 3}), "avg_pool1d: expected x (..., L >= 3), got (1, 2)", ShapeError);
  CHECK_THROWS_WITH_AS((void)avg_pool1d(x, {.kernel_size = 0}),
                       "avg_pool1d: expected kernel_size >= 1 and stride >= 1, got 0 and 0", ShapeError);
  CHECK_THROWS_WITH_AS((void)avg_pool1d(x, {.kernel_size = 3, .padding = 2}),
                       "avg_pool1d: expected padding in [0, kernel_size/2=1], got 2", ShapeError);
}
