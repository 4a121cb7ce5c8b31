#include "cuda/runtime/presence.hpp"

#include <algorithm>
#include <bit>
#include <charconv>

#include "cuda/built_archs.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

std::string version(int number) { return concat(number / 1000, ".", number % 1000 / 10); }

/// Calls visit(number, is_plain) for each word of "80 90a".
template <class Visit>
void for_each_arch(std::string_view archs, const Visit& visit) {
  while (!archs.empty()) {
    const std::size_t end = std::min(archs.find(' '), archs.size());
    const std::string_view word = archs.substr(0, end);
    int number = 0;
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), number);
    if (parsed.ec == std::errc{}) visit(number, parsed.ptr == word.data() + word.size());
    archs.remove_prefix(std::min(end + 1, archs.size()));
  }
}

}  // namespace

std::string_view built_archs() { return POLYPHASE_BUILT_ARCHS; }

int code_arch(std::string_view archs, int capability) {
  int machine_code = 0, last_plain = 0;
  for_each_arch(archs, [&](int arch, bool plain) {
    const bool fits = arch == capability || (plain && arch / 10 == capability / 10 && arch <= capability);
    if (fits) machine_code = std::max(machine_code, arch);
    if (plain) last_plain = arch;
  });
  if (machine_code != 0) return machine_code;
  return last_plain <= capability ? last_plain : 0;
}

std::string archs_problem(int device, const std::string& name, int capability, std::string_view archs) {
  if (code_arch(archs, capability) != 0) return "";
  return concat("cuda:", device, " (", name, ", sm_", capability, "): this build has code for ", archs,
                "; configure it with -Dgpu_archs=", capability);
}

std::string driver_problem(int driver, int runtime) {
  if (driver == 0) return "no NVIDIA driver is installed";
  if (driver / 1000 >= runtime / 1000) return "";  // a driver runs all of its major version, and older ones
  return concat("the NVIDIA driver supports CUDA ", version(driver), ", this build needs ", version(runtime));
}

std::string describe_device(int device) {
  const DeviceProperties& gpu = properties(device);
  int driver = 0, runtime = 0;
  CHECK_CUDA(cudaDriverGetVersion(&driver));
  CHECK_CUDA(cudaRuntimeGetVersion(&runtime));
  return concat(gpu.name, ", sm_", gpu.arch(), ", ", gpu.sm_count, " multiprocessors, ", gpu.total_bytes >> 20U,
                " MiB; driver for CUDA ", version(driver), ", built with ", version(runtime), " for ", built_archs());
}

std::array<std::int64_t, 2> device_uuid(int device) {
  cudaDeviceProp found{};
  CHECK_CUDA(cudaGetDeviceProperties(&found, device));
  return std::bit_cast<std::array<std::int64_t, 2>>(found.uuid);
}

}  // namespace polyphase::cuda
