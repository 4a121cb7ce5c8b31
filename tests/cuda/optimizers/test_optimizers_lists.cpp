#include "cuda/optimizers/optimizers_lists.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "support/device.hpp"
#include "support/helpers.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

const TensorOptions kDouble{.dtype = DType::f64, .device = Device::cpu()};

// Lists of odd sizes and mixed dtypes, some misaligned, on the host and on the GPU; more than fit into one launch.
struct Lists {
  std::vector<Tensor> host, gpu;
  explicit Lists(std::uint64_t seed, bool large = false) {
    for (std::int64_t i = 0; i < 500; ++i) {
      const std::int64_t size = i == 7 ? (large ? 6000011 : 20011) : i == 8 ? 0 : i == 9 ? 4096 : 1 + i * 37 % 501;
      const DType dtype = kFloatTypes[i % 8 < 5 ? 0 : i % 8 - 4];
      host.push_back(random_f64({size + i % 2}, seed + static_cast<std::uint64_t>(i)).to(dtype).slice(0, i % 2, size + i % 2));
      gpu.push_back(mirrored(host.back()));
    }
  }
  [[nodiscard]] double worst(DType dtype) const {
    double worst = 0;
    for (std::size_t i = 0; i < host.size(); ++i)
      if (host[i].dtype() == dtype) worst = worse(worst, worst_difference(host[i], gpu[i]));
    return worst;
  }
  // The last bits of 16-bit numbers may differ, because the compilers contract f32 arithmetic differently.
  void check_close() const {
    CHECK(worst(DType::f32) <= kFloatRounding);
    CHECK(worst(DType::f64) <= kDoubleRounding);
    CHECK(worst(DType::f16) <= kHalfRounding);
    CHECK(worst(DType::bf16) <= kBFloat16Rounding);
  }
};

Tensor on_gpu(double value) { return mirrored(Tensor::full({}, value, kDouble)); }

}  // namespace

TEST_CASE("the norm of a list is the host's, and so is what it clips; the same bits every time") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const bool large : {false, true}) {
    CAPTURE(large);
    const Lists lists(1, large);
    const Tensor host_norm = Tensor::full({}, NAN, kDouble), gpu_norm = on_gpu(NAN), again = on_gpu(NAN);
    const double infinity = std::numeric_limits<double>::infinity();
    host().clip_norm(lists.host, infinity, true, host_norm);
    gpu().clip_norm(lists.gpu, infinity, true, gpu_norm);  // measures only
    CHECK(lists.worst(DType::f32) == 0);
    CHECK(gpu_norm.item() == doctest::Approx(host_norm.item()).epsilon(kDoubleRounding));
    CHECK(gpu_norm.item() > 1);
    gpu().clip_norm(lists.gpu, gpu_norm.item() * 2, false, again);
    CHECK(again.item() == gpu_norm.item());
    CHECK(lists.worst(DType::f64) == 0);
    host().clip_norm(lists.host, 1, false, host_norm);
    gpu().clip_norm(lists.gpu, 1, false, again);
    CHECK(again.item() == gpu_norm.item());
    lists.check_close();
    host().clip_norm(lists.host, 2, false, host_norm);
    CHECK(host_norm.item() == doctest::Approx(1).epsilon(1e-3));
  }
}

TEST_CASE("an infinite or NaN gradient: the norm shows it, and clipping follows its option") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<Tensor> tensors{mirrored(Tensor::from_vector<float>({1, static_cast<float>(infinity)}, {2}, Device::cpu())),
                                    mirrored(Tensor::full({5}, 2, {.device = Device::cpu()}))};
  const Tensor norm = on_gpu(0);
  gpu().clip_norm(tensors, 1, true, norm);
  CHECK(norm.item() == infinity);
  CHECK(tensors[1].to_vector<float>() == std::vector<float>(5, 2));
  gpu().clip_norm(tensors, 1, false, norm);
  CHECK(norm.item() == infinity);
  CHECK(tensors[1].to_vector<float>() == std::vector<float>(5, 0));
  gpu().clip_norm(tensors, 1, false, norm);
  CHECK(std::isnan(norm.item()));
  CHECK(std::isnan(tensors[1].to_vector<float>()[4]));
}

TEST_CASE("a list of nothing has norm 0") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor norm = on_gpu(NAN);
  const std::vector<Tensor> empty{Tensor::zeros({0}, {.device = Device::cuda()})};
  gpu().clip_norm(empty, 1, false, norm);
  CHECK(norm.item() == 0);
}

TEST_CASE("unscaling divides, and finds one bad element in any place") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Lists lists(2);
  const Tensor host_found = Tensor::full({}, 0, kDouble), gpu_found = on_gpu(0);
  host().unscale(lists.host, Tensor::full({}, 3, kDouble), host_found);
  gpu().unscale(lists.gpu, on_gpu(3), gpu_found);
  CHECK(gpu_found.item() == 0);
  lists.check_close();
  for (const std::size_t tensor : {std::size_t{0}, std::size_t{7}, std::size_t{9}, std::size_t{499}}) {
    const std::int64_t last = lists.gpu[tensor].numel() - 1;
    lists.gpu[tensor].select(0, last).fill_(tensor == 7 ? std::numeric_limits<double>::infinity() : NAN);
    gpu().unscale(lists.gpu, on_gpu(1), gpu_found);
    CAPTURE(tensor);
    CHECK(gpu_found.item() == 1);
    lists.gpu[tensor].select(0, last).fill_(1);
    gpu_found.detach().fill_(0);
    gpu().unscale(lists.gpu, on_gpu(1), gpu_found);
    CHECK(gpu_found.item() == 0);
  }
}

TEST_CASE("averages are the host's, by decay and ramp, and are counted") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const bool ramp : {false, true}) {
    const Lists averages(3), values(2003);
    const Tensor host_updates = Tensor::full({}, 4, {.dtype = DType::i64, .device = Device::cpu()});
    const Tensor gpu_updates = mirrored(host_updates);
    for (int step = 0; step < 3; ++step) {
      host().average(averages.host, values.host, {.decay = 0.9, .ramp = ramp}, host_updates);
      gpu().average(averages.gpu, values.gpu, {.decay = 0.9, .ramp = ramp}, gpu_updates);
    }
    CHECK(gpu_updates.item<std::int64_t>() == 7);
    averages.check_close();
    CHECK(values.worst(DType::f32) == 0);
  }
}

TEST_CASE("a list is copied bit for bit, into tensors of other alignment") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Lists from(5, /*large=*/true);
  std::vector<Tensor> host_out, gpu_out;
  for (std::size_t i = 0; i < from.gpu.size(); ++i) {
    const std::int64_t size = from.gpu[i].numel(), offset = static_cast<std::int64_t>(i) % 3;
    const DType dtype = from.gpu[i].dtype();
    const auto make = [&](Device device) {
      return Tensor::full({size + 4}, 7, {.dtype = dtype, .device = device}).slice(0, offset, offset + size);
    };
    host_out.push_back(make(Device::cpu()));
    gpu_out.push_back(make(Device::cuda(0)));
  }
  host().copy_list(host_out, from.host);
  gpu().copy_list(gpu_out, from.gpu);
  for (std::size_t i = 0; i < gpu_out.size(); ++i) {
    CHECK(max_difference(host_out[i].to(DType::f64), from.host[i].to(DType::f64)) == 0);
    CHECK(different(host_out[i], gpu_out[i]) == 0);
  }
}

TEST_CASE("a list of f32 is copied to 16 bits with the bits of a cast, into tensors of other alignment") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  std::vector<Tensor> in, out;
  for (const std::int64_t size : {1, 7, 8, 4096, 70001})
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32})
      for (const std::int64_t offset : {0, 3}) {
        in.push_back(mirrored(random_f64({size + 4}, 1).to(DType::f32)).slice(0, offset, offset + size));
        out.push_back(mirrored(poisoned({size}, dtype, offset)));
      }
  gpu().copy_list(out, in);
  for (std::size_t i = 0; i < in.size(); ++i) CHECK(max_difference(out[i].cpu(), in[i].to(out[i].dtype()).cpu()) == 0);
}

TEST_CASE("the loss scale follows the host's through good and bad steps") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor host_state = Tensor::from_vector<double>({0x1p126, 0, 0}, {3}, Device::cpu()), gpu_state = mirrored(host_state);
  std::vector<Tensor> host_found, gpu_found;
  for (std::size_t i = 0; i < Backend::kMaxFound; ++i) {
    host_found.push_back(Tensor::full({}, 0, kDouble));
    gpu_found.push_back(on_gpu(0));
  }
  for (const bool bad : {false, false, true, false, false, false, false, false, false, true, true}) {
    if (bad) host_found.back().fill_(1), gpu_found.back().fill_(1);
    host().update_loss_scale(host_state, host_found, {2, 0.5, 2});
    gpu().update_loss_scale(gpu_state, gpu_found, {2, 0.5, 2});
    CHECK(different(host_state, gpu_state) == 0);
    CHECK(gpu_found.back().item() == 0);
  }
  CHECK(gpu_state.to_vector<double>()[2] == 3);
}
