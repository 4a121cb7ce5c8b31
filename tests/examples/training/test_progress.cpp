#include "training/progress.hpp"

#include <doctest/doctest.h>

using namespace training;

TEST_CASE("a line shows what fits, the step and the time left always") {
  const std::vector<std::string> parts{"loss -2.632", "SNR 16.5 dB", "LSD 1.03 (sinc 4.53)", "9.1 steps/s"};
  CHECK(progress_line(12, 1600, parts, 119, 79) ==
        "step   12/1600 | loss -2.632 | SNR 16.5 dB | LSD 1.03 (sinc 4.53) | 1:59 left");
  CHECK(progress_line(12, 1600, parts, 119, 100) ==
        "step   12/1600 | loss -2.632 | SNR 16.5 dB | LSD 1.03 (sinc 4.53) | 9.1 steps/s | 1:59 left");
  CHECK(progress_line(4, 5, {}, 0.4, 79) == "step 4/5 | 0 s left");
}

TEST_CASE("a line of large numbers stays within the width") {
  const std::vector<std::string> parts{"loss -12345678.632", "SNR -1234567.5 dB", "LSD 123456.03 (sinc 123456.53)",
                                       "123456.1 steps/s"};
  for (const std::int64_t total : {INT64_C(1600), INT64_C(123456789), INT64_C(999999999999), INT64_MAX}) {
    for (const double left : {1.0, 1e5, 1e9, 1e15}) {
      const std::string line = progress_line(total - 1, total, parts, left, 79);
      CHECK_MESSAGE(line.size() <= 79, line);
      CHECK_MESSAGE(line.ends_with(" left"), line);
    }
  }
}
