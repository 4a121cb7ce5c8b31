#include "pace.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "evaluation.hpp"
#include "shared.hpp"

namespace superres {
namespace {

constexpr double kLeastSeconds = 2;  // measured: shorter times depend on other processes
constexpr std::size_t kLeastSteps = 5;

template <class Work>
double seconds_of(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Pace measure_pace(Trainer& trainer, const TrainingSound& sound) {
  Trainer trial(trainer.checkpoint());
  std::vector<double> steps;
  double measured = 0;
  while (measured < kLeastSeconds || steps.size() < kLeastSteps) {
    const Batch batch = make_batch(sound.train, trial.loader_options(), trial.steps());  // in a run: another thread
    steps.push_back(seconds_of([&] { trial.step(batch); }));
    measured += steps.back();
  }
  // The first steps also allocate, and other processes delay some steps: the median ignores both.
  std::nth_element(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2), steps.end());

  const auto shortest = std::min_element(sound.heldout.clips.begin(), sound.heldout.clips.end(),
                                         [](const Clip& a, const Clip& b) { return a.length() < b.length(); });
  const ClipSet one{sound.heldout.rate, {*shortest}};
  const double check = seconds_of([&] { static_cast<void>(evaluate(trial.network(), one)); });
  return {.step = steps[steps.size() / 2], .check = check * sound.heldout.seconds() / one.seconds()};
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
