#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "commands.hpp"
#include "cpu/threads.hpp"
#include "evaluation.hpp"
#include "metrics.hpp"
#include "pace.hpp"
#include "shared.hpp"
#include "trainer.hpp"
#include "training/progress.hpp"
#include "training/run_files.hpp"
#include "training/training_sound.hpp"

namespace superres {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTimingSteps = 20;  // after these --minutes is converted into steps

void warn(const std::string& text) { std::fprintf(stderr, "superres: warning: %s\n", text.c_str()); }

// A run can only be resumed unchanged: options that shape it must agree with the checkpoint if they are given again.
void require_same_settings(const TrainCommand& command, const pp::Checkpoint& saved) {
  auto wanted = to_texts(command.settings);
  wanted.merge(to_texts(command.model));
  for (const auto& [name, value] : wanted) {
    if (name == "steps" || !command.given.contains(name)) continue;
    const auto before = saved.texts.find(name);
    pp::require<pp::Error>(before == saved.texts.end() || before->second == value, "train --resume: the run in ",
                           command.run.path, " was started with ", name, " = ",
                           before == saved.texts.end() ? "" : before->second, ", got ", value);
  }
}

class TrainRun {
 public:
  explicit TrainRun(const TrainCommand& command) : command_(command) {}

  int run() {
    prepare();
    announce();
    const bool finished = [&] {
      try {
        return loop();
      } catch (const Diverged& error) {
        const std::string kept =
            saved_step_ > 0 ? pp::concat(command_.run.last(), " keeps step ", saved_step_) : "nothing is saved yet";
        throw pp::Error(pp::concat(error.what(), " (", kept, ")"));
      }
    }();
    conclude(finished);
    return finished ? 0 : kInterruptedExit;
  }

 private:
  void prepare();
  void start();
  void resume();
  [[nodiscard]] SoundRequest sound_request(const ModelOptions& model, const TrainSettings& settings) const;
  void announce();
  void announce_time();
  bool loop();
  void after_step(const StepResult& result, Progress& progress);
  void fit_to_minutes(Progress& progress);
  void check(Progress& progress);
  void require_folder();
  void save_last();
  [[nodiscard]] std::string resume_line() const;
  void conclude(bool finished);
  [[nodiscard]] std::int64_t check_interval() const {
    return command_.check_every > 0 ? command_.check_every : std::max<std::int64_t>(trainer_->settings().steps / 10, 1);
  }

  TrainCommand command_;
  std::optional<RunFiles> files_;
  TrainingSound sound_;
  std::optional<Trainer> trainer_;
  std::int64_t first_step_ = 0;
  std::int64_t saved_step_ = 0;  // step of the last checkpoint; 0: there is none
  double best_score_ = std::numeric_limits<double>::infinity();
  double seconds_before_ = 0;  // spent before this run was resumed
  double seconds_ = 0;
  double waited_ = 0;
  std::optional<double> snr_;  // smoothed, of batches that are not silent
  double loss_ = 0;            // smoothed
  std::string heldout_text_;
};

void TrainRun::prepare() {
  files_.emplace(command_.run, command_.resume, warn);
  command_.resume ? resume() : start();
  first_step_ = trainer_->steps();
  files_->open_logs("step,seconds,loss,snr_db,learning_rate,gradient_norm",
                    "step,snr_db,si_sdr_db,lsd,sinc_snr_db,sinc_si_sdr_db,sinc_lsd", first_step_);
}

SoundRequest TrainRun::sound_request(const ModelOptions& model, const TrainSettings& settings) const {
  return {.folder = command_.data,
          .is_given = command_.given.contains("data"),
          .run = command_.run,
          .rate = model.rate,
          .factor = model.factor,
          .window = settings.window,
          .shortest_heldout = kLsdWindow,
          .heldout_fraction = settings.heldout_fraction,
          .cache_megabytes = command_.cache_megabytes};
}

void TrainRun::start() {
  sound_ = open_sound(sound_request(command_.model, command_.settings), std::nullopt, warn);
  command_.model.rate = sound_.train.rate;
  trainer_.emplace(command_.model, command_.settings);
}

void TrainRun::resume() {
  const RunFolder& run = command_.run;
  const pp::Checkpoint saved = load_finite_checkpoint(run.last());
  require_same_settings(command_, saved);
  const std::optional<SoundRecord> before = sound_record_from(saved.texts);
  command_.data = sound_folder(sound_request(command_.model, command_.settings), before);
  if (!before) {
    warn(pp::concat(run.last(), " has no record of its training sound, because an older version wrote it: continuing with ",
                    command_.data));
  }
  trainer_.emplace(saved);
  const std::int64_t done = saved_step_ = trainer_->steps();
  if (command_.given.contains("steps")) {
    pp::require<pp::Error>(command_.settings.steps >= done, "train --resume: expected --steps of at least the ", done,
                           " done, got ", command_.settings.steps);
    trainer_->set_total_steps(command_.settings.steps);
  }
  // Room for the steps that measure the speed.
  if (command_.minutes > 0) trainer_->set_total_steps(std::max(trainer_->settings().steps, done + kTimingSteps));
  best_score_ = saved.number("best_score");
  seconds_before_ = saved.number("seconds");
  sound_ = open_sound(sound_request(trainer_->network().options(), trainer_->settings()), before, warn);
}

void TrainRun::announce() {
  UpsamplingNetwork& network = trainer_->network();
  const ModelOptions& model = network.options();
  const Context context = network.context();
  const auto milliseconds = [&](std::int64_t samples) {
    return fixed(1000.0 * static_cast<double>(samples) / model.low_rate(), 1);
  };
  const auto clips = [](const ClipSet& set) { return counted(static_cast<std::int64_t>(set.clips.size()), "clip"); };
  std::printf("sound    %s to learn from (%s), %zu held out (%s), from %s\n", clips(sound_.train).c_str(),
              duration(sound_.train.seconds()).c_str(), sound_.heldout.clips.size(), duration(sound_.heldout.seconds()).c_str(),
              command_.data.c_str());
  std::printf("network  %d Hz -> %d Hz, %s weights, uses %s ms before and %s ms after a sample\n", model.low_rate(), model.rate,
              grouped(network.parameter_count()).c_str(), milliseconds(context.left).c_str(),
              milliseconds(context.right).c_str());
  const TrainSettings& settings = trainer_->settings();
  std::printf("run      %s: %s %lld to %lld, %s of %lld samples each, seed %llu, %s\n", command_.run.path.c_str(),
              first_step_ > 0 ? "resumed, steps" : "steps", static_cast<long long>(first_step_ + 1),
              static_cast<long long>(settings.steps), counted(settings.batch, "window").c_str(),
              static_cast<long long>(settings.window), static_cast<unsigned long long>(settings.seed),
              counted(pp::num_threads(), "thread").c_str());
  std::fflush(stdout);
  announce_time();
  std::fflush(stdout);
}

void TrainRun::announce_time() {
  const std::int64_t last = trainer_->settings().steps;
  if (command_.minutes > 0) {
    std::printf("time     %s, as --minutes asks\n", roughly(command_.minutes * 60).c_str());
  } else if (last - first_step_ >= kShortestTimed) {
    try {
      const Pace pace = measure_pace(*trainer_, sound_);
      const std::int64_t every = check_interval();
      const std::int64_t checks =
          last / every - first_step_ / every + (last % every == 0 ? 1 : 2);  // plus the scores at the end
      const double seconds = pace.step * static_cast<double>(last - first_step_) + pace.check * static_cast<double>(checks);
      std::printf("time     %s on this machine\n", roughly(seconds).c_str());
    } catch (const Diverged&) {  // the run itself will report it, with its step
    }
  }
  std::fflush(stdout);
}

bool TrainRun::loop() {
  const InterruptGuard guard;
  Progress progress(first_step_, trainer_->settings().steps);
  Loader loader(sound_.train, trainer_->loader_options(), first_step_);
  while (trainer_->steps() < trainer_->settings().steps && !InterruptGuard::interrupted()) {
    const StepResult result = trainer_->step(loader.next());
    seconds_ = progress.seconds();
    after_step(result, progress);
  }
  waited_ = loader.waited();
  if (InterruptGuard::interrupted()) save_last();
  return !InterruptGuard::interrupted();
}

void TrainRun::after_step(const StepResult& result, Progress& progress) {
  const std::int64_t step = trainer_->steps();
  const double share = step - first_step_ == 1 ? 1 : 0.05;
  if (std::isfinite(result.snr)) snr_ = snr_ ? *snr_ + share * (result.snr - *snr_) : result.snr;
  loss_ += share * (result.loss - loss_);
  files_->log().write(step,
                      {seconds_before_ + seconds_, result.loss, result.snr, trainer_->learning_rate(), result.gradient_norm});
  if (command_.minutes > 0 && step - first_step_ == kTimingSteps) fit_to_minutes(progress);
  if (step % check_interval() == 0 || step == trainer_->settings().steps) check(progress);
  std::vector<std::string> parts{"loss " + fixed(loss_, 3), "SNR " + (snr_ ? fixed(*snr_, 1) : "-") + " dB"};
  if (!heldout_text_.empty()) parts.push_back(heldout_text_);
  progress.show(step, std::move(parts));
}

// The length of the run depends on the speed of its first steps. Only in this case does the result depend on the machine.
void TrainRun::fit_to_minutes(Progress& progress) {
  const double left = command_.minutes * 60 - seconds_;
  const auto more = static_cast<std::int64_t>(left * 0.97 * static_cast<double>(kTimingSteps) / seconds_);
  trainer_->set_total_steps(trainer_->steps() + std::max<std::int64_t>(more, 1));
  progress.set_total(trainer_->settings().steps);
}

void TrainRun::check(Progress& progress) {
  const pp::Checkpoint average = trainer_->averaged();  // first, because it throws before anything is scored, logged or saved
  const ClipScores mean = mean_of(trainer_->with_average([&] { return evaluate(trainer_->network(), sound_.heldout); }));
  require_folder();
  files_->heldout_log().write(trainer_->steps(), {mean.network.snr, mean.network.si_sdr, mean.network.lsd, mean.sinc.snr,
                                                  mean.sinc.si_sdr, mean.sinc.lsd});
  const double score = selection_score(mean);
  if (score < best_score_) {
    best_score_ = score;
    pp::save_checkpoint(command_.run.best(), average);
  }
  save_last();
  heldout_text_ = "LSD " + fixed(mean.network.lsd, 2) + " (sinc " + fixed(mean.sinc.lsd, 2) + ")";
  seconds_ = progress.seconds();
}

void TrainRun::require_folder() {
  files_->restore();
  if (!fs::exists(command_.run.best())) best_score_ = std::numeric_limits<double>::infinity();
}

void TrainRun::save_last() {
  require_folder();
  pp::Checkpoint checkpoint = trainer_->checkpoint();
  checkpoint.texts.merge(to_texts(sound_.record));
  checkpoint.numbers = {{"best_score", best_score_}, {"seconds", seconds_before_ + seconds_}};
  pp::save_checkpoint(command_.run.last(), checkpoint);
  saved_step_ = checkpoint.step;
  if (!fs::exists(command_.run.best())) pp::save_checkpoint(command_.run.best(), trainer_->averaged());
}

// The command that resumes this run, for a shell. The checkpoint has all options except those of the computation.
std::string TrainRun::resume_line() const {
  std::string line = shell_quoted(command_.program) + " train --resume --out " + shell_quoted(command_.run.path);
  for (const std::string& word : command_.repeated) line += " " + shell_quoted(word);
  // Until the number of steps is known, the checkpoint has the default number.
  const bool still_timing = trainer_->steps() - first_step_ < kTimingSteps;
  if (command_.minutes > 0 && still_timing) line += " --minutes " + pp::concat(command_.minutes);
  return line;
}

void TrainRun::conclude(bool finished) {
  const RunFolder& run = command_.run;
  const double steps = static_cast<double>(trainer_->steps() - first_step_);
  std::printf("\n%s after %lld steps in %s (%s steps/s; waited %s s for sound)\n", finished ? "done" : "interrupted",
              static_cast<long long>(trainer_->steps()), duration(seconds_).c_str(),
              fixed(steps / std::max(seconds_, 1e-9), 2).c_str(), fixed(waited_, 1).c_str());
  if (finished) {
    UpsamplingNetwork best = load_network(run.best());
    const std::vector<ClipScores> scores = evaluate(best, sound_.heldout);
    std::printf("\n%s\n%s\n", table_of(scores).c_str(), verdict(mean_of(scores)).c_str());
  } else {
    std::printf("continue with\n  %s\n", resume_line().c_str());
  }
  std::printf("\nnetwork  %s\nrun      %s\nlogs     %s, %s\n", run.best().c_str(), run.last().c_str(), run.log().c_str(),
              run.heldout_log().c_str());
}

}  // namespace

void validate(const TrainCommand& command) {
  if (command.resume) {
    // All other options must be those of the run's start.
    pp::require<pp::Error>(command.settings.steps >= 1, "train: expected --steps of at least 1, got ", command.settings.steps);
    return;
  }
  ModelOptions model = command.model;
  if (model.rate == 0) model.rate = model.factor;  // any valid rate, until the files give theirs
  validate(model);
  validate(command.settings, model);
}

int train(const TrainCommand& command) { return TrainRun(command).run(); }

}  // namespace superres
