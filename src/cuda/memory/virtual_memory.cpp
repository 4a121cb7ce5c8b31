#include "cuda/memory/virtual_memory.hpp"

#include <cuda.h>
#include <cudaTypedefs.h>

#include <utility>

namespace polyphase::cuda {
namespace {

template <class Function>
void find(Function& function, const char* name) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, &found);
#else
  const cudaError_t status = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &found);
#endif
  check(status, name, __FILE__, __LINE__);
  require<DeviceError>(found == cudaDriverEntryPointSuccess && address != nullptr, "cuda: the driver has no ", name);
  function = reinterpret_cast<Function>(address);
}

/// The driver's functions used here, looked up once.
struct Driver {
  PFN_cuMemAddressReserve_v10020 reserve = nullptr;
  PFN_cuMemAddressFree_v10020 release = nullptr;
  PFN_cuMemCreate_v10020 create = nullptr;
  PFN_cuMemRelease_v10020 destroy = nullptr;
  PFN_cuMemMap_v10020 map = nullptr;
  PFN_cuMemUnmap_v10020 unmap = nullptr;
  PFN_cuMemSetAccess_v10020 set_access = nullptr;
  PFN_cuMemGetAllocationGranularity_v10020 granularity = nullptr;
  PFN_cuDeviceGetAttribute_v2000 attribute = nullptr;
  PFN_cuGetErrorName_v6000 error_name = nullptr;

  Driver() {
    find(reserve, "cuMemAddressReserve");
    find(release, "cuMemAddressFree");
    find(create, "cuMemCreate");
    find(destroy, "cuMemRelease");
    find(map, "cuMemMap");
    find(unmap, "cuMemUnmap");
    find(set_access, "cuMemSetAccess");
    find(granularity, "cuMemGetAllocationGranularity");
    find(attribute, "cuDeviceGetAttribute");
    find(error_name, "cuGetErrorName");
  }
};

const Driver& driver() {
  static const Driver instance;
  return instance;
}

void require_success(CUresult status, const char* call, std::size_t bytes) {
  if (status == CUDA_SUCCESS) return;
  const char* name = "unknown error";
  (void)driver().error_name(status, &name);
  throw DeviceError(concat("cuda: ", call, " of ", bytes, " bytes failed: ", name));
}

CUmemAllocationProp properties_of(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  return properties;
}

/// A capturing thread also requests memory. CUDA forbids these calls then unless they are declared as intended.
class AllowDuringCapture {
 public:
  AllowDuringCapture() { CHECK_CUDA(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~AllowDuringCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  AllowDuringCapture(const AllowDuringCapture&) = delete;
  AllowDuringCapture& operator=(const AllowDuringCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

cudaStream_t stream_of(StreamId stream) { return reinterpret_cast<cudaStream_t>(stream); }

}  // namespace

bool VirtualMemory::supported(int device) {
  int supported = 0;
  try {
    require_success(driver().attribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device),
                    "cuDeviceGetAttribute", 0);
  } catch (const DeviceError&) {
    return false;  // a driver that does not know it
  }
  return supported != 0;
}

VirtualMemory::VirtualMemory(int device) : device_(device) {
  const DeviceScope scope(device_);
  CHECK_CUDA(cudaFree(nullptr));  // creates the device's context, in which the driver's functions work
  const CUmemAllocationProp properties = properties_of(device_);
  require_success(driver().granularity(&granularity_, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                  "cuMemGetAllocationGranularity", 0);
}

Address VirtualMemory::reserve(std::size_t bytes) {
  CUdeviceptr address = 0;
  return driver().reserve(&address, bytes, 0, 0, 0) == CUDA_SUCCESS ? static_cast<Address>(address) : 0;
}

void VirtualMemory::release(Address address, std::size_t bytes) noexcept { (void)driver().release(address, bytes); }

/// False if there is no memory for the tables; then nothing is mapped.
bool VirtualMemory::map_handle(Address address, std::size_t bytes, unsigned long long handle) {
  CUresult status = driver().map(address, bytes, 0, handle, 0);
  if (status == CUDA_ERROR_OUT_OF_MEMORY) return false;
  require_success(status, "cuMemMap", bytes);
  const CUmemAccessDesc access{.location = properties_of(device_).location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  status = driver().set_access(address, bytes, &access, 1);
  if (status == CUDA_SUCCESS) return true;
  (void)driver().unmap(address, bytes);
  if (status != CUDA_ERROR_OUT_OF_MEMORY) require_success(status, "cuMemSetAccess", bytes);
  return false;
}

std::size_t VirtualMemory::available() {
  const DeviceScope scope(device_);
  const AllowDuringCapture allow;
  std::size_t free = 0, total = 0;
  CHECK_CUDA(cudaMemGetInfo(&free, &total));
  return free;
}

bool VirtualMemory::map(Address address, std::size_t bytes) {
  const DeviceScope scope(device_);
  const AllowDuringCapture allow;
  const CUmemAllocationProp properties = properties_of(device_);
  auto& place = handles_[address];
  CUmemGenericAllocationHandle handle = 0;
  const CUresult status = driver().create(&handle, bytes, &properties, 0);
  if (status == CUDA_SUCCESS) {
    place = handle;
    try {
      if (map_handle(address, bytes, handle)) return true;
    } catch (...) {
      (void)driver().destroy(handle);
      handles_.erase(address);
      throw;
    }
    (void)driver().destroy(handle);
  }
  handles_.erase(address);
  if (status != CUDA_ERROR_OUT_OF_MEMORY) require_success(status, "cuMemCreate", bytes);
  return false;
}

void VirtualMemory::unmap(Address address, std::size_t bytes) noexcept {
  const auto found = handles_.find(address);
  if (found == handles_.end()) return;
  (void)driver().unmap(address, bytes);
  if (found->second != 0) (void)driver().destroy(found->second);
  handles_.erase(found);
}

// Both addresses may be mapped at the same time: the order of the streams ensures that work through the old address ends before
// work through the new one begins.
bool VirtualMemory::move(Address from, Address to, std::size_t bytes) {
  const DeviceScope scope(device_);
  const AllowDuringCapture allow;
  const auto handle = handles_.at(from);
  handles_[to] = 0;
  try {
    if (!map_handle(to, bytes, handle)) {
      handles_.erase(to);
      return false;
    }
  } catch (...) {
    handles_.erase(to);
    throw;
  }
  handles_.at(to) = std::exchange(handles_.at(from), 0);
  return true;
}

EventId VirtualMemory::record(StreamId stream) {
  const DeviceScope scope(device_);
  const AllowDuringCapture allow;
  Event event = [&] {
    if (spare_.empty()) return Event();
    Event last = std::move(spare_.back());
    spare_.pop_back();
    return last;
  }();
  event.record(stream_of(stream));
  const auto id = reinterpret_cast<EventId>(event.get());
  events_.emplace(id, std::move(event));
  return id;
}

bool VirtualMemory::done(EventId event) {
  const auto found = events_.find(event);
  if (!found->second.done()) return false;
  spare_.push_back(std::move(found->second));
  events_.erase(found);
  return true;
}

void VirtualMemory::wait(EventId event) {
  const auto found = events_.find(event);
  found->second.synchronize();
  spare_.push_back(std::move(found->second));
  events_.erase(found);
}

void VirtualMemory::order(StreamId earlier, StreamId later) {
  const DeviceScope scope(device_);
  Event event;
  event.record(stream_of(earlier));
  event.wait_on(stream_of(later));
}

void VirtualMemory::synchronize(StreamId stream) { wait_for(stream_of(stream)); }

}  // namespace polyphase::cuda
