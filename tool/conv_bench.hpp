#pragma once
// Times the CPU convolutions on the shapes of bench/shapes.hpp and verifies each result. `polyphase bench` runs it.

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"

namespace polyphase::bench {

struct ConvBenchOptions {
  std::vector<std::string> shapes;  ///< names; empty: all
  std::vector<ConvDirection> directions = {ConvDirection::forward, ConvDirection::dgrad, ConvDirection::wgrad};
  Algorithm algorithm = Algorithm::automatic;
  std::int64_t batch = 1;  ///< N of every shape; 0: the shape's own
  int repeat = 15;         ///< timed runs of each case, after one that is not timed
};

struct ConvBenchRecord {
  std::string shape;
  ConvProblem problem;
  ConvDirection direction = ConvDirection::forward;
  Algorithm algorithm = Algorithm::automatic;
  double us = 0;       ///< median of the runs
  double us_best = 0;  ///< fastest run
  double gflops = 0;   ///< operations over the median
  double error = 0;    ///< largest difference from the formula in f64 on a sample of outputs, over their root mean square
  bool ok = false;     ///< error within the bound for f32 sums of this length
};

/// Runs every case on random normal data in f32, with num_threads() threads. It rotates over several sets of arrays (64 MB in
/// all, at most 8 sets), so that a run does not find its data in the nearest caches only because the run before used the same.
/// The output array is allocated before. `progress` is called after each case; cases that the algorithm cannot compute are
/// omitted. Throws Error on an unknown shape name, with the known ones, and NotImplemented with the reason if no case is left.
std::vector<ConvBenchRecord> bench_convolutions(const ConvBenchOptions& options,
                                                const std::function<void(const ConvBenchRecord&)>& progress);

/// One aligned line of the table, and its header.
void print_header(std::ostream& out);
void print_record(std::ostream& out, const ConvBenchRecord& record);

/// `{suite, device, isa, threads, records: [...]}`. A record has the fields of the struct and, in `problem`, of the problem.
void write_json(std::ostream& out, const std::vector<ConvBenchRecord>& records);

/// Number of sets of arrays for a problem.
[[nodiscard]] int rotating_sets(const ConvProblem& problem);

}  // namespace polyphase::bench
