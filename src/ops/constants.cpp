#include "ops/constants.hpp"

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "autograd/no_grad.hpp"
#include "device/backend.hpp"
#include "tensor/operation.hpp"

namespace polyphase::ops {
namespace {

constexpr std::size_t kMostTables = 256;
constexpr std::size_t kMostBytes = 1 << 20;

struct Table {
  std::string operation;
  std::array<std::int64_t, 3> numbers;
  DType dtype;
  Device device;
  Tensor values;
};

}  // namespace

Tensor constant(const char* operation, const std::array<std::int64_t, 3>& numbers, DType dtype, Device device,
                const std::function<Tensor()>& make) {
  static std::mutex mutex;
  static auto* const tables = new std::vector<Table>;  // never destroyed: a device may be gone by then
  const auto known = [&] {
    return std::find_if(tables->begin(), tables->end(), [&](const Table& table) {
      return table.operation == operation && table.numbers == numbers && table.dtype == dtype && table.device == device;
    });
  };
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known(); found != tables->end()) return found->values;
  }
  const NoGradGuard no_grad;
  const OperationScope scope(operation);
  const Tensor values = make().to(dtype).to(device);
  if (static_cast<std::size_t>(values.numel()) * size_of(dtype) > kMostBytes) return values;
  backend_of(device).synchronize();  // once: threads may use it on other streams from now on
  const std::lock_guard lock(mutex);
  if (const auto found = known(); found != tables->end()) return found->values;  // another thread was faster
  if (tables->size() < kMostTables) tables->push_back({operation, numbers, dtype, device, values});
  return values;
}

}  // namespace polyphase::ops
