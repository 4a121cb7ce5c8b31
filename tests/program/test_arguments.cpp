#include "program/arguments.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "program/program.hpp"
#include "tensor/error.hpp"

namespace {

namespace program = polyphase::program;

// The exit code of a program with these arguments, which `describe` adds.
template <class Describe>
int run(std::vector<std::string> words, const Describe& describe) {
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return program::run_main(static_cast<int>(argv.size()), argv.data(), "program", "A test.",
                           [&](program::Arguments& arguments, program::Action& action) {
                             action = [] { return 0; };
                             describe(arguments);
                           });
}

}  // namespace

TEST_CASE("options of every type are read") {
  int number = 0;
  std::int64_t large = 0;
  std::uint64_t seed = 0;
  double real = 0;
  bool flag = false;
  std::string text;
  std::vector<std::int64_t> sizes;
  std::vector<std::string> names;
  const int code = run({"--number", "3", "--large", "-5000000000", "--seed", "18446744073709551615", "--real", "0.5", "--flag",
                        "word", "--sizes", "1,2", "--names", "a", "--names", "b"},
                       [&](program::Arguments& arguments) {
                         arguments.add_option("--number", number, "");
                         arguments.add_option("--large", large, "");
                         arguments.add_option("--seed", seed, "");
                         arguments.add_option("--real", real, "");
                         arguments.add_flag("--flag", flag, "");
                         arguments.add_option("text", text, "");
                         arguments.add_option("--sizes", sizes, "").separated_by(',');
                         arguments.add_option("--names", names, "");
                       });
  CHECK(code == 0);
  CHECK(number == 3);
  CHECK(large == -5000000000);
  CHECK(seed == 18446744073709551615ULL);
  CHECK(real == 0.5);
  CHECK(flag);
  CHECK(text == "word");
  CHECK(sizes == std::vector<std::int64_t>{1, 2});
  CHECK(names == std::vector<std::string>{"a", "b"});
}

TEST_CASE("what an option does not accept is wrong usage") {
  const auto code_of = [](const std::vector<std::string>& words) {
    return run(words, [](program::Arguments& arguments) {
      static int number = 0;
      static double share = 0;
      static std::string name;
      const program::Option first = arguments.add_option("--number", number, "").in_range(1, 4);
      arguments.add_option("--share", share, "").in_range(0.0, 1.0).above_zero().excludes(first);
      arguments.add_option("--name", name, "").one_of({"a", "b"});
      arguments.add_function(
          "--parsed", [](const std::string& text) { throw polyphase::Error("not " + text); }, "");
      arguments.add_list_function(
          "--list",
          [](const std::vector<std::string>& texts) { polyphase::require<polyphase::Error>(texts.size() == 2, "two"); }, "");
    });
  };
  CHECK(code_of({"--number", "4", "--name", "b", "--list", "1", "2"}) == 0);
  CHECK(code_of({"--number", "5"}) == program::kUsageExit);
  CHECK(code_of({"--number", "2.5"}) == program::kUsageExit);
  CHECK(code_of({"--share", "1.5"}) == program::kUsageExit);
  CHECK(code_of({"--share", "0"}) == program::kUsageExit);
  CHECK(code_of({"--share", "0.5", "--number", "1"}) == program::kUsageExit);
  CHECK(code_of({"--name", "c"}) == program::kUsageExit);
  CHECK(code_of({"--parsed", "x"}) == program::kUsageExit);
  CHECK(code_of({"--list", "1"}) == program::kUsageExit);
  CHECK(code_of({"--unknown"}) == program::kUsageExit);
}

TEST_CASE("a required argument must be there") {
  const auto add = [](program::Arguments& arguments) {
    static std::string file;
    arguments.add_option("file", file, "").required();
  };
  CHECK(run({"a"}, add) == 0);
  CHECK(run({}, add) == program::kUsageExit);
}

TEST_CASE("a subcommand's callback sees the options that were given") {
  std::vector<std::string> given;
  std::string last;
  int calls = 0, threads = 0;
  const int code = run({"train", "--steps", "7", "--threads", "2"}, [&](program::Arguments& arguments) {
    static int steps = 1, batch = 2;
    program::Arguments train = arguments.add_subcommand("train", "");
    program::Arguments eval = arguments.add_subcommand("eval", "");
    arguments.add_help_of_all("--help-all", "");
    train.add_option("--steps", steps, "").shows_default();
    train.add_option("--batch", batch, "");
    train.add_number_function(
        "--threads", [&](int count) { threads = count; }, "");
    train.callback([&, train] {
      ++calls;
      for (const program::Option& option : train.given()) given.push_back(option.name());
      last = train.option("--steps").as_text();
      CHECK(train.option("--batch").count() == 0);
    });
    eval.callback([&] { ++calls; });
  });
  CHECK(code == 0);
  CHECK(calls == 1);
  CHECK(given == std::vector<std::string>{"steps", "threads"});
  CHECK(last == "7");
  CHECK(threads == 2);
}
