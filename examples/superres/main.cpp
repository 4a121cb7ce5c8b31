// superres: trains a network that upsamples sound, measures it against interpolation, and uses it.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <map>

#include "commands.hpp"
#include "cpu/threads.hpp"
#include "tensor/device.hpp"

namespace {

using namespace superres;

constexpr int kUsageExit = 2;

struct Shared {
  int threads = 0;
  std::string device = "cpu";
};

void add_shared(CLI::App& app, Shared& shared) {
  app.add_option("--threads", shared.threads, "CPU threads (default: all cores)")->check(CLI::Range(1, 1024));
  app.add_option("--device", shared.device, "where to compute: cpu, cuda or cuda:1")->capture_default_str();
}

void add_train(CLI::App& app, TrainCommand& command) {
  app.add_option("--data", command.data, "folder of WAV or FLAC files (of a resumed run: the one it learns from)")
      ->capture_default_str();
  app.add_option("--out", command.run.path, "folder of the run")->capture_default_str();
  app.add_flag("--resume", command.resume, "go on with the run in --out; --steps may be raised");
  auto* steps = app.add_option("--steps", command.settings.steps, "length of the run")->capture_default_str();
  app.add_option("--minutes", command.minutes, "length of the run by the clock (then it depends on the machine's speed)")
      ->check(CLI::PositiveNumber)
      ->excludes(steps);
  app.add_option("--factor", command.model.factor, "upsampling factor: 2, 4 or 8")->capture_default_str();
  app.add_option("--rate", command.model.rate, "rate of the output in Hz (default: the one most files have)");
  app.add_flag("--causal", command.model.causal, "look at no sample after the one computed");
  app.add_option("--channels", command.model.channels, "width of the network at the low rate")->capture_default_str();
  app.add_option("--high-channels", command.model.high_channels, "width at the output's rate")->capture_default_str();
  app.add_option("--blocks", command.model.blocks, "residual blocks at the low rate")->capture_default_str();
  app.add_option("--kernel", command.model.kernel, "kernel size of the blocks, odd")->capture_default_str();
  app.add_option("--batch", command.settings.batch, "windows a step")->capture_default_str();
  app.add_option("--window", command.settings.window, "samples of a window")->capture_default_str();
  app.add_option("--lr", command.settings.learning_rate, "learning rate")->capture_default_str();
  app.add_option("--spectral-weight", command.settings.spectral_weight, "weight of the spectral loss")->capture_default_str();
  app.add_option("--seed", command.settings.seed, "of weights and windows")->capture_default_str();
  app.add_option("--heldout-fraction", command.settings.heldout_fraction,
                 "share of the files held out, unless --data has subfolders train and heldout")
      ->capture_default_str();
  app.add_option("--check-every", command.check_every, "steps between checks on held-out clips (default: a tenth of the run)")
      ->check(CLI::PositiveNumber);
  app.add_option("--cache-mb", command.cache_megabytes, "sound kept in memory; more is read from the files as needed")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
}

void add_eval(CLI::App& app, EvalCommand& command) {
  app.add_option("--model", command.model, "a run's best.safetensors or last.safetensors")->capture_default_str();
  app.add_option("--data", command.data, "folder of WAV or FLAC files, whose held-out ones are scored")->capture_default_str();
  app.add_option("--heldout-fraction", command.heldout_fraction, "as it was in training")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_flag("--all", command.all_files, "score every file of the folder");
  app.add_option("--out", command.out, "folder for pictures and sound (default: eval beside the model)");
  app.add_option("--json", command.json, "file for the numbers");
  app.add_option("--clip", command.clip, "the clip to draw and to listen to (default: the first)");
}

void add_upsample(CLI::App& app, UpsampleCommand& command) {
  const std::map<std::string, SampleFormat> formats{
      {"pcm16", SampleFormat::pcm16}, {"pcm24", SampleFormat::pcm24}, {"float32", SampleFormat::float32}};
  app.add_option("input", command.input, "IN.wav, of any length; - is standard input")->required();
  app.add_option("output", command.output, "OUT.wav; - is standard output")->required();
  app.add_option("--model", command.model, "a run's best.safetensors or last.safetensors")->capture_default_str();
  app.add_option("--format", command.format, "samples: pcm16 (default), pcm24 or float32")
      ->transform(CLI::CheckedTransformer(formats).description(""));
  app.add_option("--chunk", command.chunk, "low-rate samples computed at a time")
      ->check(CLI::Range(256, 1 << 26))
      ->capture_default_str();
  app.add_flag("--allow-lower-rate", command.allow_lower_rate, "take an input of a higher rate than the model gives");
}

// The long names of the options that were on the command line.
std::set<std::string> given_options(const CLI::App& app) {
  std::set<std::string> names;
  for (const CLI::Option* option : app.get_options([](const CLI::Option* one) { return one->count() > 0; })) {
    std::string name = option->get_single_name();
    std::replace(name.begin(), name.end(), '-', '_');
    names.insert(option->get_single_name());
    names.insert(name);  // the model's names in a checkpoint have underscores
  }
  return names;
}

// The options that say how a run is computed and not what it is, as words for a shell.
std::vector<std::string> repeated_options(const CLI::App& app) {
  std::vector<std::string> words;
  for (const char* name : {"--device", "--threads", "--check-every", "--cache-mb"}) {
    const CLI::Option* option = app.get_option(name);
    if (option->count() > 0) words.insert(words.end(), {name, option->results().back()});
  }
  return words;
}

int run(int argc, char** argv) {
  CLI::App app{"Learns to upsample sound, and does it."};
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "all subcommands' options");
  TrainCommand train_command{.data = SUPERRES_DATA};
  train_command.model.rate = 0;
  EvalCommand eval_command;
  eval_command.data = SUPERRES_DATA;
  UpsampleCommand upsample_command;
  Shared shared;
  CLI::App* train_app = app.add_subcommand("train", "train a network on a folder of sound");
  CLI::App* eval_app = app.add_subcommand("eval", "measure a network against interpolation, draw pictures, write sound");
  CLI::App* upsample_app = app.add_subcommand("upsample", "upsample a sound file");
  add_train(*train_app, train_command);
  add_eval(*eval_app, eval_command);
  add_upsample(*upsample_app, upsample_command);
  for (CLI::App* one : {train_app, eval_app, upsample_app}) add_shared(*one, shared);

  polyphase::Device where;
  try {
    app.parse(argc, argv);
    where = polyphase::Device::parse(shared.device);
    if (*train_app) validate(train_command);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageExit;
  } catch (const polyphase::Error& error) {  // a value that the option cannot have
    std::fprintf(stderr, "superres: %s\n", error.what());
    return kUsageExit;
  }
  if (shared.threads > 0) polyphase::set_num_threads(shared.threads);
  const polyphase::DeviceGuard device(where);
  if (*train_app) {
    train_command.given = given_options(*train_app);
    train_command.repeated = repeated_options(*train_app);
    train_command.program = argv[0];
    return train(train_command);
  }
  return *eval_app ? eval(eval_command) : upsample(upsample_command);
}

}  // namespace

int main(int argc, char** argv) {
  polyphase::wait_passively(argv);
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "superres: %s\n", error.what());
    return 1;
  }
}
