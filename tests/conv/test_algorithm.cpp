#include "conv/algorithm.hpp"

#include <doctest/doctest.h>

#include <thread>

#include "tensor/error.hpp"

using namespace polyphase;

TEST_CASE("names, there and back") {
  for (const Algorithm a : {Algorithm::automatic, Algorithm::direct, Algorithm::depthwise, Algorithm::tensor_core,
                            Algorithm::gemm, Algorithm::reference})
    CHECK(parse_algorithm(name_of(a)) == a);
  for (const Precision p : {Precision::ieee, Precision::fp32, Precision::tf32}) CHECK(parse_precision(name_of(p)) == p);
  CHECK(concat(Algorithm::tensor_core, ' ', Precision::tf32) == "tensor_core tf32");
}

TEST_CASE("unknown names") {
  CHECK_THROWS_WITH_AS(static_cast<void>(parse_algorithm("fft")),
                       "algorithm: expected one of automatic, direct, depthwise, tensor_core, gemm, reference; got 'fft'",
                       Error);
  CHECK_THROWS_WITH_AS(static_cast<void>(parse_precision("")), "precision: expected one of ieee, fp32, tf32; got ''", Error);
}

TEST_CASE("guards nest, and belong to their thread") {
  CHECK(current_algorithm() == Algorithm::automatic);
  CHECK(current_precision() == Precision::fp32);
  {
    const AlgorithmGuard outer(Algorithm::gemm);
    const PrecisionGuard precise(Precision::ieee);
    {
      const AlgorithmGuard inner(Algorithm::reference);
      const PrecisionGuard coarse(Precision::tf32);
      CHECK(current_algorithm() == Algorithm::reference);
      CHECK(current_precision() == Precision::tf32);
    }
    CHECK(current_algorithm() == Algorithm::gemm);
    CHECK(current_precision() == Precision::ieee);
    std::thread([] { CHECK(current_algorithm() == Algorithm::automatic); }).join();
  }
  CHECK(current_algorithm() == Algorithm::automatic);
  CHECK(current_precision() == Precision::fp32);
}
