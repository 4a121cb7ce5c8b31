#include "training/transport.hpp"

#include "device/backend.hpp"

namespace training {

TensorBatch tensors_of(const Batch& batch, pp::Device device) {
  const auto rows_of = [&](const std::vector<float>& values) {
    return pp::Tensor::from_vector(values, {batch.rows, 1, static_cast<std::int64_t>(values.size()) / batch.rows}, device);
  };
  return {batch.step, rows_of(batch.low), rows_of(batch.high)};
}

Transport transport_to(pp::Device device) {
  (void)pp::backend_of(device);  // a missing device is reported here, not in the loader's thread
  if (device.is_cpu()) {
    return [](const Batch& batch) -> Arrival { return [tensors = tensors_of(batch, pp::Device::cpu())] { return tensors; }; };
  }
  auto ring = std::make_shared<RingTransport<PinnedMemory>>(PinnedMemory{device.index});
  return [ring](const Batch& batch) { return ring->send(batch); };
}

}  // namespace training
