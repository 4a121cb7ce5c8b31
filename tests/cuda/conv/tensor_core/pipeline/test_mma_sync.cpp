#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"

#include <doctest/doctest.h>

#include <initializer_list>

namespace tensor_core = polyphase::cuda::tensor_core;

TEST_CASE("which GPUs convolve by mma.sync") {
  CHECK_FALSE(tensor_core::uses_mma(75));
  for (const int arch : {80, 86, 89, 100, 120}) CHECK(tensor_core::uses_mma(arch));
}
