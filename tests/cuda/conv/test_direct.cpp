#include "cuda/conv/direct.hpp"

#include <doctest/doctest.h>

#include "support/cuda_conv_grid.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr int kTiles = 8;  // rows of the table in direct_launch.cuh

auto with_tile(int tile) {
  return [tile](const GpuCall& call) {
    if (call.direction == ConvDirection::wgrad)
      return cuda::direct::wgrad(call.problem, call.first, call.second, call.out, 0, call.stream);
    cuda::direct::gather(call.problem, call.direction, call.first, call.second, call.bias, call.out, {}, 0, call.stream, tile);
  };
}

}  // namespace

TEST_CASE("f32: the grid, over the tiles and misalignments") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  double norm = 0;
  int turn = 0;
  for (const ConvProblem& p : grid_problems(false)) {
    norm += check_gpu_bits<float>(p, with_tile(turn % (kTiles + 1) - 1), turn % 5);
    ++turn;
  }
  CHECK(norm > 0);
}

TEST_CASE("every tile: strides that have their own way of storing, long rows, many columns") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  for (int tile = 0; tile < kTiles; ++tile)
    for (const std::int64_t S : {1, 2, 4, 8}) {
      CHECK(check_gpu_bits<float>(sized({.N = 1, .C_in = 21, .C_out = 70, .L_in = 1031, .K = 2 * S + 1, .S = S, .P_l = S / 2}),
                                  with_tile(tile), tile % 3) > 0);
      CHECK(check_gpu_bits<float>(sized({.N = 2, .C_in = 9, .C_out = 20, .L_in = 600, .K = 3, .S = S, .P_l = 1, .D = S}),
                                  with_tile(tile)) > 0);
    }
}

TEST_CASE("other types, misaligned") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  int turn = 0;
  for (const ConvProblem& p : grid_problems(false)) {
    if (++turn % 3 != 0) continue;
    check_gpu_bits<double>(p, with_tile(-1), turn % 2);
    check_gpu_bits<Half>(p, with_tile(-1), turn % 4);
    check_gpu_bits<BFloat16>(p, with_tile(-1), turn % 4);
  }
}

TEST_CASE("the epilogue: bias and activation on every way of storing") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  for (const ConvProblem& p : {sized({.N = 1, .C_in = 3, .C_out = 18, .L_in = 150, .K = 5}),
                               sized({.N = 1, .C_in = 3, .C_out = 18, .L_in = 150, .K = 4, .S = 2}),
                               sized({.N = 1, .C_in = 3, .C_out = 18, .L_in = 150, .K = 3, .S = 2, .D = 2}),
                               sized({.N = 1, .C_in = 3, .C_out = 18, .L_in = 150, .K = 3, .S = 5})}) {
    const ConvArrays<float> arrays(p, kSmallIntegers);
    bool intact = false;
    const Array<float> plain = run_on_gpu(arrays, ConvDirection::forward, with_tile(-1), intact);
    const auto leaky = [](const GpuCall& call) {
      const cuda::Epilogue epilogue{cuda::Activation::leaky_relu, 0.5F};
      cuda::direct::gather(call.problem, call.direction, call.first, call.second, call.bias, call.out, epilogue, 0,
                           call.stream);
    };
    const Array<float> got = run_on_gpu(arrays, ConvDirection::forward, leaky, intact);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < got.size(); ++i) wrong += got[i] != (plain[i] > 0 ? plain[i] : plain[i] * 0.5F);
    CHECK(wrong == 0);
  }
}
