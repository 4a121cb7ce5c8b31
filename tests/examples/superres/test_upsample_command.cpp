// `superres upsample` as a user sees it: inputs, refusals, files.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "program.hpp"
#include "shared.hpp"
#include "sound.hpp"

using namespace superres;
using namespace superres::testing;
using polyphase::testing::read_bytes;
using polyphase::testing::TemporaryDirectory;

namespace fs = std::filesystem;

namespace {

const std::string kProgram = command_of("");

Outcome shell(const std::string& line) { return run_shell("{ " + line + "; }"); }

}  // namespace

TEST_CASE("upsample lowers a rate only where it is asked to") {
  const Workshop shop;
  const std::string model = shop.untrained();
  const std::string input = shop.folder.file("in.wav");
  const std::string output = shop.folder.file("out.wav");
  const std::string command = "upsample " + input + " " + output + " --model " + model;
  write_sound(input, 48000, {noise(4800)});
  const Outcome refused = run(command);
  CHECK(refused.code == 1);
  CHECK(refused.text ==
        "superres: " + input + " is at 48000 Hz, the model gives 16000 Hz: the rate is lowered only with --allow-lower-rate\n");
  CHECK_FALSE(fs::exists(output));
  CHECK(run(command + " --allow-lower-rate").code == 0);
  CHECK(read_audio(output).rate == 16000);
  CHECK(read_audio(output).frames() == 1600);
  write_sound(input, 16000, {noise(1600)});  // the same rate as the model's output
  CHECK(run(command).code == 0);
}

TEST_CASE("upsample overwrites neither its input nor its model, through any link or name") {
  const Workshop shop;
  const std::string model = shop.untrained();
  const std::string input = shop.folder.file("in.wav");
  write_sound(input, 4000, {noise(400)});
  const std::string sound = read_bytes(input);
  const std::string weights = read_bytes(model);
  for (const std::string& name : {input, model}) {
    fs::create_symlink(name, name + ".link");
    fs::create_hard_link(name, name + ".hard");
    for (const char* end : {"", ".link", ".hard"}) {
      const std::string output = name + end;
      const Outcome outcome = run("upsample " + input + " " + output + " --model " + model);
      CHECK(outcome.code == 1);
      CHECK(outcome.text == "superres: " + output + ": expected an output of its own, got the " +
                                (name == input ? "input" : "model") + "'s file\n");
    }
  }
  CHECK(read_bytes(input) == sound);
  CHECK(read_bytes(model) == weights);
}

TEST_CASE("upsample reads from pipes and writes to them") {
  const Workshop shop;
  const std::string end = " --model " + shop.untrained();
  const std::string input = shop.folder.file("in.wav");
  const std::string output = shop.folder.file("out.wav");
  const std::string fifo = shop.folder.file("fifo");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  write_sound(input, 4000, {noise(30000, 1, 0.1), noise(30000, 2, 0.1)});
  CHECK(run("upsample " + input + " " + output + end).code == 0);
  const std::string wanted = read_bytes(output);
  const std::string slow_cat = "{ head -c 7 " + input + "; sleep 0.3; tail -c +8 " + input + "; }";
  for (const std::string& line : {
           "cat " + input + " | " + kProgram + "upsample - " + output + end,
           slow_cat + " | " + kProgram + "upsample /dev/stdin " + output + end,
           kProgram + "upsample - " + output + end + " < " + input,
           slow_cat + " > " + fifo + " & sleep 0.2; " + kProgram + "upsample " + fifo + " " + output + end,
           kProgram + "upsample " + input + " -" + end + " > " + output,
           kProgram + "upsample " + input + " /dev/stdout" + end + " | cat > " + output,
           "cat " + input + " | " + kProgram + "upsample - -" + end + " | cat > " + output,
       }) {
    fs::remove(output);
    const Outcome outcome = shell(line);
    CHECK_MESSAGE(outcome.code == 0, line, ": ", outcome.text);
    CHECK_MESSAGE(has(outcome.text, ": 8 s at 16000 Hz, 2 channels"), outcome.text);
    CHECK_MESSAGE(read_bytes(output) == wanted, line);
  }
  CHECK(shell(kProgram + "upsample " + input + " -" + end + " > /dev/full").text ==
        "superres: write_wav: standard output: writing failed: No space left on device\n");
}

TEST_CASE("inputs and outputs that upsample cannot use are refused before any work") {
  const Workshop shop;
  const std::string end = " --model " + shop.untrained();
  const std::string input = shop.folder.file("in.wav");
  const std::string output = shop.folder.file("out.wav");
  const std::string fifo = shop.folder.file("fifo");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  write_sound(input, 4000, {noise(100)});
  const std::string program = "timeout 60 " + kProgram + "upsample ";
  struct Case {
    std::string line;
    std::string words;
  };
  for (const Case& one : {
           Case{program + fifo + " " + output, fifo + ": expected a WAV file, got a pipe that nobody writes to"},
           Case{"true | " + program + "- " + output, "-: expected a WAV file, got a pipe that nobody writes to"},
           Case{"printf RIFF | " + program + "- " + output, "-: expected a WAV file, got a pipe that ends after 4 bytes"},
           Case{"yes | " + program + "- " + output, "-: expected a WAV file, as nothing else is read from a pipe"},
           Case{"head -c 100 " + input + " | " + program + "- " + output, "-: expected 400 bytes of samples, the file has 56"},
           Case{program + "/dev/zero " + output, "/dev/zero: expected a sound file or a pipe, got a device"},
           Case{program + "- " + output + " < /dev/null", "-: expected a sound file or a pipe, got a device"},
           Case{program + "- " + output + " <&-", "-: expected sound on standard input, got none: Bad file descriptor"},
           Case{program + input + " " + fifo, fifo + ": expected a regular file, or - for standard output, got a pipe"},
           Case{program + input + " /dev/null", "/dev/null: expected a regular file, or - for standard output, got a device"},
           Case{program + input + " " + shop.folder.path(),
                shop.folder.path() + ": expected a regular file, or - for standard output, got a folder"},
           Case{program + "- " + input + " < " + input, input + ": expected an output of its own, got the input's file"},
           Case{program + input + " - 1<> " + input, "-: expected an output of its own, got the input's file"},
       }) {
    const Outcome outcome = shell(one.line + end);  // options may come last, also after redirections
    CHECK_MESSAGE(outcome.code == 1, one.line, ": ", outcome.text);
    CHECK_MESSAGE(outcome.text == "superres: " + one.words + "\n", outcome.text);
    CHECK_FALSE(fs::exists(output));
  }
  CHECK(read_audio(input).frames() == 100);
}

TEST_CASE("upsample shows on a terminal how far it is, and Ctrl-C leaves nothing half-written") {
  const Workshop shop;
  const std::string model = shop.untrained();
  const std::string input = shop.folder.file("in.wav");
  const std::string output = shop.folder.file("out.wav");
  write_sound(input, 4000, std::vector<std::vector<float>>(64, noise(100000, 1, 0.1)));  // many seconds of work
  write_sound(output, 8000, {noise(10)});
  const std::string old = read_bytes(output);
  const std::ptrdiff_t files = shop.folder.count();
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(terminal >= 0);
  REQUIRE(grantpt(terminal) == 0);
  REQUIRE(unlockpt(terminal) == 0);
  const int screen = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  REQUIRE(screen >= 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(screen, STDERR_FILENO);
    close(screen);
    execl(SUPERRES_PROGRAM, "superres", "upsample", input.c_str(), output.c_str(), "--model", model.c_str(), "--chunk", "256",
          static_cast<char*>(nullptr));
    _exit(127);
  }
  close(screen);
  std::string shown;
  const auto next = [&] {
    char buffer[256];
    const ssize_t got = read(terminal, buffer, sizeof buffer);  // an error after the child has ended
    if (got > 0) shown.append(buffer, static_cast<std::size_t>(got));
    return got > 0;
  };
  while (!has(shown, " left") && next()) continue;
  CHECK_MESSAGE(has(shown, " of 25 s | "), shown);
  CHECK_MESSAGE(has(shown, " times real time | "), shown);
  CHECK(shop.folder.count() == files + 1);
  CHECK(kill(child, SIGINT) == 0);
  const std::size_t before = shown.size();
  while (next()) continue;
  std::size_t lines = 0;  // lines of progress after the signal
  for (std::size_t at = shown.find(" left", before); at != std::string::npos; at = shown.find(" left", at + 1)) ++lines;
  CHECK(lines <= 2);
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
  CHECK_MESSAGE(has(shown, "superres: upsample: stopped before the end, " + output + " is not written"), shown);
  CHECK(shop.folder.count() == files);
  CHECK(read_bytes(output) == old);
}

TEST_CASE("Ctrl-C ends the wait for a pipe") {
  const Workshop shop;
  const std::string fifo = shop.folder.file("fifo");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  const int writer = open(fifo.c_str(), O_RDWR);  // never writes
  REQUIRE(writer >= 0);
  const Outcome outcome = shell("timeout --preserve-status -k 60 -s INT 1 " + kProgram + "upsample " + fifo + " " +
                                shop.folder.file("out.wav") + " --model " + shop.untrained());
  close(writer);
  CHECK(outcome.code == 130);
  CHECK_MESSAGE(has(outcome.text, "out.wav is not written"), outcome.text);
  CHECK_FALSE(fs::exists(shop.folder.file("out.wav")));
}
