#pragma once
// The options and subcommands of a program. CLI11 reads them; its headers take seconds to compile, so only arguments.cpp and
// program.cpp include them.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace polyphase::program {

/// An option, or an argument without a name. Every function that changes it returns it.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& required();
  /// Several values may stand in one word, separated by `separator`.
  Option& separated_by(char separator);
  /// The help names the value that the variable has now.
  Option& shows_default();
  Option& in_range(int low, int high);  ///< both included
  Option& in_range(double low, double high);
  Option& above_zero();
  Option& one_of(const std::vector<std::string>& values);
  Option& excludes(const Option& other);

  [[nodiscard]] std::size_t count() const;    ///< how often it is on the command line
  [[nodiscard]] std::string name() const;     ///< without dashes
  [[nodiscard]] std::string as_text() const;  ///< its last value on the command line

 private:
  CLI::Option* option_;
};

/// The arguments of a program or of a subcommand. A handle: copies refer to the same arguments.
class Arguments {
 public:
  explicit Arguments(CLI::App* app) : app_(app) {}
  /// `name` begins with dashes unless it is an argument without a name. `value` is set while the command line is read. For int,
  /// std::int64_t, std::uint64_t, double, std::string, and vectors of std::int64_t and std::string.
  template <class Value>
  Option add_option(const std::string& name, Value& value, const std::string& help);
  Option add_flag(const std::string& name, bool& value, const std::string& help);
  /// Calls `read` with the value, or with all values of a list; an Error in it becomes wrong usage that names the option.
  Option add_function(const std::string& name, const std::function<void(const std::string&)>& read, const std::string& help);
  Option add_number_function(const std::string& name, const std::function<void(int)>& read, const std::string& help);
  Option add_list_function(const std::string& name, const std::function<void(const std::vector<std::string>&)>& read,
                           const std::string& help);
  Arguments add_subcommand(const std::string& name, const std::string& description);
  /// An option that prints the help of all subcommands.
  void add_help_of_all(const std::string& name, const std::string& help);
  /// Is called after the options are read, for a subcommand only if it is on the command line.
  void callback(const std::function<void()>& called);

  [[nodiscard]] Option option(const std::string& name) const;
  /// Those on the command line.
  [[nodiscard]] std::vector<Option> given() const;

 private:
  CLI::App* app_;
};

}  // namespace polyphase::program
