#pragma once
// A program as a person calls it, for tests.

#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace training::testing {

struct Outcome {
  int code = -1;
  std::string text;  // both streams
};

inline Outcome run_shell(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  Outcome outcome;
  char buffer[4096];
  while (const std::size_t got = fread(buffer, 1, sizeof buffer, pipe)) outcome.text.append(buffer, got);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
  return outcome;
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace training::testing
