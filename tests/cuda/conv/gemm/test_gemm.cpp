#include "cuda/conv/gemm/gemm.hpp"

#include <doctest/doctest.h>

#include "conv/workspace.hpp"
#include "cuda/memory/allocator.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr std::size_t kWorkspace = (8 << 20) + 1024;  // cuBLAS's own workspace; two buffers rounded up to 512 bytes

struct LimitScope {
  std::size_t before = conv_workspace_limit();
  explicit LimitScope(std::size_t bytes) { set_conv_workspace_limit(bytes); }
  ~LimitScope() { set_conv_workspace_limit(before); }
};

}  // namespace

TEST_CASE("the grid, every type and misalignment") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  double norm = 0;
  int turn = 0;
  for (const ConvProblem& p : grid_problems(false)) {
    norm += check_gpu_bits<float>(p, by_algorithm(Algorithm::gemm), turn % 5);
    if (turn % 3 == 0) check_gpu_bits<double>(p, by_algorithm(Algorithm::gemm), turn % 2);
    if (turn % 3 == 1) check_gpu_bits<Half>(p, by_algorithm(Algorithm::gemm), turn % 3);
    if (turn % 3 == 2) check_gpu_bits<BFloat16>(p, by_algorithm(Algorithm::gemm), turn % 3);
    ++turn;
  }
  CHECK(norm > 0);
}

TEST_CASE("pieces: any limit gives the same integers and is kept") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  for (const std::size_t limit : {4000U, 20000U, 100000U, 400000U}) {
    const LimitScope scope(limit);
    for (const ConvProblem& p :
         {sized({.N = 3, .C_in = 6, .C_out = 4, .L_in = 500, .K = 5, .S = 2, .P_l = 2, .P_r = 1, .OP = 1, .D = 3}),
          sized({.N = 2, .C_in = 6, .C_out = 6, .L_in = 301, .K = 4, .S = 4, .P_l = 1, .G = 3}),
          sized({.N = 2, .C_in = 4, .C_out = 4, .L_in = 333, .K = 3, .S = 5, .P_l = 1, .D = 7})}) {
      const MemoryStats before = cuda::allocator(0).stats();
      cuda::allocator(0).reset_peak();
      CHECK(check_gpu_bits<float>(p, by_algorithm(Algorithm::gemm)) > 0);
      CHECK(check_gpu_bits<Half>(p, by_algorithm(Algorithm::gemm)) > 0);
      CHECK(cuda::allocator(0).stats().peak_bytes - before.live_bytes <= limit + kWorkspace);
    }
  }
}

TEST_CASE("gradients of one tap need no columns") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  for (const ConvProblem& p : {sized({.N = 3, .C_in = 6, .C_out = 10, .L_in = 131, .K = 1}),
                               sized({.N = 5, .C_in = 6, .C_out = 9, .L_in = 64, .K = 1, .G = 3}),
                               sized({.N = 2, .C_in = 8, .C_out = 12, .L_in = 77, .K = 1, .G = 4}),
                               sized({.N = 2, .C_in = 4, .C_out = 3, .L_in = 50, .K = 1, .D = 3}),
                               sized({.N = 2, .C_in = 4, .C_out = 3, .L_in = 50, .K = 1, .P_l = 2}),
                               sized({.N = 2, .C_in = 4, .C_out = 3, .L_in = 50, .K = 1, .S = 2}),
                               sized({.N = 2, .C_in = 4, .C_out = 3, .L_in = 50, .K = 1, .P_r = 1})}) {
    CAPTURE(p);
    CHECK(check_gpu_bits<float>(p, by_algorithm(Algorithm::gemm)) > 0);
    CHECK(check_gpu_bits<double>(p, by_algorithm(Algorithm::gemm), 1) > 0);
    CHECK(check_gpu_bits<Half>(p, by_algorithm(Algorithm::gemm), 1) > 0);
    CHECK(check_gpu_bits<BFloat16>(p, by_algorithm(Algorithm::gemm)) > 0);
  }
}

TEST_CASE("a limit below the smallest piece is refused with both numbers") {
  const LimitScope scope(100);
  const ConvProblem p = sized({.C_in = 4, .C_out = 8, .L_in = 16, .K = 5});
  CHECK(cuda::gemm::can_implement(p, ConvDirection::dgrad) ==
        "its smallest piece needs 160 bytes of workspace, the limit is 100");
}
