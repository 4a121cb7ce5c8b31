#pragma once
// Times the CPU convolutions on the shapes of bench/shapes.hpp, each result verified. What `polyphase bench` does.

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
  std::int64_t batch = 1;  ///< N of every shape; 0: the one quoted with the shape
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
  double error = 0;    ///< largest difference to the formula in double on a sample of outputs, over their root mean square
  bool ok = false;     ///< error within what f32 sums of this length may have
};

/// Runs every case on random normal data in f32, with num_threads() threads, rotating over several sets of arrays (64 MB in
/// all, at most 8 sets) so that no run finds its data in the caches nearest to it only because the run before used the same.
/// The output array exists beforehand. `progress` is called after each case; one that the algorithm cannot do is left out.
/// Throws Error on an unknown shape name, listing the known ones, and NotImplemented with the reason where no case is left.
std::vector<ConvBenchRecord> bench_convolutions(const ConvBenchOptions& options,
                                                const std::function<void(const ConvBenchRecord&)>& progress);

/// One aligned line of the table, and the line above all others.
void print_header(std::ostream& out);
void print_record(std::ostream& out, const ConvBenchRecord& record);

/// `{suite, device, isa, threads, records: [...]}`, a record holding what the struct holds and `problem` field by field.
void write_json(std::ostream& out, const std::vector<ConvBenchRecord>& records);

/// How many sets of arrays a problem is rotated over.
[[nodiscard]] int rotating_sets(const ConvProblem& problem);

}  // namespace polyphase::bench
