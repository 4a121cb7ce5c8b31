#include "program/program.hpp"

#include <CLI/CLI.hpp>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <new>
#include <sstream>

#include "distributed/distributed_error.hpp"

namespace polyphase::program {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

template <class Number>
bool is_a(const std::string& text) {
  const char* const end = text.data() + text.size();
  const char* const begin = text.data() + (text.starts_with("+") ? 1 : 0);
  Number value{};
  const auto parsed = std::from_chars(begin, end, value);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

// CLI11's own conversion turns -1 into 2^64 - 1, and numbers out of range into the nearest number.
void check_numbers(CLI::App& app) {
  const auto check = [](CLI::Option* option, const char* expected, bool (*accepts)(const std::string&)) {
    option->check(CLI::Validator(
        [=](const std::string& text) { return accepts(text) ? std::string() : concat("expected ", expected, ", got ", text); },
        ""));
  };
  for (CLI::Option* option : app.get_options([](const CLI::Option*) { return true; })) {
    const std::string type = option->get_type_name();
    if (type.starts_with("INT")) check(option, "a whole number of 64 bits", is_a<std::int64_t>);
    if (type.starts_with("UINT")) check(option, "a whole number from 0 to 2^64 - 1", is_a<std::uint64_t>);
    if (type.starts_with("FLOAT")) check(option, "a number", is_a<double>);
  }
  for (CLI::App* subcommand : app.get_subcommands([](const CLI::App*) { return true; })) check_numbers(*subcommand);
}

// "info, check or bench"; empty where there are no subcommands.
std::string subcommands_of(const CLI::App& app) {
  std::string text;
  const auto all = app.get_subcommands([](const CLI::App*) { return true; });
  for (std::size_t i = 0; i < all.size(); ++i) text += (i == 0 ? "" : i + 1 == all.size() ? " or " : ", ") + all[i]->get_name();
  return text;
}

// CLI11 reports a misspelt subcommand as an unexpected argument and does not list the subcommands.
std::string sentence_of_parse(const CLI::App& app, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && app.get_subcommands().empty()) {
    const std::string known = subcommands_of(app);
    for (const std::string& word : app.remaining())
      if (!known.empty() && !word.starts_with("-")) return concat("expected a subcommand: ", known, ", got ", word);
  }
  return sentence_of(error);
}

int parse_and_act(int argc, char** argv, CLI::App& app, const std::function<void(Arguments&, Action&)>& describe) {
  const std::string name = app.get_name();
  const auto refuse = [&](const std::string& sentence) {
    std::fprintf(stderr, "%s: %s (see %s --help)\n", name.c_str(), sentence.c_str(), name.c_str());
    return kUsageExit;
  };
  Action action;
  try {
    Arguments arguments(&app);
    describe(arguments, action);
    check_numbers(app);
    app.parse(argc, argv);
    if (!action) throw UsageError("expected a subcommand: " + subcommands_of(app));
    return action();
  } catch (const CLI::Success& request) {
    std::ostringstream text;  // --help, --version
    app.exit(request, text, text);
    std::fputs(text.str().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    return refuse(sentence_of_parse(app, error));
  } catch (const UsageError& error) {
    return refuse(error.what());
  }
}

// A full disk is detected when buffers are written: without this the program would end with success.
int finish_output(const std::string& name, int code) {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0 && std::cout) return code;
  const std::string reason = errno == 0 ? "" : concat(": ", std::strerror(errno));
  std::fprintf(stderr, "%s: standard output cannot be written%s\n", name.c_str(), reason.c_str());
  return code == 0 ? kErrorExit : code;
}

}  // namespace

std::string sentence_of(const std::exception& error) {
  const std::string text = first_line(error.what());
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "there is not enough memory";
  if (dynamic_cast<const std::length_error*>(&error) != nullptr) return "a size is larger than memory can hold";
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return concat(file->path1().string(), ": ", file->code().message());
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {  // "Could not convert: --factor = 2.5"
    const std::size_t begin = text.find(": "), end = text.find(" = ");
    if (begin < end && end != std::string::npos)
      return concat(text.substr(begin + 2, end - begin - 2), ": expected another value, got ", text.substr(end + 3));
  }
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) return text + ": expected only one of them";
  return text;
}

int run_main(int argc, char** argv, const std::string& name, const std::string& description,
             const std::function<void(Arguments&, Action&)>& describe) {
  int code = kErrorExit;
  try {
    CLI::App app(description, name);
    app.set_version_flag("--version", name + " " POLYPHASE_VERSION);
    app.require_subcommand(0, 1);  // otherwise CLI11 would report a missing subcommand before an unknown word
    code = parse_and_act(argc, argv, app, describe);
  } catch (const distributed::DistributedError& error) {
    std::fflush(stdout);
    if (error.should_print()) std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());  // once in a job
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", name.c_str(), sentence_of(error).c_str());
  }
  return finish_output(name, code);
}

}  // namespace polyphase::program
