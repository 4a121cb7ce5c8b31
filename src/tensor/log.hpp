#pragma once
// Messages of the library besides errors: plans chosen, files ignored. Off by default.

#include <functional>
#include <string_view>

namespace polyphase {

enum class LogLevel { info, warning };

/// Receives messages. Called by any thread, one message at a time.
using LogCallback = std::function<void(LogLevel, std::string_view)>;

/// Replaces the callback. The default (also for an empty one) is standard error if the environment variable POLYPHASE_LOG was
/// set when the program started, else nothing.
void set_log_callback(LogCallback callback);

/// Whether POLYPHASE_LOG, a list of words, contains `topic` (`plan`) or is `all`.
[[nodiscard]] bool log_topic(std::string_view topic);

/// Passes a message to the callback.
void log_message(LogLevel level, std::string_view text);

}  // namespace polyphase
