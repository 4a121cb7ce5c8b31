#include "cuda/linear/fft.hpp"

#include <doctest/doctest.h>

#include "support/device.hpp"
#include "support/fourier.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("transforms and adjoints of any even length agree with the host's") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : {DType::f32, DType::f64})
    for (const std::int64_t n :
         {2, 4, 6, 8, 10, 14, 16, 30, 62, 64, 100, 210, 512, 614, 1022, 1024, 1200, 2018, 2048, 8192, 19946, 40000, 65536})
      for (const std::int64_t rows : {1, 5}) {
        CAPTURE(dtype);
        CAPTURE(n);
        CAPTURE(rows);
        const double bound = dtype == DType::f32 ? 2 * kFloatFft : kDoubleRounding;
        const Tensor x = random_f64({rows, n}, 1).to(dtype), g = random_f64({rows, n / 2 + 1, 2}, 2).to(dtype);
        const Tensor spectrum = poisoned(g.shape(), dtype), device_spectrum = mirrored(spectrum);
        host().rfft(spectrum, x);
        gpu().rfft(device_spectrum, mirrored(x));
        CHECK(relative_to_largest(spectrum, device_spectrum) <= bound);
        const Tensor back = poisoned(x.shape(), dtype), device_back = mirrored(back);
        host().rfft_adjoint(back, g);
        gpu().rfft_adjoint(device_back, mirrored(g));
        CHECK(relative_to_largest(back, device_back) <= bound);
      }
}

TEST_CASE("f32 keeps six digits of the largest bin against f64") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const std::int64_t n : {512, 1024, 2048}) {
    const Tensor x = random_f64({4, n});
    const Tensor expected = Tensor::empty({4, n / 2 + 1, 2}, {.dtype = DType::f64});
    const Tensor got = Tensor::empty(expected.shape(), {.device = Device::cuda()});
    host().rfft(expected, x.to(DType::f32).to(DType::f64));
    gpu().rfft(got, mirrored(x.to(DType::f32)));
    CHECK(relative_to_largest(expected, got) <= kFloatFft);
  }
}

TEST_CASE("f32 and f64 are as accurate as pocketfft, for all factors of the length") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const FftCase& item : reference_cases()) {
    const auto& [x, bins, bound] = item;
    const std::string row = concat(x.shape(), " of ", x.dtype());
    INFO(row);
    const Tensor spectrum = mirrored(poisoned(bins.shape(), bins.dtype())), back = mirrored(poisoned(x.shape(), x.dtype()));
    gpu().rfft(spectrum, mirrored(x));
    CHECK(fft_error(x, spectrum) <= bound);
    gpu().rfft_adjoint(back, mirrored(bins));
    CHECK(fft_adjoint_error(bins, back) <= bound);
  }
}

TEST_CASE("more rows than a grid of one block each needs, twice the same bits") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor x = mirrored(random_f64({3000, 256}).to(DType::f32));
  const Tensor one = Tensor::empty({3000, 129, 2}, {.device = Device::cuda()}), two = Tensor::empty_like(one);
  gpu().rfft(one, x);
  gpu().rfft(two, x);
  CHECK(one.to_vector<float>() == two.to_vector<float>());
}

TEST_CASE("16-bit dtypes are refused") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Tensor x = Tensor::zeros({1, 4}, {.dtype = DType::f16, .device = Device::cuda()});
  CHECK(error_of<DTypeError>([&] {
          gpu().rfft(x, x);
          return 0;
        }) == "rfft: expected f32 or f64, got f16");
  CHECK(error_of<DTypeError>([&] {
          gpu().rfft_adjoint(x, x);
          return 0;
        }) == "rfft_adjoint: expected f32 or f64, got f16");
}
