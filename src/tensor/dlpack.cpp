#include "tensor/dlpack.hpp"

#include <cstddef>
#include <limits>
#include <memory>
#include <utility>

#include "tensor/error.hpp"
#include "tensor/tensor_backend.hpp"

namespace polyphase {

using namespace dlpack;

namespace {

static_assert(sizeof(void*) != 8 || (sizeof(DLTensor) == 48 && offsetof(DLTensor, shape) == 24 &&
                                     offsetof(DLManagedTensorVersioned, dl_tensor) == 32),
              "the layout is the one of dlpack.h");

DLDataType type_of(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(dtype));
  if (dtype == DType::i64) return {kDLInt, bits, 1};
  return {dtype == DType::bf16 ? kDLBfloat : kDLFloat, bits, 1};
}

DType dtype_from(const DLDataType& type) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64}) {
    const DLDataType known = type_of(dtype);
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return dtype;
  }
  throw DTypeError(concat("from_dlpack: expected f32, f64, f16, bf16 or i64 of one lane, got type code ", int{type.code},
                          " of ", int{type.bits}, " bits and ", type.lanes, " lanes"));
}

Device device_from(const DLDevice& device) {
  if (device.device_type == kDLCPU) return Device::cpu();
  require<DeviceError>(device.device_type == kDLCUDA && device.device_id >= 0,
                       "from_dlpack: expected device type 1 (cpu) or 2 (cuda), got type ", static_cast<int>(device.device_type),
                       ", index ", device.device_id);
  (void)tensor_backend_of(Device::cuda(device.device_id));  // throws if there is no such device
  return Device::cuda(device.device_id);
}

// The target of an exported struct; it keeps the elements alive.
struct Export {
  DLManagedTensorVersioned managed{};
  Tensor tensor;
  Shape shape;
  Shape strides;
};

// The number of bytes from the first element to the end of the last one.
std::size_t reach(const Shape& shape, const Shape& strides, std::size_t element) {
  if (shape.numel() == 0) return 0;
  std::int64_t elements = 1;
  bool fits = true;
  for (int i = 0; i < shape.rank(); ++i) {
    std::int64_t step = 0;
    fits =
        fits && !__builtin_mul_overflow(shape[i] - 1, strides[i], &step) && !__builtin_add_overflow(elements, step, &elements);
  }
  fits = fits && elements <= std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(element);
  require<ShapeError>(fits, "from_dlpack: shape ", shape, " with strides ", strides, " reaches past 64 bits");
  return static_cast<std::size_t>(elements) * element;
}

struct Layout {
  Shape shape;
  Shape strides;
};

Layout layout_from(const DLTensor& tensor) {
  require<ShapeError>(tensor.ndim >= 0 && tensor.ndim <= kMaxRank, "from_dlpack: expected a rank of 0 to ", kMaxRank, ", got ",
                      tensor.ndim);
  require<ShapeError>(tensor.ndim == 0 || tensor.shape != nullptr, "from_dlpack: expected a shape of rank ", tensor.ndim,
                      ", got a null pointer");
  Layout layout;
  for (int i = 0; i < tensor.ndim; ++i) layout.shape.push_back(tensor.shape[i]);
  (void)layout.shape.numel();  // throws on negative sizes
  layout.strides = contiguous_strides(layout.shape);
  for (int i = 0; i < tensor.ndim && tensor.strides != nullptr; ++i) {
    if (layout.shape[i] <= 1) continue;  // never used; some libraries leave arbitrary values there
    require<ShapeError>(tensor.strides[i] >= 0, "from_dlpack: expected strides of at least 0, got ", tensor.strides[i],
                        " in dimension ", i);
    layout.strides[i] = tensor.strides[i];
  }
  return layout;
}

void release(DLManagedTensorVersioned* managed) {
  if (managed->deleter != nullptr) managed->deleter(managed);
}

}  // namespace

DLManagedTensorVersioned* to_dlpack(const Tensor& tensor) {
  require<AutogradError>(!tensor.requires_grad(), "to_dlpack: the tensor requires grad, which the other side cannot follow; ",
                         "use detach()");
  const Device device = tensor.device();
  tensor_backend_of(device).synchronize();
  auto owned = std::make_unique<Export>();
  owned->tensor = tensor.detach();
  tensor.storage().mark_exported();
  owned->shape = tensor.shape();
  owned->strides = tensor.strides();
  DLManagedTensorVersioned& managed = owned->managed;
  managed.version = kVersion;
  managed.manager_ctx = owned.get();
  managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Export*>(self->manager_ctx); };
  managed.dl_tensor.data = tensor.numel() > 0 ? tensor.raw() : nullptr;
  managed.dl_tensor.device = {device.is_cpu() ? kDLCPU : kDLCUDA, device.index};
  managed.dl_tensor.ndim = tensor.rank();
  managed.dl_tensor.dtype = type_of(tensor.dtype());
  managed.dl_tensor.shape = tensor.rank() > 0 ? &owned->shape[0] : nullptr;
  managed.dl_tensor.strides = tensor.rank() > 0 ? &owned->strides[0] : nullptr;
  return &owned.release()->managed;
}

Tensor from_dlpack(DLManagedTensorVersioned* managed) {
  require<Error>(managed != nullptr, "from_dlpack: expected a tensor, got a null pointer");
  std::unique_ptr<DLManagedTensorVersioned, void (*)(DLManagedTensorVersioned*)> owner(managed, release);
  // In another major version only the fields before the tensor are reliable.
  require<NotImplemented>(managed->version.major == kVersion.major, "from_dlpack: expected DLPack version ", kVersion.major,
                          ".x, got ", managed->version.major, ".", managed->version.minor);
  const DLTensor& source = managed->dl_tensor;
  const DType dtype = dtype_from(source.dtype);
  const Device device = device_from(source.device);
  const auto [shape, strides] = layout_from(source);
  const std::size_t bytes = reach(shape, strides, size_of(dtype));
  require<Error>(bytes == 0 || source.data != nullptr, "from_dlpack: expected ", bytes, " bytes of data, got a null pointer");
  void* data = bytes == 0 ? nullptr : static_cast<std::byte*>(source.data) + source.byte_offset;
  const auto misalignment = reinterpret_cast<std::uintptr_t>(data) % size_of(dtype);
  require<Error>(misalignment == 0, "from_dlpack: expected ", dtype, " data aligned to ", size_of(dtype), " bytes, got it ",
                 misalignment, " bytes past");
  const bool read_only = (managed->flags & kReadOnly) != 0;
  const std::shared_ptr<DLManagedTensorVersioned> shared = std::move(owner);
  const Tensor tensor = Tensor::over(Storage(data, bytes, device, [shared] {}), shape, strides, 0, dtype);
  return read_only ? tensor.clone() : tensor;
}

}  // namespace polyphase
