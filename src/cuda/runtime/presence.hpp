#pragma once
// Whether this build can use a machine's driver and GPUs, and if not, why. Internal; no CUDA headers, no GPU needed.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace polyphase::cuda {

/// The architectures of -Dgpu_archs that this build has machine code for: "80 90a".
[[nodiscard]] std::string_view built_archs();

/// The code of a build for `archs` that runs on a GPU of compute capability `capability` (90 for 9.0): __CUDA_ARCH__ / 10 in
/// its kernels; 0: none. Machine code runs on its own major version from its minor version on; with a suffix 'a' or 'f' only on
/// its own version. The last plain one is also present as PTX, which the driver translates for any later GPU (CUDA C++
/// programming guide, "binary and PTX compatibility").
[[nodiscard]] int code_arch(std::string_view archs, int capability);

/// Why a build for `archs` cannot use a GPU: `cuda:0 (Tesla T4, sm_75): this build has code for 80 90a; configure it with
/// -Dgpu_archs=75`. Empty if it can.
[[nodiscard]] std::string archs_problem(int device, const std::string& name, int capability, std::string_view archs);

/// Why the driver cannot run this build; versions as in cudaDriverGetVersion (0: none) and cudaRuntimeGetVersion. Empty if it
/// can.
[[nodiscard]] std::string driver_problem(int driver, int runtime);

/// A GPU in one line: `NVIDIA H200, sm_90, 132 multiprocessors, 143771 MiB; driver for CUDA 13.0, built with 13.0 for 80 90a`.
/// Throws DeviceError.
[[nodiscard]] std::string describe_device(int device);

/// A number that no other GPU has, nor any other part of a GPU that is divided (MIG). Throws DeviceError.
[[nodiscard]] std::array<std::int64_t, 2> device_uuid(int device);

/// Makes a device current on the calling thread, for good. A thread that never does so has device 0, and its first call of the
/// runtime takes memory there even if the process uses another device. Throws DeviceError.
void make_current(int device);

}  // namespace polyphase::cuda
