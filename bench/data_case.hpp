#pragma once
// Cases of bench/data_independence: shapes, and the device that runs a case.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "exact_output.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::bench {

/// A Conv1d whose input and output have the same length; its input is the problem's y.
struct Conv1dShape {
  std::string_view name;
  std::int64_t N, channels, length, K;
};
inline constexpr std::array kConv1dShapes = {
    Conv1dShape{"conv128_k7", 16, 128, 55104, 7}, Conv1dShape{"conv128_k7_n4", 4, 128, 55104, 7},
    Conv1dShape{"conv256_k3", 4, 256, 6888, 3},   Conv1dShape{"conv64_k3", 4, 64, 110208, 3},
    Conv1dShape{"conv64_k7", 16, 64, 110208, 7},  Conv1dShape{"conv32_k11", 4, 32, 110208, 11},
    Conv1dShape{"conv_tiny", 2, 8, 96, 3}};

/// A problem with its name in kConv1dShapes or shapes.hpp, or "up_tiny". Directions are those of the layer: `forward` of a
/// Conv1d is the problem's dgrad.
struct DataShape {
  std::string name;
  ConvProblem problem;
  bool is_conv1d;
};
/// Throws Error for another name.
[[nodiscard]] DataShape data_shape(const std::string& name);

struct DataCase {
  std::string shape;
  ConvProblem problem;
  bool is_conv1d;
  ConvDirection direction;  ///< the problem's
  std::string precision;
};

/// The arrays of a problem; the direction's result is overwritten.
struct DataArrays {
  Tensor x, w, y;
  [[nodiscard]] Tensor& result(ConvDirection direction) {
    return direction == ConvDirection::forward ? y : direction == ConvDirection::dgrad ? x : w;
  }
};

struct DataTimes {
  double us_burst, us_normal;
};

/// Kernels are called by name: "automatic" is the library's choice.
class DataDevice {
 public:
  virtual ~DataDevice() = default;
  [[nodiscard]] virtual Device device() const = 0;
  [[nodiscard]] virtual std::string name() const = 0;
  /// The kernels besides "automatic" that can compute the case.
  [[nodiscard]] virtual std::vector<std::string> kernels(const DataCase& what, DataArrays& arrays) = 0;
  /// The kernel that "automatic" takes.
  [[nodiscard]] virtual std::string chosen(const DataCase& what) = 0;
  virtual void run(const DataCase& what, const std::string& kernel, DataArrays& arrays) = 0;
  /// Times the two in turns. If one launch of the first takes several times as long as one of the second, it is timed once.
  [[nodiscard]] virtual DataTimes time(const std::function<void()>& mixed, const std::function<void()>& normal) = 0;
  /// The elements `samples` of the result: in float64, and as computed.
  [[nodiscard]] virtual std::vector<SampledOutput> sampled(const DataCase& what, DataArrays& arrays,
                                                           const std::vector<std::int64_t>& samples) = 0;
  /// Sums that were recomputed so far.
  [[nodiscard]] virtual std::uint64_t recomputed() = 0;
};

[[nodiscard]] std::unique_ptr<DataDevice> make_cpu_data_device();
/// Only in a build with CUDA. Throws DeviceError without a GPU.
[[nodiscard]] std::unique_ptr<DataDevice> make_gpu_data_device();

}  // namespace polyphase::bench
