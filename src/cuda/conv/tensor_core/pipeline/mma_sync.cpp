#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"

#include <cstdlib>
#include <string>
#include <string_view>

#include "cuda/runtime/presence.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

/// POLYPHASE_TENSOR_CORE as it was at first.
std::string_view asked_for() {
  static const std::string value = [] {
    const char* const now = std::getenv("POLYPHASE_TENSOR_CORE");
    return std::string(now != nullptr ? now : "");
  }();
  return value;
}

}  // namespace

bool uses_mma(int arch) {
  if (arch != 90) return arch >= 80;
  static const bool has_wgmma = built_archs().find("90a") != std::string_view::npos;
  return !has_wgmma || asked_for() == "sm80";
}

bool uses_wide() { return asked_for() == "wide"; }

}  // namespace polyphase::cuda::tensor_core
