#include "gpu_timing.hpp"

#include <cublas_v2.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <thread>

#include "cuda/linear/blas.hpp"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::bench {
namespace {

using cuda::Event;

/// Microseconds per launch of `count` launches in a row. Launch number `first` before them is not timed: an event on an idle
/// GPU is recorded immediately, and the next launch comes 5 to 50 us later, because the host has to prepare it.
double run_many(const Launch& launch, int first, int count, cudaStream_t stream, const std::function<void()>& meanwhile = {}) {
  Event begin(true), end(true);
  launch(first);
  begin.record(stream);
  for (int i = 1; i <= count; ++i) launch(first + i);
  end.record(stream);
  if (meanwhile) meanwhile();
  end.synchronize();
  return Event::elapsed_ms(begin, end) * 1e3 / count;
}

constexpr int kBurst = 12;

/// One burst, then a rest. Products of a millisecond in a row draw so much power that the card lowers its clock, also for the
/// next contender (measured on an H200: 1575 MHz instead of 1980). time_sustained() measures that state.
double run_burst(const Launch& launch, int round, cudaStream_t stream) {
  constexpr double kRests = 2, kLongestRest = 1e5;  // kRests: times the burst; kLongestRest: us
  const double us = run_many(launch, round * kBurst, kBurst, stream);
  const double rest = std::min(kRests * us * kBurst, kLongestRest);
  std::this_thread::sleep_for(std::chrono::microseconds(static_cast<std::int64_t>(rest)));
  return us;
}

/// The driver's management library, called in this process: nvidia-smi takes longer than a measurement.
class Management {
 public:
  Management() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
    if (library_ == nullptr) return;
    const auto initialise = function<int()>("nvmlInit_v2");
    const auto by_bus = function<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    std::array<char, 32> bus{};
    if (initialise == nullptr || by_bus == nullptr || initialise() != 0) return;
    ready_ = true;
    if (cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), 0) != cudaSuccess || by_bus(bus.data(), &device_) != 0)
      device_ = nullptr;
  }
  [[nodiscard]] int clock_mhz() const {
    constexpr int kSmClock = 1;
    const auto ask = function<int(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
    unsigned mhz = 0;
    if (device_ == nullptr || ask == nullptr || ask(device_, kSmClock, &mhz) != 0) return 0;
    return static_cast<int>(mhz);
  }
  [[nodiscard]] std::string driver() const {
    const auto ask = function<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
    std::array<char, 96> text{};
    if (!ready_ || ask == nullptr || ask(text.data(), static_cast<unsigned>(text.size())) != 0) return "unknown";
    return text.data();
  }

 private:
  template <class F>
  [[nodiscard]] F* function(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<F*>(::dlsym(library_, name));
  }
  void* library_;
  void* device_ = nullptr;
  bool ready_ = false;
};

const Management& management() {
  static const Management instance;
  return instance;
}

double time_alone(const Launch& launch, cudaStream_t stream) { return time_alternating({launch}, stream).front(); }

}  // namespace

int sm_clock_mhz() { return management().clock_mhz(); }

std::string driver_version() { return management().driver(); }

std::vector<double> time_alternating(const std::vector<Launch>& launches, cudaStream_t stream, const Patience& patience) {
  constexpr int kRounds = 5;
  std::vector<double> warm_up;
  for (const Launch& launch : launches) warm_up.push_back(run_many(launch, 0, 2, stream));
  const auto fastest = std::min_element(warm_up.begin(), warm_up.end());
  std::vector<std::vector<double>> bursts(launches.size());
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < launches.size(); ++i) {
      const bool is_near = warm_up[i] <= patience.times * *fastest;
      if (is_near || (round == 0 && patience.has_burst)) bursts[i].push_back(run_burst(launches[i], round, stream));
    }
  for (std::size_t i = 0; i < launches.size(); ++i)
    if (bursts[i].empty()) bursts[i].push_back(warm_up[i]);
  std::vector<double> medians;
  for (std::vector<double>& times : bursts) {
    std::sort(times.begin(), times.end());
    medians.push_back(times[times.size() / 2]);
  }
  return medians;
}

double time_once(const Launch& launch, cudaStream_t stream) {
  CHECK_CUDA(cudaStreamSynchronize(stream));
  Event begin(true), end(true);
  begin.record(stream);
  launch(0);
  end.record(stream);
  end.synchronize();
  return Event::elapsed_ms(begin, end) * 1e3;
}

Sustained time_sustained(const Launch& launch, double us_burst, cudaStream_t stream) {
  Sustained sustained;
  const int count = static_cast<int>(std::clamp(1e6 / us_burst, 12.0, 300.0));
  sustained.us = run_many(launch, 0, count, stream, [&] { sustained.clock_mhz = sm_clock_mhz(); });
  return sustained;
}

double copy_bandwidth(cudaStream_t stream) {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  const cuda::Buffer from(kBytes, 0), to(kBytes, 0);
  const double us = time_alone(
      [&](int) { CHECK_CUDA(cudaMemcpyAsync(to.as<void>(), from.as<void>(), kBytes, cudaMemcpyDeviceToDevice, stream)); },
      stream);
  return 2.0 * static_cast<double>(kBytes) / (us * 1e-6);
}

double blas_rate(DType dtype, Precision precision, cudaStream_t stream) {
  constexpr int kSize = 8192;
  const TensorOptions options{.dtype = dtype, .device = Device::cuda(0)};
  const Tensor a = Tensor::randn({kSize, kSize}, options), b = Tensor::randn({kSize, kSize}, options);
  const Tensor c = Tensor::empty({kSize, kSize}, options);
  const cudaDataType type = dtype == DType::f64    ? CUDA_R_64F
                            : dtype == DType::f16  ? CUDA_R_16F
                            : dtype == DType::bf16 ? CUDA_R_16BF
                                                   : CUDA_R_32F;
  const cublasComputeType_t compute = dtype == DType::f64                                   ? CUBLAS_COMPUTE_64F
                                      : dtype == DType::f32 && precision == Precision::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                                            : CUBLAS_COMPUTE_32F;
  const double one64 = 1, zero64 = 0;
  const float one32 = 1, zero32 = 0;
  const bool is_double = dtype == DType::f64;
  const void* one = is_double ? static_cast<const void*>(&one64) : &one32;
  const void* zero = is_double ? static_cast<const void*>(&zero64) : &zero32;
  const double us = time_alone(
      [&](int) {
        CHECK_CUBLAS(cublasGemmEx(cuda::blas_handle(0, stream), CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, one, a.raw(),
                                  type, kSize, b.raw(), type, kSize, zero, c.raw(), type, kSize, compute, CUBLAS_GEMM_DEFAULT));
      },
      stream);
  return 2.0 * kSize * kSize * kSize / (us * 1e-6);
}

}  // namespace polyphase::bench
