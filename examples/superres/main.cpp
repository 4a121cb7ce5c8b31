// superres: trains a network that upsamples sound, measures it against interpolation, and uses it.

#include <algorithm>
#include <functional>
#include <memory>

#include "commands.hpp"
#include "cpu/threads.hpp"
#include "program/options.hpp"
#include "program/program.hpp"
#include "tensor/device.hpp"
#include "training/command_line.hpp"

namespace {

using namespace superres;
using polyphase::program::Action;
using polyphase::program::Arguments;

void add_train(Arguments& app, TrainCommand& command) {
  app.add_option("--data", command.data, "folder of WAV or FLAC files (for a resumed run: its training folder)")
      .shows_default();
  app.add_option("--out", command.run.path, "folder of the run").shows_default();
  app.add_flag("--resume", command.resume, "continue the run in --out; --steps may be raised");
  const auto steps = app.add_option("--steps", command.settings.steps, "length of the run").shows_default();
  app.add_option("--minutes", command.minutes, "length of the run in minutes; the result then depends on the machine's speed")
      .above_zero()
      .excludes(steps);
  app.add_option("--factor", command.model.factor, "upsampling factor: 2, 4 or 8").shows_default();
  app.add_option("--rate", command.model.rate, "rate of the output in Hz (default: the rate of most files)");
  app.add_flag("--causal", command.model.causal, "no look-ahead: an output depends on earlier samples only");
  app.add_option("--channels", command.model.channels, "width of the network at the low rate").shows_default();
  app.add_option("--high-channels", command.model.high_channels, "width at the output's rate").shows_default();
  app.add_option("--blocks", command.model.blocks, "residual blocks at the low rate").shows_default();
  app.add_option("--kernel", command.model.kernel, "kernel size of the blocks, odd").shows_default();
  app.add_option("--batch", command.settings.batch, "windows per step").shows_default();
  app.add_option("--window", command.settings.window, "samples per window").shows_default();
  app.add_option("--lr", command.settings.learning_rate, "learning rate").shows_default();
  app.add_option("--spectral-weight", command.settings.spectral_weight, "weight of the spectral loss").shows_default();
  app.add_option("--seed", command.settings.seed, "seed of weights and windows").shows_default();
  app.add_option("--heldout-fraction", command.settings.heldout_fraction,
                 "share of the files held out, unless --data has subfolders train and heldout")
      .shows_default();
  app.add_option("--check-every", command.check_every, "steps between checks on held-out clips (default: a tenth of the run)")
      .above_zero();
  app.add_option("--cache-mb", command.cache_megabytes, "sound kept in memory; more is read from the files as needed")
      .in_range(0, 1 << 20)
      .shows_default();
}

void add_eval(Arguments& app, EvalCommand& command) {
  app.add_option("--model", command.model, "a run's best.safetensors or last.safetensors").shows_default();
  app.add_option("--data", command.data, "folder of WAV or FLAC files; the held-out ones are scored").shows_default();
  app.add_option("--heldout-fraction", command.heldout_fraction, "the same as in training").in_range(0.0, 1.0).shows_default();
  app.add_flag("--all", command.all_files, "score every file of the folder");
  app.add_option("--out", command.out, "folder for pictures and sound (default: eval, next to the model)");
  app.add_option("--json", command.json, "file for the numbers");
  app.add_option("--clip", command.clip, "the clip to draw and to listen to (default: the first)");
}

SampleFormat parse_format(const std::string& text) {
  if (text == "pcm16") return SampleFormat::pcm16;
  if (text == "pcm24") return SampleFormat::pcm24;
  if (text == "float32") return SampleFormat::float32;
  throw polyphase::Error("expected pcm16, pcm24 or float32, got " + text);
}

void add_upsample(Arguments& app, UpsampleCommand& command) {
  app.add_option("input", command.input, "IN.wav, of any length, rate and number of channels; - is standard input").required();
  app.add_option("output", command.output, "OUT.wav; - is standard output").required();
  app.add_option("--model", command.model, "a run's best.safetensors or last.safetensors").shows_default();
  polyphase::program::add_parsed(app, "--format", command.format, "samples: pcm16 (default), pcm24 or float32", parse_format);
  app.add_option("--chunk", command.chunk, "low-rate samples computed at a time").in_range(256, 1 << 26).shows_default();
  app.add_flag("--allow-lower-rate", command.allow_lower_rate, "accept an input with a higher rate than the model's output");
}

// `program`: as the user called it.
void describe(Arguments& app, Action& action, const char* program) {
  app.add_help_of_all("--help-all", "all subcommands' options");
  Arguments train_app = app.add_subcommand("train", "train a network on a folder of sound");
  Arguments eval_app = app.add_subcommand("eval", "measure a network against interpolation, draw pictures, write sound");
  Arguments upsample_app = app.add_subcommand("upsample", "upsample a sound file");

  const auto train_command = std::make_shared<TrainCommand>();
  train_command->data = SUPERRES_DATA;
  train_command->model.rate = 0;
  train_command->program = program;
  add_train(train_app, *train_command);
  training::add_command(train_app, action, train_command, train, [train_app, train_command] {
    validate(*train_command);
    train_command->given = training::given_options(train_app);
    train_command->repeated = training::repeated_options(train_app);
  });

  const auto eval_command = std::make_shared<EvalCommand>();
  eval_command->data = SUPERRES_DATA;
  add_eval(eval_app, *eval_command);
  training::add_command(eval_app, action, eval_command, eval);

  const auto upsample_command = std::make_shared<UpsampleCommand>();
  add_upsample(upsample_app, *upsample_command);
  training::add_command(upsample_app, action, upsample_command, upsample);
}

}  // namespace

int main(int argc, char** argv) {
  polyphase::wait_passively(argv);
  return polyphase::program::run_main(argc, argv, "superres", "Learns to upsample sound, and does it.",
                                      [argv](Arguments& app, Action& action) { describe(app, action, argv[0]); });
}
