#pragma once
// DLPack, the exchange format of array libraries (github.com/dmlc/dlpack, version 1.1): tensors are imported and exported
// without a copy.
//
// The structs below are the C ABI of DLPack's dlpack.h, in a separate namespace so that a program may include both; cast the
// pointers with reinterpret_cast.

#include <cstdint>

#include "../tensor/tensor.hpp"

namespace polyphase {
namespace dlpack {

struct DLPackVersion {
  std::uint32_t major;
  std::uint32_t minor;
};
inline constexpr DLPackVersion kVersion = {1, 1};

enum DLDeviceType : std::int32_t { kDLCPU = 1, kDLCUDA = 2 };
struct DLDevice {
  DLDeviceType device_type;
  std::int32_t device_id;
};

enum DLDataTypeCode : std::uint8_t { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4 };
struct DLDataType {
  std::uint8_t code;  ///< a DLDataTypeCode
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; null means row-major
  std::uint64_t byte_offset;
};

inline constexpr std::uint64_t kReadOnly = 1;  ///< of flags
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);  ///< may be null
  std::uint64_t flags;
  DLTensor dl_tensor;
};

}  // namespace dlpack

/// Lends the tensor's elements to another library; the storage lives until that library calls `deleter`. Waits for the device.
/// Throws AutogradError on a tensor that requires grad: detach() it.
[[nodiscard]] dlpack::DLManagedTensorVersioned* to_dlpack(const Tensor& tensor);

/// A tensor over another library's elements. `deleter` is called once: when the last handle on the storage is destroyed, or
/// before this function throws. A read-only tensor is copied, so that writes never reach it. Accepts f32, f64, f16, bf16 and
/// i64 with one lane, on cpu and cuda, naturally aligned, with strides of at least 0. Throws NotImplemented (another major
/// version), DTypeError, DeviceError, ShapeError, Error (null or misaligned data).
[[nodiscard]] Tensor from_dlpack(dlpack::DLManagedTensorVersioned* managed);

}  // namespace polyphase
