#include "cuda/conv/direct/direct.hpp"

#include <doctest/doctest.h>

#include <utility>

#include "cuda/conv/direct/tiling.hpp"
#include "cuda/conv/direct/wgrad_tiling.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using cuda::direct::Body;
using cuda::direct::kTiles32;
constexpr int kTiles = static_cast<int>(kTiles32.size());
constexpr int kH200Sms = 132;

auto with_tile(int tile, int slices = 0) {
  return [tile, slices](const GpuCall& call) {
    if (call.direction == ConvDirection::wgrad)
      return cuda::direct::wgrad(call.problem, call.first, call.second, call.out, 0, call.stream);
    cuda::direct::gather(call.problem, call.direction, call.first, call.second, call.bias, call.out, {}, 0, call.stream, tile,
                         slices);
  };
}

cuda::TapGemm form_of(const ConvProblem& problem, ConvDirection direction = ConvDirection::forward) {
  return cuda::make_tap_gemm(sized(problem), direction);
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

TEST_CASE("f32: the tiles and slices chosen for small problems") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  double norm = 0;
  for (const ConvProblem& p : grid_problems(false)) norm += check_gpu_bits<float>(p, with_tile(-1));
  int turn = 0;
  for (const std::int64_t S : {1, 2, 4, 5})
    for (const std::int64_t K : {S, 2 * S, 4 * S, 6 * S})
      for (const std::int64_t channels : {1, 17, 64}) {
        norm += check_gpu_bits<float>(
            sized({.N = 3, .C_in = 2 * channels, .C_out = 34, .L_in = 65, .K = K, .S = S, .P_l = S / 2, .G = turn % 2 + 1}),
            with_tile(-1, turn % 4));
        ++turn;
      }
  CHECK(norm > 0);
}

TEST_CASE("every tile: strides that have their own way of storing, long rows, many columns") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  int turn = 0;
  for (int tile = 0; tile < kTiles; ++tile)
    for (const std::int64_t S : {1, 2, 4, 8}) {
      if (++turn % 9 != 0 && is_reduced()) continue;
      CHECK(check_gpu_bits<float>(sized({.N = 1, .C_in = 21, .C_out = 70, .L_in = 1031, .K = 2 * S + 1, .S = S, .P_l = S / 2}),
                                  with_tile(tile), tile % 3) > 0);
      CHECK(check_gpu_bits<float>(sized({.N = 2, .C_in = 9, .C_out = 20, .L_in = 600, .K = 3, .S = S, .P_l = 1, .D = S}),
                                  with_tile(tile)) > 0);
    }
}

TEST_CASE("window tiles: taps in pieces, every step between them, whole and misaligned rows, groups, slices") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  double norm = 0;
  int turn = 0;
  for (int tile = 0; tile < kTiles; ++tile) {
    if (kTiles32[static_cast<std::size_t>(tile)].body != Body::window) continue;
    for (const std::int64_t D : {1, 2, 3, 4, 5, 8})
      for (const std::int64_t K : {1, 2, 3, 4, 5, 8, 11})
        for (const std::int64_t L_in : {300, 301}) {
          if (++turn % 53 != 0 && is_reduced()) continue;
          const ConvProblem p =
              sized({.N = 2, .C_in = 36, .C_out = 34, .L_in = L_in, .K = K, .P_l = turn % 7, .D = D, .G = turn % 2 + 1});
          const int slices = turn % 4 == 0 ? 1 + turn % 5 : 0;
          norm += check_gpu_bits<float>(p, with_tile(tile, slices), turn % 3 == 0 ? turn % 4 : 0);
        }
  }
  CHECK(norm > 0);
}

TEST_CASE("joined rows: tiles that run through many samples, every way of copying and storing, slices, groups") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  double norm = 0;
  int turn = 0;
  for (int tile = 0; tile < kTiles; ++tile) {
    if (kTiles32[static_cast<std::size_t>(tile)].body != Body::window) continue;
    for (const std::int64_t S : {1, 2, 4, 5})
      for (const std::int64_t L_in : {3, 16, 66, 140}) {
        if (++turn % 11 != 0 && is_reduced()) continue;
        const ConvProblem p = sized(
            {.N = 11, .C_in = 18, .C_out = 22, .L_in = L_in, .K = 2 * S, .S = S, .P_l = turn % 2 * (S - 1), .G = turn % 2 + 1});
        norm += check_gpu_bits<float>(p, with_tile(tile, turn % 3), turn % 5 == 0 ? 1 : 0);
      }
  }
  CHECK(norm > 0);
}

TEST_CASE("joined rows: a sample's pitch holds its positions and their halo, and tiles are fewer") {
  int joined = 0;
  for (const std::int64_t N : {1, 2, 32})
    for (const std::int64_t L_in : {1, 5, 64, 512, 2048, 70000})
      for (const std::int64_t S : {1, 4}) {
        const cuda::TapGemm gemm = form_of({.N = N, .C_in = 8, .C_out = 8, .L_in = L_in, .K = 2 * S, .S = S, .P_l = S / 2});
        const cuda::direct::Tile& tile = kTiles32[10];
        const std::int64_t pitch = cuda::direct::joined_pitch(gemm, tile);
        const std::int64_t apart = N * ((gemm.position_count + tile.positions - 1) / tile.positions);
        if (pitch == 0) {
          CHECK(cuda::direct::tiles_of_positions(gemm, tile) == apart);
          continue;
        }
        ++joined;
        CHECK(pitch % 4 == 0);
        CHECK(pitch >= gemm.position_count + (gemm.taps - 1) * gemm.tap_step);
        CHECK(cuda::direct::tiles_of_positions(gemm, tile) < apart);
        CHECK(cuda::direct::tiles_of_positions(gemm, tile) * tile.positions >= N * pitch);
      }
  CHECK(joined > 4);
  CHECK(cuda::direct::joined_pitch(form_of({.N = 32, .C_in = 8, .C_out = 8, .L_in = 512, .K = 8}), kTiles32[0]) == 0);
}

TEST_CASE("slices of long reductions: the same bits twice, positions without a tap, bias and activation once") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  for (const ConvProblem& p : {sized({.N = 1, .C_in = 300, .C_out = 40, .L_in = 50, .K = 16, .S = 8, .P_l = 4}),
                               sized({.N = 1, .C_in = 200, .C_out = 200, .L_in = 64, .K = 3, .S = 2, .P_l = 1, .D = 2})}) {
    const ConvArrays<float> arrays(p, kSmallIntegers);
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad})
      for (const int slices : {1, 2, 5, 16}) {
        if (is_reduced() && slices != 5) continue;
        const auto leaky = [slices](const GpuCall& call) {
          const cuda::Epilogue epilogue{cuda::Activation::leaky_relu, 0.5F};
          cuda::direct::gather(call.problem, call.direction, call.first, call.second, call.bias, call.out, epilogue, 0,
                               call.stream, 8, slices);
        };
        bool intact = false;
        const Array<float> plain = run_on_gpu(arrays, direction, with_tile(0), intact);
        const Array<float> got = run_on_gpu(arrays, direction, leaky, intact);
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i < got.size(); ++i) wrong += got[i] != (plain[i] > 0 ? plain[i] : plain[i] * 0.5F);
        CHECK(wrong == 0);
        CHECK(plain.norm() > 0);
        const ConvArrays<float> random(p, kNormal);
        CHECK(same_bits(run_on_gpu(random, direction, leaky, intact), run_on_gpu(random, direction, leaky, intact)));
      }
  }
}

TEST_CASE("one channel in: every number of taps, edge and misalignment, groups, activations") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  int turn = 0;
  for (std::int64_t K = 1; K <= 18; ++K)  // one more than the rule allows
    for (const std::int64_t L_in : {1, 17, 128, 500}) {
      if (++turn % 7 != 0 && is_reduced()) continue;
      const std::int64_t P = std::min((K - 1) / 2, (L_in + K - 2) / 2), G = turn % 2 + 1, many = G * (1 + turn * 5 % 37);
      const bool is_forward = turn % 3 == 0;
      const ConvProblem p = sized({.N = 2,
                                   .C_in = is_forward ? G : many,
                                   .C_out = is_forward ? many : G,
                                   .L_in = L_in,
                                   .K = K,
                                   .P_l = P,
                                   .P_r = P,
                                   .G = G});
      CHECK(check_gpu_bits<float>(p, with_tile(-1), turn % 4) > 0);
      const ConvArrays<float> arrays(p, kSmallIntegers);
      const ConvDirection direction = is_forward ? ConvDirection::forward : ConvDirection::dgrad;
      bool intact = false;
      const Array<float> plain = run_on_gpu(arrays, direction, with_tile(-1), intact);
      for (const cuda::Activation activation : {cuda::Activation::relu, cuda::Activation::leaky_relu}) {
        const float slope = activation == cuda::Activation::relu ? 0.0F : 0.5F;
        const Array<float> got = run_on_gpu(
            arrays, direction,
            [&](const GpuCall& call) {
              cuda::direct::gather(call.problem, call.direction, call.first, call.second, call.bias, call.out,
                                   {activation, slope}, 0, call.stream);
            },
            intact);
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i < got.size(); ++i) wrong += got[i] != (plain[i] > 0 ? plain[i] : plain[i] * slope);
        CHECK(wrong == 0);
      }
    }
}

TEST_CASE("the weight gradient by windows: strides, taps, edges and misalignments, tiles that are not full, groups") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  int turn = 0, windows = 0;
  for (const std::int64_t S : {1, 2, 4})
    for (const std::int64_t K : {7, 8, 15})
      for (const auto& [N, L_in] : {std::pair{66, 97}, std::pair{66, 128}, std::pair{29, 260}}) {
        if (++turn % 7 != 0 && is_reduced()) continue;
        const std::int64_t G = turn % 2 + 1, ci = turn % 3 == 0 ? 64 : 60, co = turn % 5 == 0 ? 30 : 32;
        const ConvProblem p = sized({.N = N / G,
                                     .C_in = G * ci,
                                     .C_out = G * co,
                                     .L_in = L_in,
                                     .K = K,
                                     .S = S,
                                     .P_l = turn % 5,
                                     .P_r = turn % 3,
                                     .G = G});
        windows += cuda::direct::make_wgrad_window_plan(p, nullptr, nullptr, kH200Sms) ? 1 : 0;
        const ConvArrays<float> arrays(p, kSmallIntegers);
        bool intact = false;
        const Array<float> got = run_on_gpu(arrays, ConvDirection::wgrad, with_tile(-1), intact, false, turn % 4);
        CHECK(intact);
        CHECK(same_bits(got, arrays.run(ConvDirection::wgrad, Algorithm::gemm)));
      }
  CHECK(windows > 0);
}

TEST_CASE("the weight gradient by windows: which shapes, and that its blocks cover every chunk") {
  const auto plan_of = [](const ConvProblem& p, const void* y = nullptr) {
    return cuda::direct::make_wgrad_window_plan(sized(p), nullptr, y, kH200Sms);
  };
  const ConvProblem up{.N = 32, .C_in = 64, .C_out = 32, .L_in = 2048, .K = 8, .S = 4, .P_l = 2, .P_r = 2};
  const auto plan = plan_of(up);
  REQUIRE(plan.has_value());
  CHECK(plan->blocks <= kH200Sms);
  CHECK(plan->slices * cuda::direct::kWindowHalves * plan->chunks_per_half >= plan->chunks);
  CHECK((plan->slices - 1) * cuda::direct::kWindowHalves * plan->chunks_per_half < plan->chunks);
  CHECK(plan->x_vector == 4);
  CHECK(plan->y_vector == 2);  // two elements of padding
  CHECK(plan_of(up, static_cast<const char*>(nullptr) + 4)->y_vector == 1);
  const auto changed = [&](auto change) {
    ConvProblem p = up;
    change(p);
    return plan_of(p).has_value();
  };
  CHECK(!changed([](ConvProblem& p) { p.D = 2; }));
  CHECK(!changed([](ConvProblem& p) { p.S = 3; }));
  CHECK(!changed([](ConvProblem& p) { p.K = 3; }));      // taps that do not fill a tile
  CHECK(!changed([](ConvProblem& p) { p.C_in = 16; }));  // channels that do not fill a tile
  CHECK(!changed([](ConvProblem& p) { p.N = 1, p.L_in = 64; }));
  CHECK(!changed([](ConvProblem& p) { p.dtype = DType::f64; }));
}

TEST_CASE("the steps of every possible tile hold all of gemm_k and fit their stage") {
  for (const ConvProblem& p : grid_problems(false))
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad})
      for (const cuda::direct::Tile& tile : kTiles32) {
        const cuda::TapGemm gemm = cuda::make_tap_gemm(p, direction);
        const bool is_window = tile.body == Body::window;
        if (cuda::direct::most_slices(gemm, tile, true) == 0) continue;
        const cuda::direct::Steps steps =
            is_window ? cuda::direct::make_window_steps(gemm, tile) : cuda::direct::make_tiling(gemm, tile, 4);
        CHECK((steps.source_words + steps.weight_words) * 4 <= tile.stage_bytes);
        CHECK(cuda::direct::shared_words(tile, steps) * 4 <= 227 * 1024);
        CHECK((steps.row_steps - 1) * steps.rows + steps.last_rows == gemm.rows);
        CHECK(steps.last_rows > 0);
        CHECK(steps.plane_steps * steps.planes >= gemm.planes);
        CHECK(steps.tap_steps * steps.taps >= gemm.taps);
      }
}

TEST_CASE("the window tiles take what they can, nothing else") {
  const auto tiling_of = [](const ConvProblem& p, ConvDirection direction = ConvDirection::forward) {
    return cuda::direct::make_window_steps(form_of(p, direction), kTiles32[8]);
  };
  const ConvProblem a{.N = 64, .C_in = 128, .C_out = 128, .L_in = 65536, .K = 3};
  CHECK(tiling_of(a).rows > 0);
  CHECK(tiling_of(a, ConvDirection::dgrad).rows > 0);
  CHECK(tiling_of({.C_in = 32, .C_out = 64, .L_in = 100, .K = 5, .D = 3}).rows > 0);
  CHECK(tiling_of({.C_in = 32, .C_out = 64, .L_in = 100, .K = 16, .S = 8}, ConvDirection::dgrad).rows > 0);
  CHECK(tiling_of({.C_in = 32, .C_out = 64, .L_in = 100, .K = 5, .S = 2}).rows == 0);      // a class has fewer taps
  CHECK(tiling_of({.C_in = 32, .C_out = 64, .L_in = 100, .K = 3, .D = 5}).rows == 0);      // taps five apart
  CHECK(tiling_of({.C_in = 32, .C_out = 64, .L_in = 9999, .K = 3, .D = 4000}).rows == 0);  // most of the window is unused
  const auto chosen = [](const ConvProblem& p, bool is_f32) {
    return kTiles32[cuda::direct::choose(kTiles32, form_of(p), kH200Sms, is_f32).tile].body;
  };
  CHECK(chosen(a, true) == Body::window);
  CHECK(chosen(a, false) == Body::general);
  CHECK(cuda::direct::choose(kTiles32, form_of(a), kH200Sms, true).slices == 1);
}

TEST_CASE("rows at multiples of 16 bytes: every tile's window begins at a quad, no output is lost") {
  for (const std::int64_t K : {1, 2, 3, 6, 9})
    for (const std::int64_t P : {0, 1, 2, 5}) {
      const ConvProblem p{.C_in = 2, .C_out = 2, .L_in = 64, .K = K, .P_l = P};
      const cuda::TapGemm before = form_of(p);
      cuda::TapGemm gemm = before;
      CHECK(cuda::direct::shift_to_quads(gemm, nullptr));
      CHECK((gemm.position_begin + gemm.source_origin) % 4 == 0);
      CHECK(gemm.position_begin <= before.position_begin);
      CHECK(gemm.position_begin > before.position_begin - 4);
      CHECK(gemm.position_begin + gemm.position_count == before.position_begin + before.position_count);
      gemm = before;
      gemm.source_length = 63;
      CHECK(!cuda::direct::shift_to_quads(gemm, nullptr));
    }
}

TEST_CASE("small N and a long reduction: gemm_k is split until the GPU has work") {
  const ConvProblem dac{.N = 1, .C_in = 1536, .C_out = 768, .L_in = 432, .K = 16, .S = 8, .P_l = 4, .P_r = 4};
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
    const cuda::TapGemm gemm = form_of(dac, direction);
    const cuda::direct::Choice choice = cuda::direct::choose(kTiles32, gemm, kH200Sms, true);
    CHECK(choice.slices > 1);
    CHECK(cuda::direct::estimate_cycles(gemm, kTiles32[choice.tile], choice.slices, kH200Sms) <
          cuda::direct::estimate_cycles(gemm, kTiles32[choice.tile], 1, kH200Sms));
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
