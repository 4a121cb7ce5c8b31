#pragma once
// Names of enumerators and devices, as Python code gives and gets them.

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "conv/algorithm.hpp"
#include "layers/losses.hpp"
#include "layers/spectral/mel_filters.hpp"
#include "networks/network.hpp"
#include "ops/length.hpp"
#include "ops/spectral.hpp"
#include "tensor/device.hpp"
#include "tensor/dtype.hpp"
#include "tensor/map_op.hpp"

namespace polyphase::python {

/// The value of a name: "f32", "cuda:0", "leaky_relu". Throws Error, DTypeError or DeviceError with the names there are.
template <class T>
[[nodiscard]] T parse(std::string_view name);
/// The name of a value.
template <class T>
[[nodiscard]] std::string to_name(T value);

#define POLYPHASE_DECLARE_NAMES(T)         \
  template <>                              \
  [[nodiscard]] T parse(std::string_view); \
  template <>                              \
  [[nodiscard]] std::string to_name(T)
POLYPHASE_DECLARE_NAMES(DType);
POLYPHASE_DECLARE_NAMES(Device);
POLYPHASE_DECLARE_NAMES(Precision);
POLYPHASE_DECLARE_NAMES(Algorithm);
POLYPHASE_DECLARE_NAMES(Activation);
POLYPHASE_DECLARE_NAMES(PaddingMode);
POLYPHASE_DECLARE_NAMES(Reduction);
POLYPHASE_DECLARE_NAMES(UpsampleMode);
POLYPHASE_DECLARE_NAMES(IstftPadding);
POLYPHASE_DECLARE_NAMES(MelScale);
POLYPHASE_DECLARE_NAMES(NetworkInput);
#undef POLYPHASE_DECLARE_NAMES

}  // namespace polyphase::python
