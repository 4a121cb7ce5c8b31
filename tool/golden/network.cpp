#include "golden/network.hpp"

#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <sstream>
#include <vector>

#include "layers/activations.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/linear.hpp"
#include "layers/norm.hpp"
#include "layers/upsample.hpp"

namespace polyphase::golden {
namespace {

// One layer as it is written.
class Term {
 public:
  Term(std::string text, bool bias) : text_(std::move(text)), has_bias(bias) {
    const std::size_t open = text_.find('(');
    name = text_.substr(0, open);
    if (open == std::string::npos) return;
    if (text_.back() != ')') fail("expected ')' at the end");
    std::istringstream arguments(text_.substr(open + 1, text_.size() - open - 2));
    for (std::string argument; std::getline(arguments, argument, ',');) read(argument);
  }

  [[noreturn]] void fail(const std::string& what) const { throw FormatError("network: layer " + text_ + ": " + what); }

  [[nodiscard]] std::int64_t whole(std::size_t position) const {
    if (position >= numbers_.size()) fail(concat("expected at least ", position + 1, " numbers, got ", numbers_.size()));
    return to_whole(numbers_[position]);
  }
  [[nodiscard]] double number_or(std::size_t position, double standard) const {
    return position < numbers_.size() ? numbers_[position] : standard;
  }
  [[nodiscard]] std::int64_t setting_or(const std::string& letters, std::int64_t standard) const {
    const auto found = settings_.find(letters);
    return found == settings_.end() ? standard : to_whole(found->second);
  }
  void expect_at_most(std::size_t numbers, const std::string& letters) const {
    if (numbers_.size() > numbers) fail(concat("expected at most ", numbers, " numbers, got ", numbers_.size()));
    for (const auto& [name_of_setting, value] : settings_) {
      if ((" " + letters + " ").find(" " + name_of_setting + " ") == std::string::npos)
        fail("unknown setting " + name_of_setting);
    }
  }

 private:
  std::int64_t to_whole(double value) const {
    constexpr double kLargest = 1e15;
    if (value != std::floor(value) || std::abs(value) > kLargest) fail(concat("expected a whole number, got ", value));
    return static_cast<std::int64_t>(value);
  }

  void read(const std::string& argument) {
    std::size_t letters = 0;
    while (letters < argument.size() && argument[letters] >= 'a' && argument[letters] <= 'z') ++letters;
    double value = 0;
    const char* end = argument.data() + argument.size();
    const auto result = std::from_chars(argument.data() + letters, end, value);
    if (result.ec != std::errc{} || result.ptr != end) fail("cannot read the argument '" + argument + "'");
    if (letters == 0) {
      numbers_.push_back(value);
    } else if (!settings_.emplace(argument.substr(0, letters), value).second) {
      fail("the setting " + argument.substr(0, letters) + " appears twice");
    }
  }

  std::string text_;
  std::vector<double> numbers_;
  std::map<std::string, double> settings_;

 public:
  std::string name;
  bool has_bias;
};

template <class M>
std::shared_ptr<Module> made(M module) {
  return std::make_shared<M>(std::move(module));
}

template <class M>
std::shared_ptr<Module> activation(const Term&) {
  return std::make_shared<M>();
}

std::shared_ptr<Module> conv1d_layer(const Term& t) {
  t.expect_at_most(3, "s p d g");
  return made(Conv1d({.in_channels = t.whole(0),
                      .out_channels = t.whole(1),
                      .kernel_size = t.whole(2),
                      .stride = t.setting_or("s", 1),
                      .padding = t.setting_or("p", 0),
                      .dilation = t.setting_or("d", 1),
                      .groups = t.setting_or("g", 1),
                      .bias = t.has_bias}));
}

std::shared_ptr<Module> conv_transpose1d_layer(const Term& t) {
  t.expect_at_most(3, "s p d g op");
  return made(ConvTranspose1d({.in_channels = t.whole(0),
                               .out_channels = t.whole(1),
                               .kernel_size = t.whole(2),
                               .stride = t.setting_or("s", 1),
                               .padding = t.setting_or("p", 0),
                               .output_padding = t.setting_or("op", 0),
                               .groups = t.setting_or("g", 1),
                               .bias = t.has_bias,
                               .dilation = t.setting_or("d", 1)}));
}

using Maker = std::shared_ptr<Module> (*)(const Term&);

const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> table = {
      {"Conv1d", conv1d_layer},
      {"ConvTranspose1d", conv_transpose1d_layer},
      {"Linear",
       [](const Term& t) { return made(Linear({.in_features = t.whole(0), .out_features = t.whole(1), .bias = t.has_bias})); }},
      {"Snake", [](const Term& t) { return made(Snake(t.whole(0))); }},
      {"SnakeBeta", [](const Term& t) { return made(SnakeBeta(t.whole(0))); }},
      {"GroupNorm", [](const Term& t) { return made(GroupNorm({.num_groups = t.whole(0), .num_channels = t.whole(1)})); }},
      {"BatchNorm1d", [](const Term& t) { return made(BatchNorm1d({.num_features = t.whole(0)})); }},
      {"ReLU", activation<ReLU>},
      {"LeakyReLU", [](const Term& t) { return made(LeakyReLU(t.number_or(0, 0.01))); }},
      {"ELU", [](const Term& t) { return made(ELU(t.number_or(0, 1.0))); }},
      {"GELU", activation<GELU>},
      {"SiLU", activation<SiLU>},
      {"Tanh", activation<Tanh>},
      {"Sigmoid", activation<Sigmoid>},
      {"Upsample", [](const Term& t) { return made(Upsample({.scale_factor = t.whole(0)})); }},
      {"PixelShuffle1d", [](const Term& t) { return made(PixelShuffle1d(t.whole(0))); }},
  };
  return table;
}

}  // namespace

Sequential parse_network(std::string_view text, const HasBias& has_bias) {
  Sequential network;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    const Term term(word, has_bias(network.size()));
    const auto maker = makers().find(term.name);
    if (maker == makers().end()) term.fail("unknown layer");
    if (maker->second != conv1d_layer && maker->second != conv_transpose1d_layer) term.expect_at_most(2, "");
    network.push_back(maker->second(term));
  }
  require<FormatError>(network.size() > 0, "network: expected at least one layer, got '", text, "'");
  network.to(DType::f64);
  return network;
}

}  // namespace polyphase::golden
