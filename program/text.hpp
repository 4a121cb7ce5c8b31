#pragma once
// Numbers for people to read, and words for a shell.

#include <cstdint>
#include <string>

namespace polyphase::program {

/// "3.142" for (pi, 3).
[[nodiscard]] std::string fixed(double value, int digits);
/// Seconds as "42 s", "3:07" or "1:02:03".
[[nodiscard]] std::string duration(double seconds);
/// "12,345,678".
[[nodiscard]] std::string grouped(std::int64_t value);
/// "1 thread", "2 threads".
[[nodiscard]] std::string counted(std::int64_t count, const std::string& noun);
/// Pads with spaces on the left or right to `width` characters.
[[nodiscard]] std::string pad_left(const std::string& text, std::size_t width);
[[nodiscard]] std::string pad_right(const std::string& text, std::size_t width);
/// One word for a POSIX shell: in single quotes if it has other characters than letters, digits and ./_-+=:,@%
[[nodiscard]] std::string shell_quoted(const std::string& word);

}  // namespace polyphase::program
