#include "cuda/runtime/presence.hpp"

#include <doctest/doctest.h>

#include "cuda/runtime/runtime.hpp"
#include "support/skip.hpp"

namespace cuda = polyphase::cuda;

TEST_CASE("which of a build's code runs on a GPU") {
  CHECK(cuda::code_arch("80 90a", 80) == 80);
  CHECK(cuda::code_arch("80 90a", 86) == 80);  // machine code of the same major version
  CHECK(cuda::code_arch("80 86 90a", 89) == 86);
  CHECK(cuda::code_arch("80 90a", 90) == 90);
  CHECK(cuda::code_arch("80 90a", 100) == 80);  // sm_80's PTX
  CHECK(cuda::code_arch("80", 90) == 80);
  CHECK(cuda::code_arch("80 90", 100) == 90);
  CHECK(cuda::code_arch("80 90a", 75) == 0);
  CHECK(cuda::code_arch("90a", 80) == 0);
  CHECK(cuda::code_arch("90a", 100) == 0);  // neither machine code nor PTX
  CHECK(cuda::code_arch("100f", 90) == 0);
  CHECK(cuda::code_arch("86", 80) == 0);  // an earlier minor version
  CHECK(cuda::code_arch("86", 89) == 86);
  CHECK(cuda::code_arch("90 80", 75) == 0);
  CHECK(cuda::code_arch("", 80) == 0);
}

TEST_CASE("a build that does not fit the GPU says which do, and what to configure") {
  CHECK(cuda::archs_problem(1, "Tesla T4", 75, "80 90a") ==
        "cuda:1 (Tesla T4, sm_75): this build has code for 80 90a; configure it with -Dgpu_archs=75");
  CHECK(cuda::archs_problem(0, "NVIDIA H200", 90, "80 90a").empty());
}

TEST_CASE("a driver that is missing or too old") {
  CHECK(cuda::driver_problem(0, 13000) == "no NVIDIA driver is installed");
  CHECK(cuda::driver_problem(11040, 12040) == "the NVIDIA driver supports CUDA 11.4, this build needs 12.4");
  CHECK(cuda::driver_problem(12020, 12040).empty());
  CHECK(cuda::driver_problem(13000, 12040).empty());
}

TEST_CASE("this build fits what it was configured for") {
  CHECK_FALSE(cuda::built_archs().empty());
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const cuda::DeviceProperties& gpu = cuda::properties(0);
  CHECK(cuda::archs_problem(0, gpu.name, gpu.arch(), cuda::built_archs()).empty());
  CHECK(cuda::describe_device(0).starts_with(gpu.name + ", sm_" + std::to_string(gpu.arch()) + ", "));
}
