#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"

#include <cstdlib>
#include <string_view>

#include "cuda/runtime/presence.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

bool is_asked_for() {
  static const bool asked = [] {
    const char* value = std::getenv("POLYPHASE_TENSOR_CORE");
    return value != nullptr && std::string_view(value) == "sm80";
  }();
  return asked;
}

}  // namespace

bool uses_mma(int arch) {
  if (arch != 90) return arch >= 80;
  static const bool has_wgmma = built_archs().find("90a") != std::string_view::npos;
  return !has_wgmma || is_asked_for();
}

}  // namespace polyphase::cuda::tensor_core
