#include "distributed/length_parallel.hpp"

#include <doctest/doctest.h>

#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "support/ranks.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::distributed;
using namespace polyphase::testing;

namespace {

constexpr std::int64_t kPiece = 40;  // of rank 0; rank r has 3*r samples more

std::int64_t begin_of(int rank) { return kPiece * rank + 3 * rank * (rank - 1) / 2; }

struct Case {
  Tensor x, w, b, g;  // of the whole; g is the result's gradient
};

// `convolve(x, w, b)` of the whole against `split(x, w, b)` of this rank's piece; the result is `stride` times as long.
template <class Whole, class Split>
void compare(Group& group, const Case& given, std::int64_t stride, const Whole& whole, const Split& split) {
  const auto mine = [&](const Tensor& tensor, std::int64_t scale) {
    return tensor.narrow(2, begin_of(group.rank()) * scale, (begin_of(group.rank() + 1) - begin_of(group.rank())) * scale);
  };
  Case a{given.x.clone(), given.w.clone(), given.b.clone(), given.g},
      b{mine(given.x, 1).clone(), given.w.clone(), given.b.clone(), mine(given.g, stride)};
  for (Case* each : {&a, &b}) each->x.set_requires_grad(true), each->w.set_requires_grad(true), each->b.set_requires_grad(true);
  const Tensor y = whole(a.x, a.w, a.b), y_split = split(b.x, b.w, b.b);
  RANK_CHECK(max_difference(mine(y, stride), y_split) == 0);
  y.backward(a.g);
  y_split.backward(b.g.contiguous());
  RANK_CHECK(max_difference(mine(a.x.grad(), 1), b.x.grad()) == 0);
  for (const auto& [all, part] : {std::pair(a.w.grad(), b.w.grad()), std::pair(a.b.grad(), b.b.grad())}) {
    group.communicator().all_reduce(part, Combine::sum, "gradient").wait();
    RANK_CHECK(max_difference(all, part) < kLongFloatSum);
  }
}

Tensor random(const Shape& shape, std::uint64_t seed) { return random_f64(shape, seed).to(DType::f32); }

}  // namespace

TEST_CASE("length parallel: Conv1d of pieces has the bits of the whole, forward and to the input") {
  for (const int world : {2, 3})
    CHECK(run_ranks(world, [](Group group) {
            const std::int64_t length = begin_of(group.world());
            for (const Conv1dOptions& options :
                 {Conv1dOptions{.padding = 3}, Conv1dOptions{.padding = {6, 0}},
                  Conv1dOptions{.padding = Padding::same(), .dilation = 3}, Conv1dOptions{.padding = {1, 5}, .groups = 2}}) {
              const Case given{random({2, 6, length}, 1), random({8, 6 / options.groups, 7}, 2), random({8}, 3),
                               random({2, 8, length}, 4)};
              compare(
                  group, given, 1, [&](const Tensor& x, const Tensor& w, const Tensor& b) { return conv1d(x, w, b, options); },
                  [&](const Tensor& x, const Tensor& w, const Tensor& b) { return conv1d_split(x, w, b, options, group); });
            }
          }) == "");
}

TEST_CASE("length parallel: ConvTranspose1d of pieces has the bits of the whole, forward and to the input") {
  for (const int world : {2, 3})
    CHECK(run_ranks(world, [](Group group) {
            const std::int64_t length = begin_of(group.world());
            for (const ConvTranspose1dOptions& options :
                 {ConvTranspose1dOptions{.stride = 4, .padding = 2}, ConvTranspose1dOptions{.stride = 2, .padding = {1, 5}},
                  ConvTranspose1dOptions{.stride = 8}, ConvTranspose1dOptions{.stride = 3, .padding = {0, 12}, .dilation = 2},
                  ConvTranspose1dOptions{.padding = {7, 0}, .groups = 2}}) {
              const Case given{random({2, 6, length}, 1), random({6, 8 / options.groups, 8}, 2), random({8}, 3),
                               random({2, 8, length * options.stride}, 4)};
              compare(
                  group, given, options.stride,
                  [&](const Tensor& x, const Tensor& w, const Tensor& b) { return conv_transpose1d(x, w, b, options); },
                  [&](const Tensor& x, const Tensor& w, const Tensor& b) {
                    return conv_transpose1d_split(x, w, b, options, group);
                  });
            }
          }) == "");
}

TEST_CASE("length parallel: what does not fit is refused, and one rank pads with zeros") {
  Group alone = init({.place = Place{}, .device = Device::cpu()});
  const Tensor x = Tensor::ones({1, 1, 4}), w = Tensor::ones({1, 1, 3});
  CHECK(with_halo(x, 1, 2, alone).to_vector<float>() == std::vector<float>{0, 1, 1, 1, 1, 0, 0});
  CHECK(conv1d_split(x, w, {}, {.padding = 1}, alone).to_vector<float>() == std::vector<float>{2, 3, 3, 2});
  CHECK_THROWS_WITH_AS(
      (void)conv1d_split(x, w, {}, {.padding = 0}, alone),
      "conv1d_split: expected stride 1 and zeros as padding, P_l + P_r = D*(K - 1) = 2, got stride 1 and padding 0 + 0",
      ShapeError);
  CHECK_THROWS_WITH_AS((void)conv_transpose1d_split(x, w, {}, {.stride = 2}, alone),
                       "conv_transpose1d_split: expected P_l + P_r = D*(K - 1) + 1 - S = 1 and no output padding, got padding "
                       "0 + 0 and output padding 0",
                       ShapeError);
  CHECK_THROWS_WITH_AS((void)with_halo(x, 5, 0, alone), "with_halo: expected pieces of at least 5 samples, got 4", ShapeError);
}
