// The main of every test program: doctest's, plus a last line `test cases: P passed, F failed, S skipped` that
// tools/count_tests.py adds up over all programs.
//
// POLYPHASE_TEST_DEVICE=cuda:0 makes that device the default of the run, so that tests without a device of their own test it.
// If the device does not exist, the program is skipped (exit status 77).
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "support/skip.hpp"
#include "tensor/device.hpp"
#include "tensor/error.hpp"

namespace {

struct Counts {
  int passed = 0;
  int failed = 0;
  int skipped = 0;
  std::string skip_reason;  // the reason why the current case is skipped; empty if it is not
};

Counts& counts() {
  static Counts instance;
  return instance;
}

// Counts cases. doctest's own summary also counts cases that were filtered out.
struct CountingListener : doctest::IReporter {
  explicit CountingListener(const doctest::ContextOptions&) {}

  void test_case_start(const doctest::TestCaseData& data) override {
    name_ = data.m_name;
    counts().skip_reason.clear();
  }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    if (!stats.testCaseSuccess) {
      ++counts().failed;
    } else if (!counts().skip_reason.empty()) {
      ++counts().skipped;
      std::printf("skipped: %s: %s\n", name_.c_str(), counts().skip_reason.c_str());
    } else {
      ++counts().passed;
    }
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  std::string name_;
};

REGISTER_LISTENER("counts", 1, CountingListener);

}  // namespace

void polyphase::testing::mark_skipped(const char* reason) { counts().skip_reason = reason; }

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  std::optional<polyphase::DeviceGuard> device;
  if (const char* name = std::getenv("POLYPHASE_TEST_DEVICE"); name != nullptr) {
    try {
      device.emplace(polyphase::Device::parse(name));
    } catch (const polyphase::DeviceError& error) {
      std::printf("skipped: %s\n", error.what());
      return 77;
    }
  }
  const int status = context.run();
  if (context.shouldExit()) return status;  // a query, such as --list-test-cases
  const Counts& total = counts();
  std::printf("test cases: %d passed, %d failed, %d skipped\n", total.passed, total.failed, total.skipped);
  if (status == 0 && total.passed + total.failed + total.skipped == 0) {
    std::printf("no test case ran\n");
    return 1;
  }
  return status;
}
