// The polyphase command: runs published networks, describes the build, checks results, and times convolutions.
//
// Exit codes: 0 success; 1 a check failed, a file could not be read, a device is missing; 2 wrong usage.

#include "commands.hpp"
#include "cpu/threads.hpp"

int main(int argc, char** argv) {
  polyphase::wait_passively(argv);
  return polyphase::program::run_main(
      argc, argv, "polyphase",
      "polyphase: runs published networks; information about this build, checks of its results, benchmarks",
      [](polyphase::program::Arguments& app, polyphase::tool::Action& action) {
        polyphase::tool::add_run(app, action);
        polyphase::tool::add_networks(app, action);
        polyphase::tool::add_inspect(app, action);
        polyphase::tool::add_convert(app, action);
        polyphase::tool::add_info(app, action);
        polyphase::tool::add_check(app, action);
        polyphase::tool::add_bench(app, action);
      });
}
