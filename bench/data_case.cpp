#include "data_case.hpp"

#include <algorithm>
#include <chrono>

#include "cpu/conv/conv.hpp"
#include "cpu/isa.hpp"
#include "shapes.hpp"
#include "tensor/error.hpp"

namespace polyphase::bench {
namespace {

class CpuDataDevice final : public DataDevice {
 public:
  [[nodiscard]] Device device() const override { return Device::cpu(); }
  [[nodiscard]] std::string name() const override { return concat("CPU, ", cpu_isa()); }
  [[nodiscard]] std::vector<std::string> kernels(const DataCase&, DataArrays&) override { return {}; }
  [[nodiscard]] std::string chosen(const DataCase& what) override {
    return std::string(name_of(cpu::choose(what.problem, what.direction)));
  }
  void run(const DataCase& what, const std::string&, DataArrays& arrays) override {
    const ConvProblem& p = what.problem;
    switch (what.direction) {
      case ConvDirection::forward:
        return cpu::conv_forward(p, arrays.x.raw(), arrays.w.raw(), nullptr, arrays.y.raw(), Algorithm::automatic);
      case ConvDirection::dgrad:
        return cpu::conv_dgrad(p, arrays.y.raw(), arrays.w.raw(), nullptr, arrays.x.raw(), Algorithm::automatic);
      case ConvDirection::wgrad:
        return cpu::conv_wgrad(p, arrays.x.raw(), arrays.y.raw(), arrays.w.raw(), Algorithm::automatic);
    }
  }
  [[nodiscard]] DataTimes time(const std::function<void()>& mixed, const std::function<void()>& normal) override {
    constexpr int kRounds = 5;
    std::vector<double> of_mixed, of_normal;
    for (int round = 0; round < kRounds; ++round) {
      of_normal.push_back(time_one(normal));
      of_mixed.push_back(time_one(mixed));
    }
    return {median(of_mixed), median(of_normal)};
  }
  [[nodiscard]] std::vector<SampledOutput> sampled(const DataCase& what, DataArrays& arrays,
                                                   const std::vector<std::int64_t>& samples) override {
    const ExactOutput<float> output{what.problem,           what.direction,         false,
                                    arrays.x.data<float>(), arrays.w.data<float>(), arrays.y.data<float>()};
    std::vector<SampledOutput> outputs;
    for (const std::int64_t index : samples) {
      const ExactSum sum = output.sum(index);
      outputs.push_back({sum.value, sum.magnitude, output.result(index)});
    }
    return outputs;
  }
  [[nodiscard]] std::uint64_t recomputed() override { return 0; }

 private:
  static double time_one(const std::function<void()>& launch) {
    const auto begin = std::chrono::steady_clock::now();
    launch();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }
  static double median(std::vector<double>& times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
};

}  // namespace

DataShape data_shape(const std::string& name) {
  for (const Conv1dShape& shape : kConv1dShapes)
    if (shape.name == name) {
      ConvProblem p{.N = shape.N, .C_in = shape.channels, .C_out = shape.channels, .L_in = shape.length, .K = shape.K};
      p.P_l = p.P_r = (shape.K - 1) / 2;
      p.L_out = shape.length;
      return {name, p, true};
    }
  if (name == "up_tiny")
    return {name, problem_of({"", {.N = 2, .C_in = 8, .C_out = 8, .L_in = 96, .K = 4, .S = 2, .P_l = 1, .P_r = 1}}), false};
  const Shape* const shape = find_shape(name);
  require<Error>(shape != nullptr, "--shapes: no shape of data_case.hpp or shapes.hpp is called '", name, "'");
  return {name, problem_of(*shape), false};
}

std::unique_ptr<DataDevice> make_cpu_data_device() { return std::make_unique<CpuDataDevice>(); }

}  // namespace polyphase::bench
