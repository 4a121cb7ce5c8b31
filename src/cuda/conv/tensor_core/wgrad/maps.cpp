#include "cuda/conv/tensor_core/wgrad/maps.hpp"

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

CUtensorMap encode_map(const WgradMapOf& of) {
  static const PFN_cuTensorMapEncodeTiled_v12000 function = find_encode();
  CUtensorMap map;
  const cuuint64_t sizes[] = {of.numbers, of.rows, of.samples}, strides[] = {of.row_bytes, of.sample_bytes};
  const cuuint32_t box[] = {of.box_numbers, of.box_rows, of.box_samples}, every[] = {1, 1, 1};
  // Integers: the bits of numbers stay what they are.
  const CUtensorMapDataType type = of.bytes == 4 ? CU_TENSOR_MAP_DATA_TYPE_INT32 : CU_TENSOR_MAP_DATA_TYPE_UINT16;
  const CUresult result =
      function(&map, type, 3, reinterpret_cast<void*>(of.address), sizes, strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
               of.swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require<DeviceError>(result == CUDA_SUCCESS, "conv tensor_core: cuTensorMapEncodeTiled of ", of.samples, " x ", of.rows,
                       " x ", of.numbers, " failed with error ", static_cast<int>(result));
  return map;
}

WgradMapOf wgrad_map_of(const WgradSide& side, const ConvProblem& problem, const void* tensor, int bytes, int c,
                        bool swizzled) {
  const auto channels = static_cast<std::uint64_t>(problem.G * side.channels), length = static_cast<std::uint64_t>(side.length);
  const auto classes = static_cast<std::uint64_t>(side.raw.classes), own = static_cast<std::uint64_t>(c);
  const auto size = static_cast<std::uint64_t>(bytes);
  const std::uint64_t first = reinterpret_cast<std::uint64_t>(tensor) + own * length * size;
  WgradMapOf of{};
  of.address = first / 16 * 16;
  of.offset = static_cast<int>((first - of.address) / size);
  of.numbers = length + static_cast<std::uint64_t>(of.offset);
  of.rows = channels > own ? (channels - own + classes - 1) / classes : 1;
  of.samples = static_cast<std::uint64_t>(problem.N);
  of.row_bytes = classes * length * size;
  // With one sample there is no next one.
  of.sample_bytes = (channels * length * size + 15) / 16 * 16;
  of.box_numbers = static_cast<std::uint32_t>(side.raw.width);
  of.box_rows = static_cast<std::uint32_t>(side.raw.rows);
  of.bytes = bytes;
  of.swizzled = swizzled;
  return of;
}

WgradMaps make_wgrad_maps(const WgradTiling& tiling, const ConvProblem& problem, const void* x, const void* y, int bytes) {
  WgradMaps maps{};
  const auto fill = [&](WgradClasses& classes, const WgradSide& side, const void* tensor) {
    for (int c = 0; c < side.raw.classes; ++c) {
      const WgradMapOf of = wgrad_map_of(side, problem, tensor, bytes, c, side.raw.is_swizzled);
      classes.map[c] = encode_map(of);
      classes.offset[c] = of.offset;
    }
  };
  fill(maps.rows, tiling.rows, tiling.swapped ? y : x);
  fill(maps.columns, tiling.columns, tiling.swapped ? x : y);
  return maps;
}

}  // namespace polyphase::cuda::tensor_core
