#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>

#include "commands.hpp"
#include "cpu/threads.hpp"
#include "distributed/group.hpp"
#include "evaluation.hpp"
#include "io/safetensors.hpp"
#include "published.hpp"
#include "report.hpp"
#include "trainer.hpp"
#include "training/loader.hpp"
#include "training/progress.hpp"
#include "training/run_files.hpp"
#include "training/training_sound.hpp"

namespace vocoder {
namespace {

namespace fs = std::filesystem;

void warn(const std::string& text) { std::fprintf(stderr, "vocoder: warning: %s\n", text.c_str()); }

// A run may only go on as what it was: options that shape it must agree with the checkpoint where they are given again.
void require_same_settings(const TrainCommand& command, const pp::Checkpoint& saved) {
  auto wanted = to_texts(command.settings);
  if (command.given.contains("config")) wanted["config"] = read_config(command.config);
  for (const auto& [name, value] : wanted) {
    if (name == "steps" || !command.given.contains(name)) continue;
    const auto before = saved.texts.find(name);
    pp::require<pp::Error>(before == saved.texts.end() || before->second == value, "train --resume: the run in ",
                           command.run.path, " was started with another ", name,
                           name == "config" ? "" : pp::concat(": ", before == saved.texts.end() ? "" : before->second),
                           ", got ", name == "config" ? command.config : value);
  }
  for (const char* name : {"generator", "discriminators"})
    pp::require<pp::Error>(!command.given.contains(name), "train --resume: expected no --", name,
                           ", as the run has its own weights");
}

class TrainRun {
 public:
  TrainRun(const TrainCommand& command, const pp::distributed::Group& group) : command_(command), group_(group) {}

  int run() {
    if (group_.is_first()) files_.emplace(command_.run, command_.resume, warn);
    command_.resume ? resume() : start();
    trainer_->distribute(group_);
    if (command_.graph) trainer_->record_steps();
    trainer_->set_steps_per_epoch(
        std::max<std::int64_t>(static_cast<std::int64_t>(sound_.train.clips.size()) / trainer_->settings().batch, 1));
    first_step_ = trainer_->steps();
    if (files_)
      files_->open_logs("step,seconds,discriminators,adversarial,features,mel,generator_norm,learning_rate",
                        "step,mel_distance,stft_distance", first_step_);
    announce();
    const bool finished = loop();
    conclude(finished);
    return finished ? 0 : kInterruptedExit;
  }

 private:
  [[nodiscard]] SoundRequest sound_request(const TrainSettings& settings) const;
  void start();
  void resume();
  void announce();
  bool loop();
  void after_step(const pp::GanNumbers& numbers, Progress& progress);
  void check(Progress& progress);
  void restore_folder();
  void save_last();
  void save_best();
  void conclude(bool finished);
  [[nodiscard]] std::string resume_line() const;
  [[nodiscard]] Vocoder vocoder() { return {trainer_->gan().generator(), trainer_->settings().config}; }
  [[nodiscard]] std::string best_discriminators() const { return command_.run.path + "/best_discriminators.safetensors"; }
  [[nodiscard]] std::int64_t check_interval() const {
    return command_.check_every > 0 ? command_.check_every : std::max<std::int64_t>(trainer_->settings().steps / 10, 1);
  }

  TrainCommand command_;
  pp::distributed::Group group_;
  std::optional<RunFiles> files_;  // of the first process, which writes
  TrainingSound sound_;
  std::optional<Trainer> trainer_;
  std::int64_t first_step_ = 0;
  std::int64_t saved_step_ = 0;  // that the last checkpoint has; 0: there is none
  double best_score_ = std::numeric_limits<double>::infinity();
  double seconds_before_ = 0;  // spent before this run was resumed
  double seconds_ = 0;
  double mel_ = 0;  // smoothed
  std::string heldout_text_;
};

SoundRequest TrainRun::sound_request(const TrainSettings& settings) const {
  return {.folder = command_.data,
          .is_given = command_.given.contains("data"),
          .run = command_.run,
          .rate = static_cast<int>(pp::GanRecipe::parse(settings.config).sampling_rate),
          .takes_lower_rates = true,
          .window = settings.segment,
          .shortest_heldout = kShortest,
          .heldout_fraction = settings.heldout_fraction,
          .cache_megabytes = command_.cache_megabytes};
}

void TrainRun::start() {
  command_.settings = complete(command_.settings, group_.world());
  sound_ = open_sound(sound_request(command_.settings), std::nullopt, warn);
  trainer_.emplace(command_.settings);
  trainer_->load_published(command_.generator, command_.discriminators);
}

void TrainRun::resume() {
  const pp::Checkpoint saved = load_finite_checkpoint(command_.run.last());
  require_same_settings(command_, saved);
  trainer_.emplace(saved);
  static_cast<void>(complete(trainer_->settings(), group_.world()));
  const std::int64_t done = saved_step_ = trainer_->steps();
  if (command_.given.contains("steps")) {
    pp::require<pp::Error>(command_.settings.steps >= done, "train --resume: expected --steps of at least the ", done,
                           " done, got ", command_.settings.steps);
    trainer_->set_total_steps(command_.settings.steps);
  }
  best_score_ = saved.number("best_score");
  seconds_before_ = saved.number("seconds");
  const std::optional<SoundRecord> before = sound_record_from(saved.texts);
  command_.data = sound_folder(sound_request(trainer_->settings()), before);
  sound_ = open_sound(sound_request(trainer_->settings()), before, warn);
}

void TrainRun::announce() {
  const TrainSettings& settings = trainer_->settings();
  const pp::GanRecipe& recipe = trainer_->gan().recipe();
  std::int64_t weights = 0;
  std::string names;
  for (const auto& [name, discriminator] : trainer_->gan().discriminators()) {
    weights += discriminator->parameter_count();
    names += (names.empty() ? "" : " and ") + name;
  }
  std::printf("sound    %s to learn from (%s), %zu held out (%s), from %s\n",
              counted(static_cast<std::int64_t>(sound_.train.clips.size()), "clip").c_str(),
              duration(sound_.train.seconds()).c_str(), sound_.heldout.clips.size(), duration(sound_.heldout.seconds()).c_str(),
              command_.data.c_str());
  std::printf("networks %s at %lld Hz, %s weights; %s, %s weights\n", recipe.network.c_str(),
              static_cast<long long>(recipe.sampling_rate), grouped(trainer_->gan().generator().parameter_count()).c_str(),
              names.c_str(), grouped(weights).c_str());
  std::printf("run      %s: %s %lld to %lld, %s of %lld samples each, seed %llu, %s\n", command_.run.path.c_str(),
              first_step_ > 0 ? "resumed, steps" : "steps", static_cast<long long>(first_step_ + 1),
              static_cast<long long>(settings.steps), counted(settings.batch, "segment").c_str(),
              static_cast<long long>(settings.segment), static_cast<unsigned long long>(settings.seed),
              counted(pp::num_threads(), "thread").c_str());
  if (group_.world() > 1)
    std::printf("ranks    %d processes, each with %s of a step\n", group_.world(),
                counted(settings.batch / group_.world(), "segment").c_str());
  std::fflush(stdout);
}

bool TrainRun::loop() {
  const InterruptGuard guard;
  const TrainSettings& settings = trainer_->settings();
  Progress progress(first_step_, settings.steps);
  Loader loader(sound_.train,
                {.batch = settings.batch / group_.world(),
                 .window = settings.segment,
                 .factor = 1,
                 .seed = settings.seed,
                 .rank = group_.rank(),
                 .world = group_.world()},
                first_step_);
  group_.set_step(first_step_);
  bool goes_on = true;
  try {
    while (trainer_->steps() < settings.steps && goes_on) {
      const pp::GanNumbers numbers = trainer_->step(loader.next().high);
      seconds_ = progress.seconds();
      after_step(numbers, progress);
      if (InterruptGuard::interrupted()) group_.request_stop();
      goes_on = group_.end_step();  // on all ranks after the same step
    }
  } catch (const Diverged& error) {
    throw pp::Error(pp::concat(
        error.what(), " (",
        saved_step_ > 0 ? pp::concat(command_.run.last(), " keeps step ", saved_step_) : std::string("nothing is saved yet"),
        ")"));
  }
  const bool finished = trainer_->steps() >= settings.steps;
  if (!finished && files_) {
    restore_folder();
    save_last();
  }
  return finished;
}

void TrainRun::after_step(const pp::GanNumbers& numbers, Progress& progress) {
  const std::int64_t step = trainer_->steps();
  mel_ += (step - first_step_ == 1 ? 1 : 0.05) * (numbers.mel - mel_);
  if (files_)
    files_->log().write(step, {seconds_before_ + seconds_, numbers.discriminator, numbers.adversarial, numbers.features,
                               numbers.mel, numbers.generator_norm, trainer_->gan().learning_rate()});
  if (step % check_interval() == 0 || step == trainer_->settings().steps) check(progress);
  std::vector<std::string> parts{"mel " + fixed(mel_, 2), "D " + fixed(numbers.discriminator, 2)};
  if (!heldout_text_.empty()) parts.push_back(heldout_text_);
  progress.show(step, std::move(parts));
}

void TrainRun::check(Progress& progress) {
  // By all ranks, so that none waits for another's scores.
  const Scores mean = trainer_->with_average([&] { return mean_of(evaluate(vocoder(), sound_.heldout)).scores; });
  heldout_text_ = "held out " + fixed(mean.mel, 3);
  if (!files_) return;
  restore_folder();
  files_->heldout_log().write(trainer_->steps(), {mean.mel, mean.stft});
  const bool is_best = mean.mel < best_score_;
  if (is_best) best_score_ = mean.mel;
  save_last();  // first, as it throws where a weight is not finite
  if (is_best) save_best();
  seconds_ = progress.seconds();
}

void TrainRun::restore_folder() {
  files_->restore();
  if (!fs::exists(command_.run.best())) best_score_ = std::numeric_limits<double>::infinity();
}

void TrainRun::save_last() {
  pp::Checkpoint checkpoint = trainer_->checkpoint();
  checkpoint.texts.merge(to_texts(sound_.record));
  checkpoint.numbers = {{"best_score", best_score_}, {"seconds", seconds_before_ + seconds_}};
  pp::save_checkpoint(command_.run.last(), checkpoint);
  saved_step_ = checkpoint.step;
  if (!fs::exists(command_.run.best())) save_best();
}

void TrainRun::save_best() {
  trainer_->save_generator(command_.run.best());
  pp::save_safetensors(best_discriminators(), discriminator_state(trainer_->gan()));
}

std::string TrainRun::resume_line() const {
  std::string line = shell_quoted(command_.program) + " train --resume --out " + shell_quoted(command_.run.path);
  for (const std::string& word : command_.repeated) line += " " + shell_quoted(word);
  return line;
}

void TrainRun::conclude(bool finished) {
  if (!files_) return;
  const RunFolder& run = command_.run;
  const auto steps = static_cast<double>(trainer_->steps() - first_step_);
  std::printf("\n%s after %lld steps in %s (%s steps/s)\n", finished ? "done" : "interrupted",
              static_cast<long long>(trainer_->steps()), duration(seconds_).c_str(),
              fixed(steps / std::max(seconds_, 1e-9), 2).c_str());
  if (finished) {
    std::printf("best held-out mel distance %s\n", fixed(best_score_, 4).c_str());
    trainer_->with_average([&] { write_clip(run.path, vocoder(), sound_.heldout.clips.front(), sound_.heldout.rate); });
    write_loss_curve(run.path, run);
    draw(run.path, true);
  } else {
    std::printf("continue with\n  %s\n", resume_line().c_str());
  }
  std::printf("network  %s\nrun      %s\nlogs     %s, %s\n", run.best().c_str(), run.last().c_str(), run.log().c_str(),
              run.heldout_log().c_str());
}

}  // namespace

int train(const TrainCommand& command) {
  pp::distributed::GroupOptions options{.stop_on_sigterm = false};
  const bool is_alone = pp::distributed::find_place().world == 1;
  if (is_alone || command.names_one_device) options.device = pp::default_device();  // --device; else each its own GPU
  const pp::distributed::Group group = pp::distributed::init(options);
  const pp::DeviceGuard device(group.device());
  // The first process speaks for all.
  if (!group.is_first() && std::freopen("/dev/null", "w", stdout) == nullptr) throw pp::Error("train: cannot open /dev/null");
  return TrainRun(command, group).run();
}

}  // namespace vocoder
