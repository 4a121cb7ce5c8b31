// Training as a user sees it: what remains when it is stopped or killed or diverges.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint.hpp"
#include "program.hpp"

using namespace superres;
using namespace superres::testing;
using polyphase::testing::read_bytes;
using polyphase::testing::write_bytes;

namespace fs = std::filesystem;

namespace {

/// The program, running in parallel to the test; its output goes to a file.
class Child {
 public:
  /// The signals that end a program have their defaults, however the test was started; under nohup SIGHUP is ignored.
  Child(const std::string& arguments, std::string text_path, bool under_nohup = false) : text_path_(std::move(text_path)) {
    const std::string command = "exec " + command_of(arguments) + " > " + shell_quoted(text_path_) + " 2>&1";
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      for (const int ending : {SIGINT, SIGTERM, SIGHUP}) signal(ending, SIG_DFL);
      if (under_nohup) signal(SIGHUP, SIG_IGN);
      execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
  }
  ~Child() {
    if (pid_ > 0) send(SIGKILL), exit_code();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::string text() const { return read_bytes(text_path_); }
  void send(int signal) const { CHECK(kill(pid_, signal) == 0); }
  /// Waits up to two minutes for its end. Returns 1000 + the signal if a signal ended it.
  int exit_code() {
    int status = 0;
    pid_t ended = 0;
    for (int i = 0; i < 1200 && ended == 0; ++i) {
      ended = waitpid(pid_, &status, WNOHANG);
      if (ended == 0) usleep(100000);
    }
    if (ended == 0) kill(pid_, SIGKILL), ended = waitpid(pid_, &status, 0);
    CHECK(ended == std::exchange(pid_, -1));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  /// The run is in progress once the log has a step.
  static void wait_for_steps(const Workshop& shop) {
    for (int i = 0; i < 600 && !has(read_bytes(shop.out + "/log.csv"), "\n1,"); ++i) usleep(100000);
    REQUIRE(has(read_bytes(shop.out + "/log.csv"), "\n1,"));
  }

 private:
  std::string text_path_;
  pid_t pid_ = -1;
};

}  // namespace

TEST_CASE("an interrupted run stops with a checkpoint and prints the command that resumes it") {
  const Workshop shop("it's a $HOME");
  Child child(shop.train + "--steps 1000000 --threads 2", shop.folder.file("text"));
  child.wait_for_steps(shop);
  child.send(SIGINT);
  CHECK(child.exit_code() == 130);
  CHECK(fs::exists(shop.last()));
  CHECK(run("eval --all --data " + shell_quoted(shop.data) + " --model " + shell_quoted(shop.last())).code == 0);

  const std::string said = child.text();
  const std::string start = "\ncontinue with\n  ";
  REQUIRE(has(said, start));
  const std::string command = said.substr(said.find(start) + start.size());
  const std::string line = command.substr(0, command.find('\n'));
  CHECK(line.ends_with(" --threads 2"));
  const std::int64_t done = polyphase::load_checkpoint(shop.last()).step;
  const Outcome finished = run_shell(line + " --steps " + std::to_string(done + 1));
  CHECK_MESSAGE(finished.code == 0, finished.text);
  CHECK_MESSAGE(has(finished.text, "from " + shop.data + "\n"), finished.text);
}

TEST_CASE("a resumed run takes the sound it began with, or says what is different") {
  const Workshop shop;
  CHECK(run(shop.train + "--steps 2").code == 0);
  const auto is_refused = [&](const std::string& arguments, const std::string& words) {
    const std::string before = read_bytes(shop.last());
    const Outcome outcome = run(arguments);
    CHECK(outcome.code == 1);
    CHECK_MESSAGE(has(outcome.text, words), outcome.text);
    CHECK(read_bytes(shop.last()) == before);
  };

  const Outcome same = run(shop.resume() + "--steps 3");
  CHECK_MESSAGE(same.code == 0, same.text);
  CHECK(has(same.text, "from " + shop.data + "\n"));
  is_refused(shop.resume() + "--steps 4 --data '" SUPERRES_DATA "'",
             "superres: train --resume: the sound in " SUPERRES_DATA " is not what the run in " + shop.out +
                 " learned from: 3 files are gone (c0.wav, c1.wav, c2.wav), 19 are new (");

  write_sound(shop.data + "/c3.wav", 16000, {noise(12000, 9, 0.1)});
  is_refused(shop.resume() + "--steps 4", "learned from: 1 file is new (c3.wav)");
  fs::remove(shop.data + "/c3.wav");
  const std::string content = read_bytes(shop.data + "/c1.wav");
  write_sound(shop.data + "/c1.wav", 16000, {noise(12000, 9, 0.1)});
  is_refused(shop.resume() + "--steps 4", "learned from: 1 file has changed (c1.wav)");
  write_bytes(shop.data + "/c1.wav", content);

  const std::string moved = shop.folder.file("moved");
  fs::rename(shop.data, moved);
  is_refused(shop.resume() + "--steps 4", "superres: train --resume: the run in " + shop.out + " was trained on the sound in " +
                                              shop.data +
                                              ", and there is no such folder: expected --data with the folder's new place");
  CHECK(run(shop.resume() + "--steps 4 --data " + moved).code == 0);
  const Outcome after = run(shop.resume() + "--steps 5");
  CHECK_MESSAGE(after.code == 0, after.text);
  CHECK(has(after.text, "from " + moved + "\n"));
}

TEST_CASE("a checkpoint that does not say which sound it learned from is resumed where --data says it") {
  const Workshop shop;
  CHECK(run(shop.train + "--steps 2").code == 0);
  const std::string last = shop.last();
  polyphase::Checkpoint old = polyphase::load_checkpoint(last);
  CHECK(old.texts.erase("data") == 1);
  CHECK(old.texts.erase("data-files") == 1);
  polyphase::save_checkpoint(last, old);
  const Outcome refused = run(shop.resume() + "--steps 3");
  CHECK(refused.code == 1);
  CHECK(has(refused.text, "superres: train --resume: " + last +
                              " has no record of its training sound, because an older version wrote it: expected --data"));
  const Outcome told = run(shop.resume() + "--steps 3 --data " + shop.data);
  CHECK(told.code == 0);
  CHECK(has(told.text, "superres: warning: " + last + " has no record of its training sound"));
  const Outcome known = run(shop.resume() + "--steps 4");
  CHECK(known.code == 0);
  CHECK_FALSE(has(known.text, "warning"));
}

TEST_CASE("weights that are not finite are refused by every command, with the file and the tensor") {
  const Workshop shop;
  CHECK(run(shop.train + "--steps 2").code == 0);
  const std::string input = shop.folder.file("in.wav");
  const std::string output = shop.folder.file("out.wav");
  write_sound(input, 4000, {noise(2000)});
  const auto is_refused = [&](const std::string& arguments, const std::string& file, const std::string& tensor) {
    const Outcome outcome = run(arguments);
    CHECK(outcome.code == 1);
    const std::string words = "superres: " + file + ": expected finite numbers in " + tensor + ", got NaN or infinity\n";
    CHECK_MESSAGE(has(outcome.text, words), outcome.text);
  };
  const auto spoil = [](const std::string& file, auto choose, double value) {
    polyphase::Checkpoint checkpoint = polyphase::load_checkpoint(file);
    choose(checkpoint).view({-1}).narrow(0, 1, 1).fill_(value);
    polyphase::save_checkpoint(file, checkpoint);
  };
  for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    const std::string model = shop.folder.file("spoilt.safetensors");
    fs::copy_file(shop.best(), model, fs::copy_options::overwrite_existing);
    spoil(
        model, [](auto& checkpoint) { return checkpoint.model.at(3).second; }, value);
    const std::string tensor = polyphase::load_checkpoint(model).model.at(3).first;
    is_refused("upsample " + input + " " + output + " --model " + model, model, tensor);
    is_refused("eval --data " + shop.data + " --model " + model, model, tensor);
  }
  CHECK_FALSE(fs::exists(output));
  const std::string good = read_bytes(shop.last());
  for (const char* owner : {"optimizer", "average"}) {
    write_bytes(shop.last(), good);
    std::string name;
    const auto choose = [&](auto& checkpoint) {
      name = checkpoint.state(owner).tensors.at(1).first;
      return checkpoint.state(owner).tensors.at(1).second;
    };
    spoil(shop.last(), choose, HUGE_VAL);
    is_refused(shop.resume() + "--steps 3", shop.last(), "state " + name + " of " + owner);
  }
}

TEST_CASE("a run that leaves the numbers stops with the step, and what was saved before is as it was") {
  const Workshop shop;
  const Outcome never_saved = run(shop.train + "--steps 400 --lr 1e30");
  CHECK(never_saved.code == 1);
  CHECK_MESSAGE(has(never_saved.text, "superres: train: at step 2 the loss is "), never_saved.text);
  CHECK_MESSAGE(has(never_saved.text, ": try a smaller --lr than 1e+30 (nothing is saved yet)\n"), never_saved.text);
  CHECK_FALSE(fs::exists(shop.last()));

  // The first step makes the weights infinite, and a check runs before any loss shows it.
  const Outcome at_check = run(shop.train + "--steps 400 --check-every 1 --lr 1e41");
  CHECK(at_check.code == 1);
  CHECK_MESSAGE(has(at_check.text, "superres: train: at step 1 "), at_check.text);
  CHECK_MESSAGE(has(at_check.text, " became infinite or NaN: try a smaller --lr than 1e+41 (nothing is saved yet)\n"),
                at_check.text);
  CHECK_FALSE(fs::exists(shop.last()));
  CHECK_FALSE(fs::exists(shop.best()));
  CHECK_FALSE(has(read_bytes(shop.out + "/heldout.csv"), "\n1,"));

  // A good run; then its checkpoint gets an absurd learning rate.
  CHECK(run(shop.train + "--steps 2").code == 0);
  polyphase::Checkpoint checkpoint = polyphase::load_checkpoint(shop.last());
  for (auto& [name, number] : checkpoint.states.at("optimizer").numbers) {
    if (has(name, "initial_learning_rate")) number = 1e41;
  }
  polyphase::save_checkpoint(shop.last(), checkpoint);
  const std::string last = read_bytes(shop.last());
  const std::string best = read_bytes(shop.best());
  const Outcome resumed = run(shop.resume() + "--steps 400 --check-every 1");
  CHECK(resumed.code == 1);
  CHECK_MESSAGE(has(resumed.text, "superres: train: at step 3 "), resumed.text);
  CHECK_MESSAGE(has(resumed.text, "(" + shop.last() + " keeps step 2)\n"), resumed.text);
  CHECK(read_bytes(shop.last()) == last);
  CHECK(read_bytes(shop.best()) == best);
}

TEST_CASE("a second training keeps out of a folder in use, and nothing is in the way of one after a kill") {
  const Workshop shop;
  CHECK(run(shop.train + "--steps 2").code == 0);
  CHECK_FALSE(fs::exists(shop.out + "/lock"));
  Child child(shop.resume() + "--steps 1000000 --check-every 1", shop.folder.file("text"));
  for (int i = 0; i < 600 && !has(read_bytes(shop.out + "/log.csv"), "\n3,"); ++i) usleep(100000);
  const std::string words = "superres: train: " + shop.out + " is in use by another training (process " +
                            std::to_string(child.pid()) + "): wait for its end or choose another --out\n";
  for (const std::string& arguments : {shop.train + "--steps 2", shop.resume() + "--steps 3"}) {
    const Outcome second = run(arguments);
    CHECK(second.code == 1);
    CHECK_MESSAGE(second.text == words, second.text);
  }
  child.send(SIGKILL);
  CHECK(child.exit_code() == 1000 + SIGKILL);
  const std::int64_t done = polyphase::load_checkpoint(shop.last()).step;
  const Outcome after = run(shop.resume() + "--steps " + std::to_string(done + 1));
  CHECK_MESSAGE(after.code == 0, after.text);
}

TEST_CASE("of two trainings that begin together in a new folder one runs") {
  const Workshop shop;
  Child first(shop.train + "--steps 60", shop.folder.file("first"));
  Child second(shop.train + "--steps 60", shop.folder.file("second"));
  const int codes[] = {first.exit_code(), second.exit_code()};
  CHECK_MESSAGE(codes[0] + codes[1] == 1, first.text(), second.text());
  const std::string loser = codes[0] == 1 ? first.text() : second.text();
  CHECK_MESSAGE((has(loser, "is in use by another training") || has(loser, "already holds a run")), loser);
}

TEST_CASE("a closed terminal and a request to end save the run; under nohup a closed terminal is nothing") {
  const Workshop shop;
  for (const int signal : {SIGHUP, SIGTERM, SIGINT}) {
    fs::remove_all(shop.out);
    Child child(shop.train + "--steps 1000000", shop.folder.file("text"));
    child.wait_for_steps(shop);
    child.send(signal);
    usleep(2000);        // else both are delivered as one
    child.send(signal);  // from the kernel and from the shell, or from the terminal and from a launcher
    CHECK(child.exit_code() == 130);
    CHECK(fs::exists(shop.last()));
  }
  Child child(shop.resume() + "--steps 1000000", shop.folder.file("text"), true);
  const auto steps = [&] { return fs::file_size(shop.out + "/log.csv"); };
  const auto grows = [&] {
    const auto start = steps();
    for (int i = 0; i < 600 && steps() <= start; ++i) usleep(100000);
    return steps() > start;
  };
  CHECK(grows());
  child.send(SIGHUP);
  usleep(300000);
  CHECK(grows());
  child.send(SIGTERM);
  CHECK(child.exit_code() == 130);
}

TEST_CASE("a folder that vanishes while a run writes to it is made again, with the whole log") {
  const Workshop shop;
  Child child(shop.train + "--steps 1000000", shop.folder.file("text"));
  child.wait_for_steps(shop);
  fs::remove_all(shop.out);
  child.send(SIGTERM);
  CHECK(child.exit_code() == 130);
  CHECK(has(child.text(), "superres: warning: " + shop.out + " was missing and is created again\n"));
  const std::int64_t done = polyphase::load_checkpoint(shop.last()).step;
  const std::string log = read_bytes(shop.out + "/log.csv");
  CHECK(log.find("step,seconds,loss,snr_db,learning_rate,gradient_norm\n1,") == 0);
  CHECK(has(log, "\n" + std::to_string(done) + ","));
  const Outcome after = run(shop.resume() + "--steps " + std::to_string(done + 1));
  CHECK_MESSAGE(after.code == 0, after.text);
}

TEST_CASE("a run of some length says first how long it will take, which changes no bit, and its lines fit 80 columns") {
  const Workshop shop;
  const auto losses = [&] {
    std::istringstream log(read_bytes(shop.out + "/log.csv"));
    std::vector<std::string> found;
    for (std::string line; std::getline(log, line) && found.size() < 40;) {
      const std::size_t seconds = line.find(',');
      found.push_back(line.substr(line.find(',', seconds + 1)));
    }
    return found;
  };
  const Outcome brief = run(shop.train + "--steps 99 --threads 1");
  CHECK(brief.code == 0);
  CHECK(has(brief.text, "seed 0, 1 thread\n"));
  CHECK_FALSE(has(brief.text, "\ntime "));
  const std::vector<std::string> before = losses();
  fs::remove_all(shop.out);
  const Outcome timed = run(shop.train + "--steps 100 --threads 1");
  CHECK(timed.code == 0);
  REQUIRE(has(timed.text, "\ntime     a"));
  CHECK(has(timed.text, " on this machine\n"));
  CHECK(timed.text.find("\ntime     a") < timed.text.find("\nstep "));
  CHECK(losses() == before);
  std::istringstream text(timed.text);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("step ")) CHECK_MESSAGE(line.size() < 80, line);
  }
  CHECK(has(timed.text, "| LSD "));
  fs::remove_all(shop.out);
  const Outcome asked = run(shop.train + "--minutes 0.01");
  CHECK(has(asked.text, "\ntime     a few seconds, as --minutes asks\n"));
}

TEST_CASE("its waiting threads sleep, unless the user says otherwise") {
  const Workshop shop;
  const auto environment_of = [&](const char* set) {
    fs::remove_all(shop.out);
    const char* old = std::getenv("OMP_WAIT_POLICY");
    const std::string before = old == nullptr ? "" : old;
    set == nullptr ? unsetenv("OMP_WAIT_POLICY") : setenv("OMP_WAIT_POLICY", set, 1);
    Child child(shop.train + "--steps 1000000", shop.folder.file("text"));
    old == nullptr ? unsetenv("OMP_WAIT_POLICY") : setenv("OMP_WAIT_POLICY", before.c_str(), 1);
    child.wait_for_steps(shop);
    const std::string process = "/proc/" + std::to_string(child.pid());
    CHECK(read_bytes(process + "/comm") == "superres\n");
    std::string environment = read_bytes(process + "/environ");
    std::replace(environment.begin(), environment.end(), '\0', '\n');
    return "\n" + environment;
  };
  CHECK(has(environment_of(nullptr), "\nOMP_WAIT_POLICY=passive\n"));
  CHECK(has(environment_of("active"), "\nOMP_WAIT_POLICY=active\n"));
}
