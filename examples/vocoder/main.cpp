// vocoder: trains HiFi-GAN and BigVGAN as published, measures them, and makes sound with them.

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

using namespace vocoder;
using polyphase::program::Action;
using polyphase::program::Arguments;

void add_train(Arguments& app, TrainCommand& command) {
  std::string names;
  for (const std::string& name : config_names()) names += (names.empty() ? "" : ", ") + name;
  TrainSettings& settings = command.settings;
  app.add_option("--config", command.config, "JSON as the original code has it, or one of " + names).shows_default();
  app.add_option("--data", command.data, "folder of WAV or FLAC files (for a resumed run: its training folder)")
      .shows_default();
  app.add_option("--out", command.run.path, "folder of the run").shows_default();
  app.add_flag("--resume", command.resume, "continue the run in --out; --steps may be raised");
  app.add_option("--generator", command.generator,
                 "initial weights: g_02500000, bigvgan_generator.pt, a run's best.safetensors");
  app.add_option("--discriminators", command.discriminators,
                 "initial weights, and optimizers where it has them: do_02500000, bigvgan_discriminator_optimizer.pt");
  app.add_option("--steps", settings.steps, "length of the run").shows_default();
  app.add_option("--batch", settings.batch, "segments per step (default: the configuration's batch_size)");
  app.add_option("--segment", settings.segment, "samples per segment (default: the configuration's segment_size)");
  app.add_option("--accumulate", settings.parts, "parts that a batch is computed in, for less memory").shows_default();
  app.add_flag("--recompute", settings.recomputes, "compute the generator's activations twice, for less memory");
  app.add_option("--ema", settings.average_decay, "decay of the generator's averaged weights; 0: none, as published")
      .shows_default();
  app.add_flag("--graph", command.graph, "on a GPU, replay a recorded step (CUDA graph): the same bits, less work for the CPU");
  app.add_option("--precision", settings.precision, "fp32, tf32, or bf16 (autocast)").shows_default();
  app.add_option("--seed", settings.seed, "seed of weights and segments").shows_default();
  app.add_option("--heldout-fraction", settings.heldout_fraction,
                 "share of the files held out, unless --data has subfolders train and heldout")
      .shows_default();
  app.add_option("--check-every", command.check_every, "steps between checks on held-out clips (default: a tenth of the run)")
      .above_zero();
  app.add_option("--cache-mb", command.cache_megabytes, "sound kept in memory; more is read from the files as needed")
      .in_range(0, 1 << 20)
      .shows_default();
}

void add_model(Arguments& app, std::string& model, std::string& config) {
  app.add_option("--model", model, "a run's best.safetensors, or a published checkpoint").shows_default();
  app.add_option("--config", config, "JSON, for a model with neither its own nor a config.json in its folder");
}

void add_evaluate(Arguments& app, EvaluateCommand& command) {
  add_model(app, command.model, command.config);
  app.add_option("--data", command.data, "folder of WAV or FLAC files; the held-out ones are scored").shows_default();
  app.add_option("--heldout-fraction", command.heldout_fraction, "the same as in training").shows_default();
  app.add_flag("--all", command.all_files, "score every file of the folder");
  app.add_option("--out", command.out, "folder for pictures and sound (default: eval, next to the model)");
  app.add_option("--json", command.json, "file for the numbers");
}

void add_synthesize(Arguments& app, SynthesizeCommand& command) {
  app.add_option("input", command.input, "sound, of which the vocoder gets the mel spectrogram").required();
  app.add_option("output", command.output, "OUT.wav").required();
  add_model(app, command.model, command.config);
}

void describe(Arguments& app, Action& action, const char* program) {
  app.add_help_of_all("--help-all", "all subcommands' options");
  Arguments train_app = app.add_subcommand("train", "train a vocoder on a folder of sound");
  Arguments evaluate_app = app.add_subcommand("evaluate", "measure a vocoder, draw pictures, write sound");
  Arguments synthesize_app = app.add_subcommand("synthesize", "make sound from the mel spectrogram of sound");

  const auto train_command = std::make_shared<TrainCommand>();
  train_command->data = VOCODER_DATA;
  train_command->program = program;
  add_train(train_app, *train_command);
  training::add_command(train_app, action, train_command, train, [train_app, train_command] {
    if (!train_command->resume) {
      train_command->settings.config = read_config(train_command->config);
      train_command->settings = complete(train_command->settings, 1);
    }
    train_command->given = training::given_options(train_app);
    const polyphase::program::Option device = train_app.option("--device");
    train_command->names_one_device = device.count() > 0 && device.as_text() != "cuda";
    train_command->repeated = training::repeated_options(train_app);
  });

  const auto evaluate_options = std::make_shared<EvaluateCommand>();
  evaluate_options->data = VOCODER_DATA;
  add_evaluate(evaluate_app, *evaluate_options);
  training::add_command(evaluate_app, action, evaluate_options, evaluate_command);

  const auto synthesize_options = std::make_shared<SynthesizeCommand>();
  add_synthesize(synthesize_app, *synthesize_options);
  training::add_command(synthesize_app, action, synthesize_options, synthesize);
}

}  // namespace

int main(int argc, char** argv) {
  polyphase::wait_passively(argv);
  return polyphase::program::run_main(argc, argv, "vocoder", "Trains vocoders as published, measures them and uses them.",
                                      [argv](Arguments& app, Action& action) { describe(app, action, argv[0]); });
}
