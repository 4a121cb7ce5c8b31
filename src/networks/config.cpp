#include "networks/config.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/json_reason.hpp"

namespace polyphase {

using Json = nlohmann::json;

namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 31;

Json parsed(const std::string& network, const std::string& text) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    throw FormatError(concat(network, ": config: ", json_reason(error)));
  }
}

}  // namespace

std::int64_t bounded_product(const std::vector<std::int64_t>& factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (product > INT64_MAX / factor) return INT64_MAX;
    product *= factor;
  }
  return product;
}

NetworkConfig::NetworkConfig(std::string network, const std::string& json)
    : NetworkConfig(network, "", parsed(network, json)) {}

NetworkConfig::NetworkConfig(std::string network, std::string path, const Json& json)
    : network_(std::move(network)), path_(std::move(path)), json_(std::make_shared<const Json>(json)) {
  expect(json.is_object(), "expected ", path_.empty() ? "an object" : "an object " + path_.substr(0, path_.size() - 1),
         ", got ", json.dump().substr(0, 80));
}

bool NetworkConfig::has(std::string_view key) const {
  const auto found = json_->find(std::string(key));
  return found != json_->end() && !found->is_null();
}

bool NetworkConfig::is_null(std::string_view key) const {
  const auto found = json_->find(std::string(key));
  return found != json_->end() && found->is_null();
}

const Json& NetworkConfig::at(std::string_view key) const {
  expect(has(key), "expected ", path_, key);
  return *json_->find(std::string(key));
}

NetworkConfig NetworkConfig::object(std::string_view key) const { return {network_, concat(path_, key, "."), at(key)}; }

std::string NetworkConfig::text(std::string_view key) const {
  const Json& value = at(key);
  expect(value.is_string() || value.is_number_integer(), "expected ", path_, key, " to be a text, got ", value.dump());
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string NetworkConfig::text(std::string_view key, std::string_view otherwise) const {
  return has(key) ? text(key) : std::string(otherwise);
}

bool NetworkConfig::flag(std::string_view key, bool otherwise) const {
  if (!has(key)) return otherwise;
  const Json& value = at(key);
  expect(value.is_boolean(), "expected ", path_, key, " to be true or false, got ", value.dump());
  return value.get<bool>();
}

double NetworkConfig::number(std::string_view key, double otherwise) const {
  if (!has(key)) return otherwise;
  const Json& value = at(key);
  expect(value.is_number(), "expected ", path_, key, " to be a number, got ", value.dump());
  return value.get<double>();
}

std::vector<double> NetworkConfig::numbers(std::string_view key) const {
  const Json& value = at(key);
  const bool fits = value.is_array() && !value.empty() &&
                    std::all_of(value.begin(), value.end(), [](const Json& one) { return one.is_number(); });
  expect(fits, "expected ", path_, key, " to be a list of numbers, got ", value.dump().substr(0, 80));
  return value.get<std::vector<double>>();
}

std::int64_t NetworkConfig::count_of(const Json& value, const std::string& key, std::int64_t least) const {
  const bool is_count = value.is_number_integer() && value >= least && value <= kLargest;
  expect(is_count, "expected ", key, " to be a whole number from ", least, " on, got ", value.dump().substr(0, 80));
  return value.get<std::int64_t>();
}

std::vector<std::int64_t> NetworkConfig::counts_of(const Json& value, const std::string& key) const {
  expect(value.is_array() && !value.empty(), "expected ", key, " to be a list of whole numbers, got ",
         value.dump().substr(0, 80));
  std::vector<std::int64_t> found;
  for (const Json& one : value) found.push_back(count_of(one, key, 1));
  return found;
}

std::int64_t NetworkConfig::count(std::string_view key, std::int64_t least) const {
  return count_of(at(key), concat(path_, key), least);
}

std::int64_t NetworkConfig::count_or(std::string_view key, std::int64_t otherwise, std::int64_t least) const {
  return has(key) ? count(key, least) : otherwise;
}

std::vector<std::int64_t> NetworkConfig::counts(std::string_view key) const { return counts_of(at(key), concat(path_, key)); }

std::vector<std::int64_t> NetworkConfig::count_or_counts(std::string_view key) const {
  return at(key).is_array() ? counts(key) : std::vector<std::int64_t>{count(key)};
}

std::vector<std::vector<std::int64_t>> NetworkConfig::lists_of_counts(std::string_view key) const {
  const Json& value = at(key);
  expect(value.is_array() && !value.empty(), "expected ", path_, key, " to be a list of lists, got ",
         value.dump().substr(0, 80));
  std::vector<std::vector<std::int64_t>> found;
  for (const Json& one : value) found.push_back(counts_of(one, concat(path_, key)));
  return found;
}

}  // namespace polyphase
