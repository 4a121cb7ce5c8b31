#include "networks/config.hpp"

#include <doctest/doctest.h>

#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

NetworkConfig config_of(const std::string& json) { return {"net", json}; }

template <class Read>
std::string error_for(const std::string& json, const Read& read) {
  return error_of<FormatError>([&] { return read(config_of(json)); });
}

}  // namespace

TEST_CASE("entries of every kind") {
  const NetworkConfig config = config_of(
      R"({"a": 3, "b": [1, 2], "c": [[1], [2, 3]], "d": "x", "e": true, "f": 0.5, "g": {"h": 7}, "i": null, "n": [1, 2.5]})");
  CHECK(config.count("a") == 3);
  CHECK(config.text("a") == "3");
  CHECK(config.counts("b") == std::vector<std::int64_t>{1, 2});
  CHECK(config.count_or_counts("a") == std::vector<std::int64_t>{3});
  CHECK(config.count_or_counts("b") == std::vector<std::int64_t>{1, 2});
  CHECK(config.lists_of_counts("c") == std::vector<std::vector<std::int64_t>>{{1}, {2, 3}});
  CHECK(config.text("d") == "x");
  CHECK(config.flag("e", false));
  CHECK(config.number("f", 1) == 0.5);
  CHECK(config.numbers("n") == std::vector<double>{1, 2.5});
  CHECK(config.object("g").count("h") == 7);
  CHECK(!config.has("i"));
  CHECK(config.is_null("i"));
  CHECK(!config.is_null("j"));
  CHECK(!config.is_null("a"));
}

TEST_CASE("a product that does not fit is the largest number") {
  CHECK(bounded_product({}) == 1);
  CHECK(bounded_product({3, 4, 5}) == 60);
  CHECK(bounded_product({std::int64_t{1} << 31, std::int64_t{1} << 31}) == std::int64_t{1} << 62);
  CHECK(bounded_product({std::int64_t{1} << 31, std::int64_t{1} << 31, 2}) == INT64_MAX);
}

TEST_CASE("entries that are absent or null have another value") {
  const NetworkConfig config = config_of(R"({"i": null})");
  CHECK(config.count_or("i", 5) == 5);
  CHECK(config.flag("j", true));
  CHECK(config.number("j", 2.5) == 2.5);
  CHECK(config.text("j", "y") == "y");
}

TEST_CASE("what does not fit is said with its place") {
  CHECK(error_for("{", [](const NetworkConfig& c) { return c.has("a"); }).starts_with("net: config: "));
  CHECK(error_for("[1]", [](const NetworkConfig& c) { return c.has("a"); }) == "net: config: expected an object, got [1]");
  const std::string text = R"({"g": {"h": -1, "k": 1e3, "l": [], "m": [0], "n": {}, "o": 5000000000}})";
  const auto in_g = [&](const auto& read) {
    return error_for(text, [&](const NetworkConfig& c) { return read(c.object("g")), 0; });
  };
  CHECK(in_g([](const NetworkConfig& c) { return c.count("h"); }) ==
        "net: config: expected g.h to be a whole number from 1 on, got -1");
  CHECK(in_g([](const NetworkConfig& c) { return c.count("k"); }).find("got 1000.0") != std::string::npos);
  CHECK(in_g([](const NetworkConfig& c) { return c.count("o"); }).find("got 5000000000") != std::string::npos);
  CHECK(in_g([](const NetworkConfig& c) { return c.counts("l"); }).find("g.l to be a list") != std::string::npos);
  CHECK(in_g([](const NetworkConfig& c) { return c.counts("m"); }).find("g.m") != std::string::npos);
  CHECK(in_g([](const NetworkConfig& c) { return c.lists_of_counts("m"); }).find("g.m") != std::string::npos);
  CHECK(in_g([](const NetworkConfig& c) { return c.text("n"); }).find("g.n to be a text") != std::string::npos);
  CHECK(in_g([](const NetworkConfig& c) { return c.flag("h", true); }).find("true or false") != std::string::npos);
  CHECK(in_g([](const NetworkConfig& c) { return c.number("n", 0); }).find("a number") != std::string::npos);
  CHECK(in_g([](const NetworkConfig& c) { return c.numbers("l"); }).find("g.l to be a list of numbers") != std::string::npos);
  CHECK(in_g([](const NetworkConfig& c) { return c.numbers("h"); }).find("got -1") != std::string::npos);
  CHECK(in_g([](const NetworkConfig& c) { return c.count("z"); }) == "net: config: expected g.z");
  CHECK(in_g([](const NetworkConfig& c) { return c.object("h"); }) == "net: config: expected an object g.h, got -1");
}
