#include "io/checkpoint.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "io/safetensors.hpp"
#include "layers/activations.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/dropout.hpp"
#include "layers/losses.hpp"
#include "layers/norm.hpp"
#include "optim/adam.hpp"
#include "optim/ema.hpp"
#include "optim/schedulers.hpp"
#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

// A training run with the state that a program keeps. All random numbers come from `generator`.
class Run {
 public:
  explicit Run(std::uint64_t seed)
      : generator_(seed),
        guard_(generator_),
        net_(make_net()),
        optimizer_(net_.parameters(), {.learning_rate = 1e-2}),
        schedule_(optimizer_, {.steps = 40}),
        average_(net_.parameters(), {.decay = 0.9}) {}

  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      const Tensor x = Tensor::randn({2, 1, 16});
      const Tensor loss = mse_loss(net_(x), Tensor::randn({2, 1, 32}));
      last_loss_ = loss.item<double>();
      optimizer_.zero_grad();
      loss.backward();
      optimizer_.step();
      schedule_.step();
      average_.update();
      ++step_;
    }
  }

  void save(const std::string& path) {
    save_checkpoint(path, {.model = net_.state_dict(),
                           .states = {{"adam", optimizer_.state()}, {"schedule", schedule_.state()}, {"ema", average_.state()}},
                           .generators = {{"default", generator_.state()}},
                           .step = step_,
                           .numbers = {{"loss", last_loss_}}});
  }

  void load(const std::string& path) {
    const Checkpoint saved = load_checkpoint(path);
    net_.load_state_dict(saved.model);
    optimizer_.load_state(saved.state("adam"));
    schedule_.load_state(saved.state("schedule"));
    average_.load_state(saved.state("ema"));
    generator_.set_state(saved.generator("default"));
    step_ = saved.step;
    last_loss_ = saved.number("loss");
  }

 private:
  static Sequential make_net() {
    return Sequential(Conv1d({.in_channels = 1, .out_channels = 6, .kernel_size = 3, .padding = 1}),
                      BatchNorm1d({.num_features = 6}), LeakyReLU(0.1F), Dropout(0.3),
                      ConvTranspose1d({.in_channels = 6, .out_channels = 1, .kernel_size = 4, .stride = 2, .padding = 1}));
  }

  Generator generator_;
  GeneratorGuard guard_;
  Sequential net_;
  Adam optimizer_;
  CosineAnnealingLR schedule_;
  ExponentialMovingAverage average_;
  std::int64_t step_ = 0;
  double last_loss_ = 0;
};

}  // namespace

TEST_CASE("2N steps are N steps, saved, loaded into fresh objects, and N more: the same bits") {
  const TemporaryDirectory directory;
  {
    Run straight(1);
    straight.train(20);
    straight.save(directory.file("straight"));
  }
  {
    Run first(1);
    first.train(10);
    first.save(directory.file("half"));
  }
  {
    Run second(99);  // other weights and random numbers: all state must come from the file
    second.load(directory.file("half"));
    second.train(10);
    second.save(directory.file("resumed"));
  }
  CHECK(read_bytes(directory.file("half")) != read_bytes(directory.file("straight")));
  CHECK(read_bytes(directory.file("resumed")) == read_bytes(directory.file("straight")));
}

TEST_CASE("everything comes back with its bits") {
  const TemporaryDirectory directory;
  const double tricky[] = {0.1,
                           -0.0,
                           5e-324,
                           std::numeric_limits<double>::max(),
                           std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(),
                           1.0 / 3.0};
  Checkpoint saved;
  saved.model = {{"0.weight", random_f64({2, 3})}, {"with/slash", random_f64({1})}};
  saved.states["b"].tensors = {{"z", random_f64({2})}, {"a/b", random_f64({1})}};
  for (const double value : tricky) saved.states["b"].numbers.emplace_back(concat("n", value), value);
  saved.states["a"] = {};
  saved.generators["g"] = {std::numeric_limits<std::uint64_t>::max(), (std::uint64_t{1} << 63) + 1};
  saved.step = -7;
  saved.numbers["nan"] = std::numeric_limits<double>::quiet_NaN();
  saved.texts["config"] = "{\"nested\": \"JSON \\u00fc\"}\nü";
  save_checkpoint(directory.file("a"), saved);

  const Checkpoint loaded = load_checkpoint(directory.file("a"));
  REQUIRE(loaded.model.size() == 2);
  CHECK(loaded.model[1].first == "with/slash");
  CHECK(max_difference(loaded.model[0].second, saved.model[0].second) == 0);
  REQUIRE(loaded.states.size() == 2);
  const OptimizerState& b = loaded.state("b");
  REQUIRE(b.tensors.size() == 2);
  CHECK(b.tensors[0].first == "z");
  CHECK(b.tensors[1].first == "a/b");
  CHECK(max_difference(b.tensors[1].second, saved.states["b"].tensors[1].second) == 0);
  REQUIRE(b.numbers.size() == std::size(tricky));
  for (std::size_t i = 0; i < std::size(tricky); ++i) {
    CHECK(b.numbers[i].first == saved.states["b"].numbers[i].first);
    CHECK(std::bit_cast<std::uint64_t>(b.numbers[i].second) == std::bit_cast<std::uint64_t>(tricky[i]));
  }
  CHECK(loaded.generator("g") == saved.generators["g"]);
  CHECK(loaded.step == -7);
  CHECK(std::isnan(loaded.number("nan")));
  CHECK(loaded.text("config") == saved.texts["config"]);
}

TEST_CASE("what is not there is named") {
  const Checkpoint empty;
  CHECK(error_of<Error>([&] { return empty.state("adam"); }) == "checkpoint: no state \"adam\" among its 0");
  CHECK(error_of<Error>([&] { return empty.generator("g"); }) == "checkpoint: no generator \"g\" among its 0");
  CHECK(error_of<Error>([&] { return empty.number("n"); }) == "checkpoint: no number \"n\" among its 0");
  CHECK(error_of<Error>([&] { return empty.text("t"); }) == "checkpoint: no text \"t\" among its 0");
}

TEST_CASE("files that are no checkpoints, or broken ones, are refused in words") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  const auto error_with = [&](const NamedTensors& tensors, const Metadata& metadata) {
    save_safetensors(path, tensors, metadata);
    const std::string text = error_of<FormatError>([&] { return load_checkpoint(path); });
    const std::string start = "load_checkpoint: " + path + ": ";
    return text.starts_with(start) ? text.substr(start.size()) : "unexpected start: " + text;
  };
  const auto error = [&](const std::string& json) { return error_with({}, {{"polyphase_checkpoint", json}}); };
  const std::string rest = R"("step":1,"numbers":{},"texts":{},"generators":{},"states":{}})";
  CHECK(error_with({{"w", Tensor::ones({1})}}, {}) ==
        "not a checkpoint: no polyphase_checkpoint in the metadata; load_safetensors reads plain weights");
  CHECK(error("{\"version\":2," + rest) == "checkpoint version 2, this library reads version 1");
  for (const char* broken : {"", "[]", "{", "{}", "null", R"({"version":"1"})", R"({"version":1,"step":"x"})",
                             R"({"version":1,"step":1,"numbers":{"a":1},"texts":{},"generators":{},"states":{}})",
                             R"({"version":1,"step":1,"numbers":{"a":"1x"},"texts":{},"generators":{},"states":{}})",
                             R"({"version":1,"step":1,"numbers":{},"texts":{"a":1},"generators":{},"states":{}})",
                             R"({"version":1,"step":1,"numbers":{},"texts":{},"generators":{"g":{}},"states":{}})",
                             R"({"version":1,"step":1,"numbers":{},"texts":{},"generators":{},"states":{"s":[["n"]]}})"}) {
    CAPTURE(broken);
    CHECK(error(broken).starts_with("malformed polyphase_checkpoint in the metadata: "));
  }
  for (const char* number : {"1e300", "2.7", "1.0", "true", "\"1\"", "9223372036854775808", "-9223372036854775809"}) {
    CAPTURE(number);
    const std::string wanted = "malformed polyphase_checkpoint in the metadata: expected a whole number for step, got ";
    CHECK(error(concat(R"({"version":1,"step":)", number, R"(,"numbers":{},"texts":{},"generators":{},"states":{}})"))
              .starts_with(wanted));
  }
  for (const char* number : {"-1", "0.5", "18446744073709551616", "false"}) {
    CAPTURE(number);
    for (const auto& [seed, offset] : {std::pair{number, "0"}, std::pair{"0", number}}) {
      CHECK(error(concat(R"({"version":1,"step":1,"numbers":{},"texts":{},"generators":{"g":{"seed":)", seed, R"(,"offset":)",
                         offset, R"(}},"states":{}})"))
                .starts_with("malformed polyphase_checkpoint in the metadata: expected a whole number of at least 0 for "));
    }
  }
  CHECK(error("{\"version\":true," + rest) ==
        "malformed polyphase_checkpoint in the metadata: expected a whole number for version, got \"true\"");
  CHECK(error("{\"version\":4294967297," + rest) == "checkpoint version 4294967297, this library reads version 1");
  CHECK(error(std::string(100000, '[')) == "malformed polyphase_checkpoint in the metadata: nested too deep");
  for (const char* name : {"stray", "state/", "state/adam", "state/adam/x", "model"}) {
    CAPTURE(name);
    CHECK(error_with({{name, Tensor::ones({1})}}, {{"polyphase_checkpoint", "{\"version\":1," + rest}}) ==
          concat("tensor \"", name, "\" belongs to nothing in the checkpoint"));
  }
}

TEST_CASE("a state's name must not contain the separator, and a failed save leaves the last checkpoint") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  save_checkpoint(path, {.step = 1});
  const std::string before = read_bytes(path);
  CHECK(error_of<FormatError>([&] {
          return save_checkpoint(path, {.states = {{"a/b", {}}}}), 0;
        }) == "save_checkpoint: " + path + ": the name of state \"a/b\" contains '/'");
  CHECK(error_of<FormatError>([&] {
          return save_checkpoint(path, {.texts = {{"t", "\xff"}}}), 0;
        }) == "save_checkpoint: " + path + ": a name or text is not valid UTF-8");
  CHECK(read_bytes(path) == before);
  CHECK(directory.count() == 1);
}
