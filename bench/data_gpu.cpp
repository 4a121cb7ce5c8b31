// The GPU that runs the cases of bench/data_independence.

#include <algorithm>

#include "conv_forms.hpp"
#include "cuda/conv/choice/plan.hpp"
#include "cuda/conv/tensor_core/choice/kernels.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/conv/tensor_core/tensor_core.hpp"
#include "cuda/cuda.hpp"
#include "cuda/runtime/runtime.hpp"
#include "data_case.hpp"
#include "gpu_case.hpp"
#include "gpu_check.hpp"
#include "gpu_timing.hpp"
#include "tensor/error.hpp"

namespace polyphase::bench {
namespace {

using cuda::tensor_core::GatherKernel;

DeviceOperands operands_of(const DataArrays& arrays) { return {arrays.x.raw(), arrays.w.raw(), arrays.y.raw()}; }

class GpuDataDevice final : public DataDevice {
 public:
  GpuDataDevice() : gpu_(cuda::properties(0)), stream_(cuda::current_stream(0)) {}

  [[nodiscard]] Device device() const override { return Device::cuda(0); }
  [[nodiscard]] std::string name() const override { return gpu_.name; }

  [[nodiscard]] std::vector<std::string> kernels(const DataCase& what, DataArrays& arrays) override {
    std::vector<std::string> names;
    if (what.direction == ConvDirection::wgrad || cuda::tensor_core::uses_mma(gpu_.arch())) return names;
    const Ends at(what, arrays);
    for (const GatherKernel kernel : cuda::tensor_core::kGatherKernels)
      if (kernel_cost(kernel,
                      {what.problem, what.direction, mode_of(what.precision).precision, cuda::alignment_of(at.source, at.out)},
                      gpu_))
        names.emplace_back(cuda::tensor_core::name_of(kernel));
    return names;
  }

  [[nodiscard]] std::string chosen(const DataCase& what) override {
    const Precision precision = mode_of(what.precision).precision;
    return chosen_kernel(what.problem, what.direction,
                         cuda::make_conv_plan({what.problem, what.direction, precision}).algorithm, precision);
  }

  void run(const DataCase& what, const std::string& kernel, DataArrays& arrays) override {
    const Precision precision = mode_of(what.precision).precision;
    Sets::Set set{.x = arrays.x, .w = arrays.w, .dy = arrays.y, .y = arrays.y, .dx = arrays.x, .dw = arrays.w};
    if (kernel == "automatic")
      return run_own(what.problem, what.direction, set, Algorithm::automatic, precision, PackedWeights::kept, stream_);
    const auto named = std::find_if(std::begin(cuda::tensor_core::kGatherKernels), std::end(cuda::tensor_core::kGatherKernels),
                                    [&](GatherKernel one) { return cuda::tensor_core::name_of(one) == kernel; });
    require<Error>(named != std::end(cuda::tensor_core::kGatherKernels), "no kernel is called '", kernel, "'");
    const Ends at(what, arrays);
    const cuda::Weights weights(arrays.w.raw(), arrays.w.storage());
    gather_by(*named, {what.problem, what.direction, precision, at.source, weights, nullptr, at.out, {}, 0, stream_});
  }

  [[nodiscard]] DataTimes time(const std::function<void()>& mixed, const std::function<void()>& normal) override {
    constexpr double kMuch = 4, kLong = 4000;  // kMuch: times the normal case's time; kLong: us
    const Launch run_mixed = [&](int) { mixed(); }, run_normal = [&](int) { normal(); };
    const double once = time_once(run_mixed, stream_), normal_once = time_once(run_normal, stream_);
    if (once > kLong && once > kMuch * normal_once) return {once, time_alternating({run_normal}, stream_).front()};
    const std::vector<double> times = time_alternating({run_mixed, run_normal}, stream_, {.times = 2 * kMuch});
    return {times[0], times[1]};
  }

  [[nodiscard]] std::vector<SampledOutput> sampled(const DataCase& what, DataArrays& arrays,
                                                   const std::vector<std::int64_t>& samples) override {
    return sampled_outputs(what.problem, what.direction, operands_of(arrays), false, samples, stream_);
  }

  [[nodiscard]] std::uint64_t recomputed() override { return cuda::computed_again(0); }

 private:
  /// Source and result of forward or dgrad.
  struct Ends {
    Ends(const DataCase& what, const DataArrays& arrays)
        : source(what.direction == ConvDirection::forward ? arrays.x.raw() : arrays.y.raw()),
          out(what.direction == ConvDirection::forward ? arrays.y.raw() : arrays.x.raw()) {}
    const void* source;
    void* out;
  };
  const cuda::DeviceProperties& gpu_;
  cudaStream_t stream_;
};

}  // namespace

std::unique_ptr<DataDevice> make_gpu_data_device() {
  require<DeviceError>(cuda::device_count() > 0, cuda::unavailable_reason());
  return std::make_unique<GpuDataDevice>();
}

}  // namespace polyphase::bench
