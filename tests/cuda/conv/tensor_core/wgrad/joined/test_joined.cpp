#include "cuda/conv/tensor_core/wgrad/joined/joined.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "conv/workspace.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/conv/tensor_core/wgrad/tiling.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

namespace {

/// Batches of short samples: a discriminator's columns and others.
std::vector<ConvProblem> batches() {
  std::vector<ConvProblem> all;
  for (const ConvProblem& p :
       {ConvProblem{.N = 40, .C_in = 64, .C_out = 64, .L_in = 10, .K = 5, .P_l = 2, .P_r = 2},
        ConvProblem{.N = 33, .C_in = 128, .C_out = 64, .L_in = 9, .K = 5, .S = 3, .P_l = 2, .P_r = 2, .OP = 1},
        ConvProblem{.N = 21, .C_in = 64, .C_out = 32, .L_in = 17, .K = 41, .S = 4, .P_l = 20, .P_r = 20, .OP = 3, .G = 2},
        ConvProblem{.N = 12, .C_in = 32, .C_out = 40, .L_in = 21, .K = 4, .S = 1, .P_l = 0, .P_r = 0, .D = 3},
        ConvProblem{.N = 16, .C_in = 48, .C_out = 32, .L_in = 7, .K = 2, .S = 5, .P_l = 0, .P_r = 0, .OP = 2}})
    all.push_back(sized(p));
  return all;
}

/// Batches with so many channels that joining them takes less time.
std::vector<ConvProblem> wide_batches() {
  return {sized({.N = 240, .C_in = 256, .C_out = 256, .L_in = 10, .K = 5, .P_l = 2, .P_r = 2}),
          sized({.N = 96, .C_in = 256, .C_out = 256, .L_in = 9, .K = 5, .S = 3, .P_l = 2, .P_r = 2, .OP = 1})};
}

/// As copy_joined() on the host.
template <class E>
void join_on_host(Array<E>& to, const Array<E>& from, std::int64_t N, std::int64_t C, std::int64_t L, std::int64_t pitch,
                  std::int64_t length) {
  for (std::int64_t i = 0; i < to.size(); ++i) to[i] = E(0.0F);
  for (std::int64_t n = 0; n < N; ++n)
    for (std::int64_t c = 0; c < C; ++c)
      for (std::int64_t i = 0; i < L; ++i) to[c * length + n * pitch + i] = from[(n * C + c) * L + i];
}

tensor_core::WgradPlan plan_of(const ConvProblem& p, int parts) {
  return tensor_core::make_wgrad_plan(p, parts, static_cast<int>(size_of(p.dtype)), kSmsOfHopper, kSharedOfHopper,
                                      conv_workspace_limit());
}

template <class E>
void check_on_gpu(ConvProblem p, Precision precision) {
  p.dtype = dtype_of<E>;
  ConvArrays<E> arrays(p, kSmallIntegers);
  const auto check = [&] {
    const Array<E> expected = arrays.run(ConvDirection::wgrad, Algorithm::reference);
    bool intact = false;
    const Array<E> got =
        run_on_gpu(arrays, ConvDirection::wgrad, by_algorithm(Algorithm::tensor_core, precision), intact, true, 0);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < got.size(); ++i) {
      const double a = as_double(got[i]), b = as_double(expected[i]);
      wrong += a == b || (std::isnan(a) && std::isnan(b)) ? 0 : 1;
    }
    CHECK_MESSAGE(wrong == 0, p, ' ', precision);
    CHECK(intact);
  };
  check();
  // Next to the zeros between samples.
  arrays.y[0] = E(std::numeric_limits<float>::infinity());
  arrays.x[p.L_in - 1] = E(std::numeric_limits<float>::quiet_NaN());
  check();
}

}  // namespace

TEST_CASE("the joined problem has the weight gradient of the batch") {
  for (const ConvProblem& p : batches()) {
    CAPTURE(p);
    const auto joined = tensor_core::join_samples(p);
    REQUIRE(joined);
    const ConvProblem& q = joined->problem;
    CHECK(q.N == 1);
    CHECK(q.L_in % 8 == 0);
    CHECK(q.L_out == conv_transpose1d_length(q.L_in, q.K, q.S, q.P_l, q.P_r, q.OP, q.D));
    CHECK(tensor_core::joined_bytes(*joined) == (q.C_in * q.L_in + q.C_out * q.L_out) * 4);
    const ConvArrays<float> apart(p, kSmallIntegers);
    ConvArrays<float> together(q, kSmallIntegers);
    join_on_host(together.x, apart.x, p.N, p.C_in, p.L_in, joined->pitch, q.L_in);
    join_on_host(together.y, apart.y, p.N, p.C_out, p.L_out, joined->pitch * p.S, q.L_out);
    CHECK(same_bits(together.run(ConvDirection::wgrad, Algorithm::reference),
                    apart.run(ConvDirection::wgrad, Algorithm::reference)));
  }
  CHECK_FALSE(tensor_core::join_samples(sized({.N = 1, .C_in = 8, .C_out = 8, .L_in = 10, .K = 3})));
  CHECK_FALSE(tensor_core::join_samples(sized({.N = 1 << 20, .C_in = 8, .C_out = 8, .L_in = 4096, .K = 3})));
}

TEST_CASE("short samples are joined, long ones are not") {
  ConvProblem p = sized({.N = 352, .C_in = 1024, .C_out = 1024, .L_in = 10, .K = 5, .P_l = 2, .P_r = 2});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    p.dtype = dtype;
    const tensor_core::WgradPlan plan = plan_of(p, dtype == DType::f32 ? 2 : 1);
    REQUIRE(plan.joined);
    CHECK(plan.joined->pitch == 12);
    CHECK(plan.tiling.cost < 0.5 * tensor_core::make_wgrad_tiling(p, dtype == DType::f32 ? 2 : 1,
                                                                  static_cast<int>(size_of(dtype)), kSmsOfHopper,
                                                                  kSharedOfHopper, conv_workspace_limit())
                                       .cost);
    CHECK(plan.tiling.cost == *tensor_core::wgrad_cost(p, Precision::fp32, kSmsOfHopper, kSharedOfHopper));
  }
  for (ConvProblem batch : wide_batches())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      CAPTURE(batch);
      batch.dtype = dtype;
      CHECK(plan_of(batch, dtype == DType::f32 ? 2 : 1).joined);
    }
  const ConvProblem whole = sized({.N = 16, .C_in = 64, .C_out = 64, .L_in = 4096, .K = 3, .P_l = 1, .P_r = 1});
  CHECK_FALSE(plan_of(whole, 2).joined);
}

TEST_CASE("joined rows on a GPU are those of the host, with zeros between and behind the samples") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const std::int64_t N = 5, C = 3, L = 7, pitch = 9, length = 48;
  Array<BFloat16> from(N * C * L), expected(C * length);
  from.small_integers(1);
  join_on_host(expected, from, N, C, L, pitch, length);
  const DeviceArray<BFloat16> source(from, 1), target(Array<BFloat16>(C * length).poison(), 0);
  tensor_core::copy_joined(target.data(), source.data(), 2, N, C, L, pitch, length, cuda::current_stream(0));
  CHECK_CUDA(cudaDeviceSynchronize());
  bool intact = false;
  CHECK(same_bits(target.download(intact), expected));
  CHECK(intact);
}

TEST_CASE("joined samples: small integers bit for bit, infinities next to the zeros between samples") {
  if (cuda::device_count() == 0 || cuda::properties(0).arch() != 90 || tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  for (const ConvProblem& p : wide_batches()) {
    check_on_gpu<float>(p, Precision::fp32);
    check_on_gpu<float>(p, Precision::tf32);
    check_on_gpu<Half>(p, Precision::fp32);
    check_on_gpu<BFloat16>(p, Precision::fp32);
  }
}
