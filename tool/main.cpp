// The polyphase command: what this build is, whether it computes rightly, how fast it is.
//
// Exit codes: 0 all well; 1 a check failed, a file could not be read, a device is missing; 2 wrong usage.

#include <cstdio>
#include <exception>

#include "commands.hpp"
#include "cpu/threads.hpp"

namespace {

// CLI11's messages may have several lines; a person needs one.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

int run(int argc, char** argv) {
  CLI::App app("polyphase: what this build is, whether it computes rightly, how fast it is", "polyphase");
  app.set_version_flag("--version", "polyphase " POLYPHASE_VERSION);
  app.require_subcommand(0, 1);  // none at all is refused below: here it would be named before an unknown word
  polyphase::tool::Action action;
  polyphase::tool::add_info(app, action);
  polyphase::tool::add_check(app, action);
  polyphase::tool::add_bench(app, action);
  try {
    app.parse(argc, argv);
    if (!action) throw polyphase::tool::UsageError("expected a subcommand: info, check or bench");
    return action();
  } catch (const CLI::Success& request) {
    return app.exit(request);  // --help, --version
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "polyphase: %s (see polyphase --help)\n", first_line(error.what()).c_str());
  } catch (const polyphase::tool::UsageError& error) {
    std::fprintf(stderr, "polyphase: %s (see polyphase --help)\n", error.what());
  }
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  polyphase::wait_passively(argv);
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "polyphase: %s\n", error.what());
    return 1;
  }
}
