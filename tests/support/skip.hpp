#pragma once
// doctest decides before a run which cases it omits. A test that finds out while it runs that it cannot run here (no GPU, no
// clang) calls SKIP_TEST. It is reported as skipped, with the reason, never as passed.

namespace polyphase::testing {

/// Marks the running test case as skipped; if an assertion fails before or after, the case still fails.
void mark_skipped(const char* reason);

}  // namespace polyphase::testing

/// Leaves the test case, or the void function that contains it: `if (no_gpu) SKIP_TEST("...");`
#define SKIP_TEST(reason)                       \
  do {                                          \
    ::polyphase::testing::mark_skipped(reason); \
    return;                                     \
  } while (false)
