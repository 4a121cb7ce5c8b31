#include "program/arguments.hpp"

#include <CLI/CLI.hpp>

#include <cstdint>

#include "program/program.hpp"
#include "tensor/error.hpp"

namespace polyphase::program {
namespace {

template <class Read>
void read_option(const std::string& name, const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    throw UsageError(name + ": " + error.what());
  }
}

}  // namespace

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::separated_by(char separator) {
  option_->delimiter(separator);
  return *this;
}

Option& Option::shows_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::in_range(int low, int high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

Option& Option::in_range(double low, double high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

Option& Option::above_zero() {
  option_->check(CLI::Validator(
      [](const std::string& text) {
        double value = 0;
        const bool is_above = CLI::detail::lexical_cast(text, value) && value > 0;
        return is_above ? std::string() : "expected a number above 0, got " + text;
      },
      ""));
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

std::size_t Option::count() const { return option_->count(); }
std::string Option::name() const { return option_->get_single_name(); }
std::string Option::as_text() const { return option_->results().back(); }

template <class Value>
Option Arguments::add_option(const std::string& name, Value& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}
template Option Arguments::add_option(const std::string&, int&, const std::string&);
template Option Arguments::add_option(const std::string&, std::int64_t&, const std::string&);
template Option Arguments::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option Arguments::add_option(const std::string&, double&, const std::string&);
template Option Arguments::add_option(const std::string&, std::string&, const std::string&);
template Option Arguments::add_option(const std::string&, std::vector<std::int64_t>&, const std::string&);
template Option Arguments::add_option(const std::string&, std::vector<std::string>&, const std::string&);

Option Arguments::add_flag(const std::string& name, bool& value, const std::string& help) {
  return Option(app_->add_flag(name, value, help));
}

Option Arguments::add_function(const std::string& name, const std::function<void(const std::string&)>& read,
                               const std::string& help) {
  return Option(app_->add_option_function<std::string>(
      name, [name, read](const std::string& text) { read_option(name, [&] { read(text); }); }, help));
}

Option Arguments::add_number_function(const std::string& name, const std::function<void(int)>& read, const std::string& help) {
  return Option(app_->add_option_function<int>(
      name, [name, read](const int& number) { read_option(name, [&] { read(number); }); }, help));
}

Option Arguments::add_list_function(const std::string& name, const std::function<void(const std::vector<std::string>&)>& read,
                                    const std::string& help) {
  return Option(app_->add_option_function<std::vector<std::string>>(
      name, [name, read](const std::vector<std::string>& texts) { read_option(name, [&] { read(texts); }); }, help));
}

Arguments Arguments::add_subcommand(const std::string& name, const std::string& description) {
  return Arguments(app_->add_subcommand(name, description));
}

void Arguments::add_help_of_all(const std::string& name, const std::string& help) { app_->set_help_all_flag(name, help); }
void Arguments::callback(const std::function<void()>& called) { app_->callback(called); }

Option Arguments::option(const std::string& name) const { return Option(app_->get_option(name)); }

std::vector<Option> Arguments::given() const {
  std::vector<Option> options;
  for (CLI::Option* option : app_->get_options([](const CLI::Option* one) { return one->count() > 0; }))
    options.emplace_back(option);
  return options;
}

}  // namespace polyphase::program
