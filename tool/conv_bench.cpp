#include "conv_bench.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iomanip>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <random>

#include "cpu/conv/conv.hpp"
#include "cpu/isa.hpp"
#include "cpu/threads.hpp"
#include "shapes.hpp"
#include "tensor/error.hpp"

namespace polyphase::bench {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t x_size(const ConvProblem& p) { return p.N * p.C_in * p.L_in; }
std::int64_t w_size(const ConvProblem& p) { return p.C_in * p.channels_out_per_group() * p.K; }
std::int64_t y_size(const ConvProblem& p) { return p.N * p.C_out * p.L_out; }

/// One set of arrays: two random operands, and the result, which is overwritten.
struct Arrays {
  std::vector<float> x, w, y;

  Arrays(const ConvProblem& p, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> noise(65521);  // a prime number: copies that begin at different offsets differ
    for (float& value : noise) value = normal(random);
    const auto fill = [&](std::vector<float>& to, std::int64_t size) {
      const std::size_t shift = random();
      to.resize(static_cast<std::size_t>(size));
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = noise[(i + shift + i / noise.size()) % noise.size()];
    };
    fill(x, x_size(p)), fill(w, w_size(p)), fill(y, y_size(p));
  }

  [[nodiscard]] std::vector<float>& result(ConvDirection direction) {
    return direction == ConvDirection::forward ? y : direction == ConvDirection::dgrad ? x : w;
  }

  void run(const ConvProblem& p, ConvDirection direction, Algorithm algorithm) {
    switch (direction) {
      case ConvDirection::forward:
        return cpu::conv_forward(p, x.data(), w.data(), nullptr, y.data(), algorithm);
      case ConvDirection::dgrad:
        return cpu::conv_dgrad(p, y.data(), w.data(), nullptr, x.data(), algorithm);
      case ConvDirection::wgrad:
        return cpu::conv_wgrad(p, x.data(), y.data(), w.data(), algorithm);
    }
  }
};

// One element of the result by the formula of conv/problem.hpp, in double.
double forward_at(const ConvProblem& p, const Arrays& a, std::int64_t index) {
  const std::int64_t t = index % p.L_out, co = index / p.L_out % p.C_out, n = index / p.L_out / p.C_out;
  const std::int64_t M = p.channels_out_per_group(), R = p.channels_in_per_group();
  double sum = 0;
  for (std::int64_t k = 0; k < p.K; ++k) {
    const std::int64_t at = t + p.P_l - k * p.D;
    if (at < 0 || at % p.S != 0 || at / p.S >= p.L_in) continue;
    for (std::int64_t ci = co / M * R; ci < (co / M + 1) * R; ++ci)
      sum += static_cast<double>(a.x[static_cast<std::size_t>((n * p.C_in + ci) * p.L_in + at / p.S)]) *
             static_cast<double>(a.w[static_cast<std::size_t>((ci * M + co % M) * p.K + k)]);
  }
  return sum;
}

double dgrad_at(const ConvProblem& p, const Arrays& a, std::int64_t index) {
  const std::int64_t i = index % p.L_in, ci = index / p.L_in % p.C_in, n = index / p.L_in / p.C_in;
  const std::int64_t M = p.channels_out_per_group(), R = p.channels_in_per_group();
  double sum = 0;
  for (std::int64_t k = 0; k < p.K; ++k) {
    const std::int64_t t = p.S * i + k * p.D - p.P_l;
    if (t < 0 || t >= p.L_out) continue;
    for (std::int64_t m = 0; m < M; ++m)
      sum += static_cast<double>(a.y[static_cast<std::size_t>((n * p.C_out + ci / R * M + m) * p.L_out + t)]) *
             static_cast<double>(a.w[static_cast<std::size_t>((ci * M + m) * p.K + k)]);
  }
  return sum;
}

double wgrad_at(const ConvProblem& p, const Arrays& a, std::int64_t index) {
  const std::int64_t M = p.channels_out_per_group(), R = p.channels_in_per_group();
  const std::int64_t k = index % p.K, m = index / p.K % M, ci = index / p.K / M;
  double sum = 0;
  for (std::int64_t n = 0; n < p.N; ++n)
    for (std::int64_t i = 0; i < p.L_in; ++i) {
      const std::int64_t t = p.S * i + k * p.D - p.P_l;
      if (t >= 0 && t < p.L_out)
        sum += static_cast<double>(a.x[static_cast<std::size_t>((n * p.C_in + ci) * p.L_in + i)]) *
               static_cast<double>(a.y[static_cast<std::size_t>((n * p.C_out + ci / R * M + m) * p.L_out + t)]);
    }
  return sum;
}

/// Products in the longest sum of one result.
double terms(const ConvProblem& p, ConvDirection direction) {
  if (direction == ConvDirection::wgrad) return static_cast<double>(p.N * p.L_in);
  if (direction == ConvDirection::dgrad) return static_cast<double>(p.channels_out_per_group() * p.K);
  return static_cast<double>(p.channels_in_per_group() * p.K);
}

/// Verifies both ends and random elements between. `record.error` is the largest error relative to the root mean square.
void verify(const ConvProblem& p, ConvDirection direction, Arrays& arrays, ConvBenchRecord& record) {
  const std::vector<float>& result = arrays.result(direction);
  const int samples = direction == ConvDirection::wgrad ? 60 : 400;
  std::mt19937_64 random(7);
  double worst = 0, squares = 0;
  for (int s = 0; s < samples; ++s) {
    const auto last = static_cast<std::int64_t>(result.size()) - 1;
    const std::int64_t index = s < 20   ? std::min<std::int64_t>(s, last)
                               : s < 40 ? std::max<std::int64_t>(0, last - (s - 20))
                                        : static_cast<std::int64_t>(random() % result.size());
    const double exact = direction == ConvDirection::forward ? forward_at(p, arrays, index)
                         : direction == ConvDirection::dgrad ? dgrad_at(p, arrays, index)
                                                             : wgrad_at(p, arrays, index);
    const double difference = std::abs(exact - static_cast<double>(result[static_cast<std::size_t>(index)]));
    worst = std::isnan(difference) ? HUGE_VAL : std::max(worst, difference);
    squares += exact * exact;
  }
  record.error = worst / std::sqrt(squares / samples);
  // Rounding errors of a sum grow like the root of its length; a factor of 8 covers the largest of a few hundred samples.
  record.ok = squares > 0 && record.error <= 8 * 0x1p-24 * std::sqrt(terms(p, direction));
}

ConvBenchRecord bench_one(const Shape& shape, ConvDirection direction, const ConvBenchOptions& options,
                          std::vector<std::unique_ptr<Arrays>>& sets) {
  const ConvProblem p = problem_of(shape, options.batch);
  ConvBenchRecord record{.shape = std::string(shape.name), .problem = p, .direction = direction};
  record.algorithm = options.algorithm == Algorithm::automatic ? cpu::choose(p, direction) : options.algorithm;
  std::vector<double> times;
  for (int run = -1; run < options.repeat; ++run) {
    Arrays& arrays = *sets[static_cast<std::size_t>(run + 1) % sets.size()];
    const Clock::time_point start = Clock::now();
    arrays.run(p, direction, options.algorithm);
    if (run >= 0) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  verify(p, direction, *sets[static_cast<std::size_t>(options.repeat) % sets.size()], record);
  std::sort(times.begin(), times.end());
  record.us = times[times.size() / 2];
  record.us_best = times.front();
  record.gflops = p.operations() / record.us * 1e-3;
  return record;
}

std::vector<Shape> chosen_shapes(const std::vector<std::string>& names) {
  if (names.empty()) return {kShapes.begin(), kShapes.end()};
  std::vector<Shape> chosen;
  for (const std::string& name : names) {
    const auto* found = std::find_if(kShapes.begin(), kShapes.end(), [&](const Shape& shape) { return shape.name == name; });
    std::string known;
    for (const Shape& shape : kShapes) known.append(" ").append(shape.name);
    require<Error>(found != kShapes.end(), "bench: expected a shape out of", known, ", got '", name, "'");
    chosen.push_back(*found);
  }
  return chosen;
}

nlohmann::ordered_json to_json(const ConvProblem& p) {
  return {{"N", p.N}, {"C_in", p.C_in}, {"C_out", p.C_out}, {"L_in", p.L_in}, {"L_out", p.L_out}, {"K", p.K},
          {"S", p.S}, {"P_l", p.P_l},   {"P_r", p.P_r},     {"OP", p.OP},     {"D", p.D},         {"G", p.G}};
}

}  // namespace

int rotating_sets(const ConvProblem& problem) {
  constexpr double kBytes = 64e6;
  const double bytes = 4.0 * static_cast<double>(x_size(problem) + w_size(problem) + y_size(problem));
  return static_cast<int>(std::clamp(std::ceil(kBytes / bytes), 1.0, 8.0));
}

std::vector<ConvBenchRecord> bench_convolutions(const ConvBenchOptions& options,
                                                const std::function<void(const ConvBenchRecord&)>& progress) {
  require<Error>(options.repeat >= 1, "bench: expected at least 1 repetition, got ", options.repeat);
  std::vector<ConvBenchRecord> records;
  std::string why_not;
  for (const Shape& shape : chosen_shapes(options.shapes)) {
    std::vector<std::unique_ptr<Arrays>> sets;
    const ConvProblem problem = problem_of(shape, options.batch);
    for (int s = 0; s < rotating_sets(problem); ++s)
      sets.push_back(std::make_unique<Arrays>(problem, static_cast<unsigned>(s)));
    for (const ConvDirection direction : options.directions) {
      if (const auto reason = cpu::can_implement(problem, direction, options.algorithm)) {
        why_not = concat("algorithm ", options.algorithm, ": ", *reason);
        continue;
      }
      records.push_back(bench_one(shape, direction, options, sets));
      progress(records.back());
    }
  }
  require<NotImplemented>(!records.empty(), "bench: no case can be timed: ", why_not);
  return records;
}

void print_header(std::ostream& out) {
  out << std::left << std::setw(13) << "shape" << std::setw(10) << "direction" << std::setw(11) << "algorithm" << std::right
      << std::setw(10) << "ms" << std::setw(10) << "GFLOP/s" << std::setw(11) << "error" << '\n';
}

void print_record(std::ostream& out, const ConvBenchRecord& record) {
  out << std::left << std::setw(13) << record.shape << std::setw(10) << concat(record.direction) << std::setw(11)
      << name_of(record.algorithm) << std::right << std::fixed << std::setprecision(3) << std::setw(10) << record.us * 1e-3
      << std::setprecision(1) << std::setw(10) << record.gflops << std::scientific << std::setw(11) << record.error
      << (record.ok ? "" : "  WRONG") << std::defaultfloat << std::endl;
}

void write_json(std::ostream& out, const std::vector<ConvBenchRecord>& records) {
  nlohmann::ordered_json root = {
      {"suite", "conv_transpose1d"}, {"device", "cpu"}, {"isa", cpu_isa()}, {"threads", num_threads()}};
  root["records"] = nlohmann::ordered_json::array();
  for (const ConvBenchRecord& r : records)
    root["records"].push_back({{"suite", "conv_transpose1d"},
                               {"shape", r.shape},
                               {"problem", to_json(r.problem)},
                               {"direction", concat(r.direction)},
                               {"precision", "fp32"},
                               {"algorithm", name_of(r.algorithm)},
                               {"us_burst", r.us},
                               {"us_best", r.us_best},
                               {"gflops", r.gflops},
                               {"error", r.error},
                               {"rotating_sets", rotating_sets(r.problem)}});
  out << root.dump(1) << '\n';
}

}  // namespace polyphase::bench
