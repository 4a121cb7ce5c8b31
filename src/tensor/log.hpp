#pragma once
// What the library has to say besides errors: plans chosen, files ignored. Nothing is said unless asked for.

#include <functional>
#include <string_view>

namespace polyphase {

enum class LogLevel { info, warning };

/// Where messages go. Called from whichever thread has something to say, one at a time.
using LogCallback = std::function<void(LogLevel, std::string_view)>;

/// Replaces the callback. Default (also for an empty one): standard error if the environment variable POLYPHASE_LOG was set
/// when the program started, else nowhere.
void set_log_callback(LogCallback callback);

/// Whether POLYPHASE_LOG, a list of words, names `topic` (`plan`), or is `all`.
[[nodiscard]] bool log_topic(std::string_view topic);

/// Hands a message to the callback.
void log_message(LogLevel level, std::string_view text);

}  // namespace polyphase
