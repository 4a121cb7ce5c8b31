#include "layers/losses.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

#include "autograd/autocast.hpp"
#include "autograd/gradcheck.hpp"
#include "ops/elementwise.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"
#include "tensor/random.hpp"

using namespace polyphase;

namespace {

doctest::Approx near(double value) { return doctest::Approx(value).epsilon(testing::kDoubleSum); }

const Tensor kInput = Tensor::from_vector<double>({1, -2, 0.5, 4}, {2, 2});
const Tensor kTarget = Tensor::from_vector<double>({0.5, 1, 0.5, -1}, {2, 2});  // differences 0.5 -3 0 5

Tensor signal(const Shape& shape, std::uint64_t seed) {
  Generator generator(seed);
  return Tensor::randn(shape, {.dtype = DType::f64}, &generator);
}

// |DFT|^2 of Hann-windowed frames of a row padded by reflection, from the definitions.
std::vector<double> power_of(const std::vector<double>& row, const StftResolution& r) {
  const auto n = static_cast<std::size_t>(r.n_fft);
  const auto half = n / 2;
  const auto window_start = static_cast<std::size_t>((r.n_fft - r.win_length) / 2);
  const auto window_length = static_cast<std::size_t>(r.win_length);
  std::vector<double> padded;
  for (std::size_t i = 0; i < half; ++i) padded.push_back(row[half - i]);
  padded.insert(padded.end(), row.begin(), row.end());
  for (std::size_t i = 0; i < half; ++i) padded.push_back(row[row.size() - 2 - i]);
  std::vector<double> power;
  for (std::size_t start = 0; start + n <= padded.size(); start += static_cast<std::size_t>(r.hop_length)) {
    for (std::size_t f = 0; f <= half; ++f) {
      double re = 0;
      double im = 0;
      for (std::size_t i = 0; i < window_length; ++i) {
        const std::size_t t = window_start + i;
        const double turn = 2 * std::numbers::pi / static_cast<double>(window_length);
        const double window = 0.5 - 0.5 * std::cos(turn * static_cast<double>(i));
        const double angle = 2 * std::numbers::pi * static_cast<double>(f * t) / static_cast<double>(n);
        re += window * padded[start + t] * std::cos(angle);
        im += window * padded[start + t] * std::sin(angle);
      }
      power.push_back(re * re + im * im);
    }
  }
  return power;
}

struct Terms {
  double convergence;
  double log_distance;
};

Terms terms_of(const std::vector<double>& x, const std::vector<double>& y, const StftResolution& r) {
  const auto px = power_of(x, r);
  const auto py = power_of(y, r);
  double difference = 0;
  double reference = 0;
  double distance = 0;
  for (std::size_t i = 0; i < px.size(); ++i) {
    const double mx = std::sqrt(std::max(px[i], 1e-7));
    const double my = std::sqrt(std::max(py[i], 1e-7));
    difference += (my - mx) * (my - mx);
    reference += my * my;
    distance += std::abs(std::log(my) - std::log(mx));
  }
  return {std::sqrt(difference) / std::sqrt(reference), distance / static_cast<double>(px.size())};
}

const std::vector<StftResolution> kSmall{{16, 4, 12}, {8, 3, 8}};

}  // namespace

TEST_CASE("losses: mse, l1 and smooth l1 by hand, in every reduction") {
  CHECK(mse_loss(kInput, kTarget).item() == near((0.25 + 9 + 0 + 25) / 4));
  CHECK(mse_loss(kInput, kTarget, Reduction::sum).item() == near(34.25));
  CHECK(mse_loss(kInput, kTarget, Reduction::none).to_vector<double>() == std::vector<double>{0.25, 9, 0, 25});
  CHECK(l1_loss(kInput, kTarget).item() == near(8.5 / 4));
  CHECK(l1_loss(kInput, kTarget, Reduction::sum).item() == near(8.5));
  CHECK(l1_loss(kInput, kTarget, Reduction::none).to_vector<double>() == std::vector<double>{0.5, 3, 0, 5});
  CHECK(smooth_l1_loss(kInput, kTarget).item() == near((0.125 + 2.5 + 0 + 4.5) / 4));
  CHECK(smooth_l1_loss(kInput, kTarget, 4.0, Reduction::none).to_vector<double>() == std::vector<double>{0.03125, 1.125, 0, 3});
  CHECK(smooth_l1_loss(kInput, kTarget, 0.0, Reduction::sum).item() == near(8.5));
}

TEST_CASE("losses: gradients of both operands") {
  Tensor input = signal({3, 4}, 1).set_requires_grad(true);
  Tensor target = signal({3, 4}, 2).set_requires_grad(true);
  for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
    CHECK(gradcheck([&](const auto& in) { return mse_loss(in[0], in[1], reduction); }, {input, target}) == "");
    CHECK(gradcheck([&](const auto& in) { return l1_loss(in[0], in[1], reduction); }, {input, target}) == "");
    CHECK(gradcheck([&](const auto& in) { return smooth_l1_loss(in[0], in[1], 0.7, reduction); }, {input, target}) == "");
  }
}

TEST_CASE("losses: the gradient of l1 is 0 where both are equal, of nothing the mean is NaN and the sum 0") {
  Tensor input = kInput.clone().set_requires_grad(true);
  l1_loss(input, kTarget, Reduction::sum).backward();
  CHECK(input.grad().to_vector<double>() == std::vector<double>{1, -1, 0, 1});
  const Tensor none = Tensor::zeros({0, 3});
  CHECK(std::isnan(mse_loss(none, none).item()));
  CHECK(mse_loss(none, none, Reduction::sum).item() == 0);
}

TEST_CASE("losses: of 16-bit tensors, a sum past their range does not spoil the mean") {
  Tensor input = Tensor::full({100}, 100, {.dtype = DType::f16}).set_requires_grad(true);
  const Tensor loss = mse_loss(input, Tensor::zeros({100}, {.dtype = DType::f16}));
  CHECK(loss.dtype() == DType::f16);
  CHECK(loss.item() == 10000);
  loss.backward();
  CHECK(input.grad().dtype() == DType::f16);
  CHECK(input.grad().to(DType::f64).to_vector<double>() == std::vector<double>(100, 2));
}

TEST_CASE("losses: of 16-bit tensors under autocast they are f32, and the gradients those of f32 rounded once") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Tensor input = signal({3, 50}, 1).to(dtype).detach().set_requires_grad(true);
    Tensor wide = input.detach().to(DType::f32).set_requires_grad(true);
    const Tensor target = signal({3, 50}, 2).to(dtype);
    const auto with_gradient = [](const Tensor& loss, const Tensor& of) {
      of.set_grad({});
      (loss * 3).backward();
      return of.grad();
    };
    for (const auto loss : {+[](const Tensor&x, const Tensor&y) { return l1_loss(x, y); },
                            +[](const Tensor&x, const Tensor&y) { return mse_loss(x, y, Reduction::sum); },
                            +[](const Tensor&x, const Tensor&y) { return smooth_l1_loss(x, y, 0.5); }}) {
      const Tensor expected = loss(wide, target.to(DType::f32)), rounded = loss(input, target);
      CHECK(rounded.dtype() == dtype);
      CHECK(testing::max_difference(rounded, expected.to(dtype)) == 0);
      const AutocastGuard guard(dtype);
      const Tensor got = loss(input, target);
      CHECK(got.dtype() == DType::f32);
      CHECK(got.item() == expected.item());
      CHECK(testing::max_difference(with_gradient(got, input), with_gradient(expected, wide).to(dtype)) == 0);
    }
  }
}

TEST_CASE("losses: shapes must be equal, settings in range") {
  const Tensor other = Tensor::zeros({2, 1}, {.dtype = DType::f64});
  CHECK_THROWS_WITH_AS((void)mse_loss(kInput, other), "mse_loss: expected a target of the input's shape (2, 2), got (2, 1)",
                       ShapeError);
  CHECK_THROWS_WITH_AS((void)l1_loss(kInput, other), "l1_loss: expected a target of the input's shape (2, 2), got (2, 1)",
                       ShapeError);
  CHECK_THROWS_WITH_AS((void)smooth_l1_loss(kInput, other),
                       "smooth_l1_loss: expected a target of the input's shape (2, 2), got (2, 1)", ShapeError);
  CHECK_THROWS_WITH_AS((void)mse_loss(kInput, kTarget.to(DType::f32)),
                       "mse_loss: expected tensors of one dtype, got f64 and f32", DTypeError);
  const Tensor integers = Tensor::zeros({2}, {.dtype = DType::i64});
  CHECK_THROWS_WITH_AS((void)l1_loss(integers, integers), "l1_loss: expected a floating-point tensor, got i64", DTypeError);
  CHECK_THROWS_WITH_AS((void)mse_loss(kInput, {}), "mse_loss: target is undefined", Error);
  CHECK_THROWS_WITH_AS((void)l1_loss({}, kTarget), "l1_loss: input is undefined", Error);
  CHECK_THROWS_WITH_AS((void)multi_resolution_stft_loss(kInput, {}), "multi_resolution_stft_loss: target is undefined", Error);
  CHECK_THROWS_WITH_AS((void)smooth_l1_loss(kInput, kTarget, -1), "smooth_l1_loss: expected beta >= 0, got -1", ShapeError);
}

TEST_CASE("stft loss: the formula of Parallel WaveGAN, from the definitions") {
  const Tensor x = signal({40}, 3);
  const Tensor y = signal({40}, 4);
  double total = 0;
  double convergence = 0;
  for (const StftResolution& resolution : kSmall) {
    const Terms terms = terms_of(x.to_vector<double>(), y.to_vector<double>(), resolution);
    total += (terms.convergence + terms.log_distance) / 2;
    convergence += terms.convergence / 2;
  }
  CHECK(multi_resolution_stft_loss(x, y, {.resolutions = kSmall}).item() == near(total));
  CHECK(multi_resolution_stft_loss(x, y, {.resolutions = kSmall, .spectral_convergence_weight = 3, .log_magnitude_weight = 0})
            .item() == near(3 * convergence));
  CHECK(multi_resolution_stft_loss(x, x, {.resolutions = kSmall}).item() == 0);
}

TEST_CASE("stft loss: (N, L) and (N, 1, L) agree; silence is finite") {
  const Tensor x = signal({2, 40}, 5);
  const Tensor y = signal({2, 40}, 6);
  const double flat = multi_resolution_stft_loss(x, y, {.resolutions = kSmall}).item();
  CHECK(multi_resolution_stft_loss(x.reshape({2, 1, 40}), y.reshape({2, 1, 40}), {.resolutions = kSmall}).item() == near(flat));
  Tensor quiet = Tensor::zeros({1, 40}, {.dtype = DType::f64, .requires_grad = true});
  const Tensor loss = multi_resolution_stft_loss(quiet, quiet.detach(), {.resolutions = kSmall});
  loss.backward();
  CHECK(loss.item() == 0);
  for (const double g : quiet.grad().to_vector<double>()) CHECK(std::isfinite(g));
}

TEST_CASE("stft loss: gradients") {
  Tensor x = signal({1, 24}, 7).set_requires_grad(true);
  const Tensor y = signal({1, 24}, 8);
  CHECK(gradcheck([&](const auto& in) { return multi_resolution_stft_loss(in[0], y, {.resolutions = kSmall}); }, {x}) == "");
}

TEST_CASE("stft loss: errors") {
  const Tensor x = signal({2, 8}, 1);
  CHECK_THROWS_WITH_AS((void)multi_resolution_stft_loss(x, x), "multi_resolution_stft_loss: n_fft=1024 needs L > 512, got L=8",
                       ShapeError);
  CHECK_THROWS_WITH_AS((void)multi_resolution_stft_loss(x, x, {.resolutions = {}}),
                       "multi_resolution_stft_loss: expected at least one resolution, got none", ShapeError);
  CHECK_THROWS_WITH_AS((void)multi_resolution_stft_loss(x, x, {.epsilon = 0}),
                       "multi_resolution_stft_loss: expected epsilon > 0, got 0", ShapeError);
  CHECK_THROWS_WITH_AS((void)multi_resolution_stft_loss(x, signal({2, 9}, 1)),
                       "multi_resolution_stft_loss: expected a target of the input's shape (2, 8), got (2, 9)", ShapeError);
}
