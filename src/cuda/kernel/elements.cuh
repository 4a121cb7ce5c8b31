#pragma once
// The element types in kernels, and conversions that round like the CPU's (cpu/elementwise/copy.cpp).

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <limits>
#include <type_traits>

#include "tensor/dtype.hpp"

namespace polyphase::cuda {

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

/// The type in which elements of T are computed: f32 for the 16-bit types.
template <class T>
using MathOf = std::conditional_t<kIsHalf<T>, float, T>;

/// The DType of the kernels' element types.
template <class T>
inline constexpr DType dtype_of_element = DType::f32;
template <>
inline constexpr DType dtype_of_element<double> = DType::f64;
template <>
inline constexpr DType dtype_of_element<__half> = DType::f16;
template <>
inline constexpr DType dtype_of_element<__nv_bfloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of_element<std::int64_t> = DType::i64;

/// Calls function(T{}) with the kernels' element type of `dtype`.
template <class Function>
decltype(auto) dispatch_element(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::f64:
      return function(double{});
    case DType::f16:
      return function(__half{});
    case DType::bf16:
      return function(__nv_bfloat16{});
    case DType::i64:
      return function(std::int64_t{});
    case DType::f32:
      break;
  }
  return function(float{});
}

/// Calls function(T{}) with an unsigned integer of `bytes` (2, 4 or 8), for code that only moves elements.
template <class Function>
decltype(auto) dispatch_size(std::size_t bytes, Function&& function) {
  if (bytes == 2) return function(std::uint16_t{});
  if (bytes == 4) return function(std::uint32_t{});
  return function(std::uint64_t{});
}

/// `kCount` neighbouring elements as one aligned object: its loads and stores are as wide as the hardware supports.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount <= 16 ? sizeof(T) * kCount : 16) Pack {
  T at[kCount];  // (kCount)
};

/// Whether `pointer` is a multiple of `bytes`.
inline bool is_aligned(const void* pointer, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

#ifdef __CUDACC__

/// double to bf16 with one rounding: rounds to the float of next smaller magnitude and sets its last bit if that is inexact
/// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
__device__ __forceinline__ __nv_bfloat16 bfloat16_from_double(double value) {
  const float below = __double2float_rz(value);
  const unsigned odd = static_cast<double>(below) != value ? 1u : 0u;
  return __float2bfloat16_rn(__uint_as_float(__float_as_uint(below) | odd));
}

/// Saturates; NaN gives 0.
__device__ __forceinline__ std::int64_t integer_from_double(double value) {
  if (value != value) return 0;
  if (value >= 0x1p63) return std::numeric_limits<std::int64_t>::max();
  if (value < -0x1p63) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(value);
}

/// Round to nearest, once.
template <class To, class From>
__device__ __forceinline__ To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, __half>) {
    return convert<To>(__half2float(value));
  } else if constexpr (std::is_same_v<From, __nv_bfloat16>) {
    return convert<To>(__bfloat162float(value));
  } else if constexpr (std::is_same_v<To, __half>) {
    if constexpr (std::is_same_v<From, float>)
      return __float2half_rn(value);
    else
      return __double2half(static_cast<double>(value));
  } else if constexpr (std::is_same_v<To, __nv_bfloat16>) {
    if constexpr (std::is_same_v<From, float>)
      return __float2bfloat16_rn(value);
    else
      return bfloat16_from_double(static_cast<double>(value));
  } else if constexpr (std::is_same_v<To, std::int64_t>) {
    return integer_from_double(static_cast<double>(value));
  } else {
    return static_cast<To>(value);
  }
}

/// `values` rounded to T, two 16-bit numbers by one instruction.
template <class T, int kPack>
__device__ __forceinline__ Pack<T, kPack> rounded(const MathOf<T> (&values)[kPack]) {
  static_assert(kPack % 2 == 0 || kPack == 1);
  Pack<T, kPack> pack;
  if constexpr (kPack == 1) {
    pack.at[0] = convert<T>(values[0]);
    return pack;
  }
#pragma unroll
  for (int i = 0; i + 1 < kPack; i += 2) {
    if constexpr (std::is_same_v<T, __half>) {
      *reinterpret_cast<__half2*>(&pack.at[i]) = __floats2half2_rn(values[i], values[i + 1]);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      *reinterpret_cast<__nv_bfloat162*>(&pack.at[i]) = __floats2bfloat162_rn(values[i], values[i + 1]);
    } else {
      pack.at[i] = values[i], pack.at[i + 1] = values[i + 1];
    }
  }
  return pack;
}

#endif

}  // namespace polyphase::cuda
