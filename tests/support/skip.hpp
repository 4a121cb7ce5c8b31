#pragma once
// doctest decides before a run which cases it leaves out. A test that finds out only while running that it cannot be
// run here (no GPU, no clang) says so with SKIP_TEST and is reported as skipped, with the reason, never as passed.

namespace polyphase::testing {

/// Marks the running test case as skipped; an assertion that fails before or after still makes it a failure.
void mark_skipped(const char* reason);

}  // namespace polyphase::testing

/// Leaves the test case (or the function returning void that it is in): `if (no_gpu) SKIP_TEST("no CUDA device");`
#define SKIP_TEST(reason)                       \
  do {                                          \
    ::polyphase::testing::mark_skipped(reason); \
    return;                                     \
  } while (false)
