#include "pace.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "evaluation.hpp"
#include "text.hpp"

namespace superres {
namespace {

constexpr double kLeastSeconds = 1;  // measured: shorter times hang on what else the machine does
constexpr std::size_t kLeastSteps = 3;

template <class Work>
double seconds_of(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Pace measure_pace(Trainer& trainer, const TrainingSound& sound) {
  Trainer trial(trainer.checkpoint());
  const auto step = [&] { trial.step(make_batch(sound.train, trial.loader_options(), trial.steps())); };
  step();  // the first one also allocates
  double measured = 0;
  std::size_t steps = 0;
  for (; measured < kLeastSeconds || steps < kLeastSteps; ++steps) measured += seconds_of(step);

  const auto shortest = std::min_element(sound.heldout.clips.begin(), sound.heldout.clips.end(),
                                         [](const Clip& a, const Clip& b) { return a.length() < b.length(); });
  const ClipSet one{sound.heldout.rate, {*shortest}};
  const double check = seconds_of([&] { static_cast<void>(evaluate(trial.network(), one)); });
  return {.step = measured / static_cast<double>(steps), .check = check * sound.heldout.seconds() / one.seconds()};
}

std::string roughly(double seconds) {
  if (seconds < 5) return "a few seconds";
  if (seconds < 90) return "about " + fixed(std::round(seconds / 5) * 5, 0) + " seconds";
  const double minutes = seconds / 60;
  if (minutes < 10) {
    const double halves = std::round(minutes * 2) / 2;
    return "about " + fixed(halves, std::floor(halves) == halves ? 0 : 1) + " minutes";
  }
  if (minutes < 90) return "about " + fixed(minutes, 0) + " minutes";
  const double hours = std::round(minutes / 30) / 2;
  return "about " + fixed(hours, std::floor(hours) == hours ? 0 : 1) + " hours";
}

}  // namespace superres
