#include "cuda/conv/tensor_core/pipeline/tensor_map.hpp"

#include <cudaTypedefs.h>

#include "cuda/runtime/runtime.hpp"
#include "tensor/error.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

PFN_cuTensorMapEncodeTiled_v12000 find_encode() {
  constexpr const char* kName = "cuTensorMapEncodeTiled";
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  CHECK_CUDA(cudaGetDriverEntryPointByVersion(kName, &address, 12000, cudaEnableDefault, &found));
#else
  CHECK_CUDA(cudaGetDriverEntryPoint(kName, &address, cudaEnableDefault, &found));
#endif
  require<DeviceError>(found == cudaDriverEntryPointSuccess && address != nullptr, "cuda: the driver has no ", kName);
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(address);
}

}  // namespace

TensorMapOf class_map_of(const MapRows& rows, int own, int classes, std::uint64_t boundary, int width, int box_rows) {
  const auto size = static_cast<std::uint64_t>(rows.bytes), count = static_cast<std::uint64_t>(classes);
  const auto all = static_cast<std::uint64_t>(rows.rows), skipped = static_cast<std::uint64_t>(own);
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(rows.length) * size;
  const std::uint64_t first = reinterpret_cast<std::uint64_t>(rows.array) + skipped * row_bytes;
  TensorMapOf of{};
  of.address = first / boundary * boundary;
  of.offset = static_cast<int>((first - of.address) / size);
  of.numbers = static_cast<std::uint64_t>(rows.length + of.offset);
  of.rows = all > skipped ? (all - skipped + count - 1) / count : 1;
  of.samples = 1;
  of.row_bytes = count * row_bytes;
  of.sample_bytes = of.rows * of.row_bytes;
  of.box_numbers = static_cast<std::uint32_t>(width);
  of.box_rows = static_cast<std::uint32_t>(box_rows / classes);
  of.bytes = rows.bytes;
  return of;
}

CUtensorMap encode_tensor_map(const TensorMapOf& of) {
  static const PFN_cuTensorMapEncodeTiled_v12000 function = find_encode();
  CUtensorMap map;
  const cuuint64_t sizes[] = {of.numbers, of.rows, of.samples}, strides[] = {of.row_bytes, of.sample_bytes};
  const cuuint32_t box[] = {of.box_numbers, of.box_rows, of.box_samples}, every[] = {1, 1, 1};
  // An integer type, so that the copy keeps all bits.
  const CUtensorMapDataType type = of.bytes == 4 ? CU_TENSOR_MAP_DATA_TYPE_INT32 : CU_TENSOR_MAP_DATA_TYPE_UINT16;
  const CUresult result =
      function(&map, type, 3, reinterpret_cast<void*>(of.address), sizes, strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
               of.swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require<DeviceError>(result == CUDA_SUCCESS, "conv tensor_core: cuTensorMapEncodeTiled of ", of.samples, " x ", of.rows,
                       " x ", of.numbers, " failed with error ", static_cast<int>(result));
  return map;
}

}  // namespace polyphase::cuda::tensor_core
