#include "tensor/tensor_backend.hpp"

#include <cmath>
#include <limits>
#include <type_traits>

namespace polyphase {
namespace {

// The next number towards minus infinity.
template <class T>
T before(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::nextafter(x, -std::numeric_limits<T>::infinity());
  } else {  // a sign and a magnitude
    const int step = (x.bits & 0x8000) != 0 ? 1 : -1;
    x.bits = x.bits == 0 ? std::uint16_t{0x8001} : static_cast<std::uint16_t>(x.bits + step);
    return x;
  }
}

}  // namespace

double uniform_limit(double low, double high, DType dtype) {
  return dispatch(dtype, [&]<class T>(T) {
    if constexpr (std::is_same_v<T, std::int64_t>) {
      return high;
    } else {
      using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
      const T from(static_cast<Wide>(low)), to(static_cast<Wide>(high));
      const T limit = static_cast<Wide>(from) < static_cast<Wide>(to) ? before(to) : from;
      return static_cast<double>(static_cast<Wide>(limit));
    }
  });
}

Tensor Moments::mean_everywhere() const {
  Shape strides = mean.strides();
  for (int d = 0; d < mean.rank(); ++d)
    if (mean.shape()[d] != centred.shape()[d]) strides[d] = 0;
  return Tensor::over(mean.storage(), centred.shape(), strides, mean.offset(), mean.dtype());
}

}  // namespace polyphase
