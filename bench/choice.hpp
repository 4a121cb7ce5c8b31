#pragma once
// The time that the library's choice loses against the fastest of all timed kernels.

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace polyphase::bench {

class ChoiceLog {
 public:
  /// In the case `name` the library's choice took `times` as long as `fastest`, which may be the choice itself.
  void add(std::string name, double times, std::string fastest) {
    cases_.push_back({std::move(name), times, std::move(fastest)});
  }

  [[nodiscard]] std::size_t cases() const { return cases_.size(); }
  /// Geometric mean and maximum of the ratios; 1 without a case.
  [[nodiscard]] double mean() const {
    double logs = 0;
    for (const Case& one : cases_) logs += std::log(one.times);
    return cases_.empty() ? 1 : std::exp(logs / static_cast<double>(cases_.size()));
  }
  [[nodiscard]] double worst() const {
    double most = 1;
    for (const Case& one : cases_) most = std::max(most, one.times);
    return most;
  }

  /// The summary, and each case that loses more than 5 %.
  void print(std::ostream& out) const {
    if (cases_.empty()) return;
    constexpr double kMuch = 1.05;
    const std::streamsize digits = out.precision(4);
    out << "choice: the chosen kernels take " << mean() << " times the fastest one's time (geometric mean of " << cases_.size()
        << " cases), at worst " << worst() << '\n';
    for (const Case& one : cases_)
      if (one.times > kMuch)
        out << "choice: " << one.name << " takes " << one.times << " times as long as " << one.fastest << '\n';
    out.precision(digits);
  }

 private:
  struct Case {
    std::string name;
    double times;
    std::string fastest;
  };
  std::vector<Case> cases_;
};

}  // namespace polyphase::bench
