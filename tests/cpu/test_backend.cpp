#include "cpu/backend.hpp"

#include <doctest/doctest.h>

#include "support/conv.hpp"
#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("the host's backend is one object with the host's allocator") {
  Backend& backend = cpu_backend();
  CHECK(&backend == &backend_of(Device::cpu()));
  CHECK(dynamic_cast<cpu::CpuBackend*>(&backend) != nullptr);
  const std::uint64_t before = backend.allocator().stats().allocations;
  const Tensor t = Tensor::zeros({100});
  CHECK(backend.allocator().stats().allocations > before);
}

TEST_CASE("bytes to and from the host") {
  const std::vector<float> from = {1, 2, 3};
  const Tensor t = Tensor::zeros({3});
  std::vector<float> back(3, 0);
  cpu_backend().copy_from_host(t.raw(), from.data(), 12);
  cpu_backend().copy_to_host(back.data(), t.raw(), 12);
  cpu_backend().copy_to_host(nullptr, nullptr, 0);
  cpu_backend().synchronize();
  CHECK(back == from);
}

TEST_CASE("convolutions are those of cpu/conv.hpp, whatever the precision") {
  ConvProblem p;
  p.N = 2, p.C_in = 3, p.C_out = 4, p.L_in = 9, p.K = 4, p.S = 2, p.P_l = p.P_r = 1;
  const ConvArrays<float> arrays(sized(p), kSmallIntegers);
  const auto tensor = [](const Array<float>& array) {
    return Tensor::from_vector(std::vector<float>(array.data(), array.data() + array.size()));
  };
  const Tensor x = tensor(arrays.x), w = tensor(arrays.w), y = tensor(arrays.y), b = tensor(arrays.bias_out);
  for (const Precision precision : {Precision::ieee, Precision::fp32, Precision::tf32}) {
    const Tensor forward = Tensor::empty(y.shape()), dgrad = Tensor::empty(x.shape()), wgrad = Tensor::empty(w.shape());
    cpu_backend().conv_forward(arrays.p, x, w, b, forward, Algorithm::automatic, precision);
    cpu_backend().conv_dgrad(arrays.p, y, w, {}, dgrad, Algorithm::automatic, precision);
    cpu_backend().conv_wgrad(arrays.p, x, y, wgrad, Algorithm::automatic, precision);
    CHECK(max_difference(forward, tensor(arrays.run(ConvDirection::forward, Algorithm::reference))) == 0);
    CHECK(max_difference(dgrad, tensor(arrays.run(ConvDirection::dgrad, Algorithm::reference, false))) == 0);
    CHECK(max_difference(wgrad, tensor(arrays.run(ConvDirection::wgrad, Algorithm::reference))) == 0);
    CHECK(cpu_backend().can_implement(arrays.p, ConvDirection::forward, Algorithm::tensor_core, precision) ==
          cpu::can_implement(arrays.p, ConvDirection::forward, Algorithm::tensor_core));
  }
}
