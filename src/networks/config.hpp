#pragma once
// Reads a published configuration, JSON with the original's keys. Internal.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tensor/error.hpp"

namespace polyphase {

/// The product of factors of at least 1, and the largest number there is where it would not fit.
[[nodiscard]] std::int64_t bounded_product(const std::vector<std::int64_t>& factors);

/// An object of a configuration. Every reader throws FormatError "NETWORK: config: ..." naming the key and what it holds.
class NetworkConfig {
 public:
  /// The whole text.
  NetworkConfig(std::string network, const std::string& json);

  [[nodiscard]] bool has(std::string_view key) const;      ///< and it is not null
  [[nodiscard]] bool is_null(std::string_view key) const;  ///< it is there and null
  [[nodiscard]] NetworkConfig object(std::string_view key) const;
  [[nodiscard]] std::string text(std::string_view key) const;  ///< a number counts as its digits
  [[nodiscard]] std::string text(std::string_view key, std::string_view otherwise) const;
  [[nodiscard]] bool flag(std::string_view key, bool otherwise) const;
  [[nodiscard]] double number(std::string_view key, double otherwise) const;
  [[nodiscard]] std::vector<double> numbers(std::string_view key) const;  ///< not empty
  /// At least `least`, at most 2^31.
  [[nodiscard]] std::int64_t count(std::string_view key, std::int64_t least = 1) const;
  [[nodiscard]] std::int64_t count_or(std::string_view key, std::int64_t otherwise, std::int64_t least = 1) const;
  /// Each at least 1; not empty.
  [[nodiscard]] std::vector<std::int64_t> counts(std::string_view key) const;
  [[nodiscard]] std::vector<std::int64_t> count_or_counts(std::string_view key) const;  ///< one number is a list of one
  [[nodiscard]] std::vector<std::vector<std::int64_t>> lists_of_counts(std::string_view key) const;

  /// Throws FormatError "NETWORK: config: what" unless `condition`.
  template <class... What>
  void expect(bool condition, const What&... what) const {
    require<FormatError>(condition, network_, ": config: ", what...);
  }

 private:
  NetworkConfig(std::string network, std::string path, const nlohmann::json& json);
  [[nodiscard]] const nlohmann::json& at(std::string_view key) const;
  [[nodiscard]] std::int64_t count_of(const nlohmann::json& value, const std::string& key, std::int64_t least) const;
  [[nodiscard]] std::vector<std::int64_t> counts_of(const nlohmann::json& value, const std::string& key) const;

  std::string network_;
  std::string path_;                            // of this object, with a dot at its end
  std::shared_ptr<const nlohmann::json> json_;  // by pointer: its header takes a compiler seconds
};

}  // namespace polyphase
