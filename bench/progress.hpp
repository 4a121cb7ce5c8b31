#pragma once
// How a benchmark spends its own time: a line for each case, and sums over all of them.

#include <chrono>
#include <map>
#include <ostream>
#include <string>
#include <utility>

namespace polyphase::bench {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  /// `out`: gets a line when a case is done; null: none.
  explicit Progress(std::ostream* out) : out_(out) {}

  /// The time until its destruction counts for `purpose`.
  class Span {
   public:
    Span(Progress& progress, std::string purpose) : progress_(progress), purpose_(std::move(purpose)) {}
    ~Span() { progress_.add(purpose_, std::chrono::duration<double>(Clock::now() - begin_).count()); }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Progress& progress_;
    std::string purpose_;
    Clock::time_point begin_ = Clock::now();
  };

  [[nodiscard]] Span span(std::string purpose) { return {*this, std::move(purpose)}; }

  /// Ends the case `name`: prints the time since the last one.
  void done(const std::string& name) {
    if (out_ != nullptr) {
      *out_ << name << ':';
      for (const auto& [purpose, seconds] : case_) *out_ << ' ' << purpose << ' ' << seconds;
      *out_ << " s" << std::endl;
    }
    case_.clear();
  }

  /// Seconds for each purpose, over all cases.
  [[nodiscard]] const std::map<std::string, double>& seconds() const { return all_; }

 private:
  void add(const std::string& purpose, double seconds) {
    case_[purpose] += seconds;
    all_[purpose] += seconds;
  }

  std::ostream* out_;
  std::map<std::string, double> case_, all_;
};

}  // namespace polyphase::bench
