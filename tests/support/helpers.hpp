#pragma once
// Small functions for many tests.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <string>
#include <vector>

#include "tensor/random.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::testing {

/// Normal numbers in f64 that depend on `seed` alone.
inline Tensor random_f64(const Shape& shape, std::uint64_t seed = 1) {
  Generator generator(seed);
  return Tensor::randn(shape, {.dtype = DType::f64}, &generator);
}

/// Uniform numbers in f64 that depend on `seed` alone.
inline Tensor uniform_f64(const Shape& shape, double low, double high, std::uint64_t seed = 1) {
  Generator generator(seed);
  return Tensor::uniform(shape, low, high, {.dtype = DType::f64}, &generator);
}

/// A leaf of random numbers that follows gradients: an input for gradcheck.
inline Tensor leaf_f64(const Shape& shape, std::uint64_t seed = 1) {
  Tensor leaf = random_f64(shape, seed);
  leaf.set_requires_grad(true);
  return leaf;
}

/// A leaf with the values given, following gradients.
inline Tensor leaf_of(const std::vector<double>& values) {
  Tensor leaf = Tensor::from_vector(values);
  leaf.set_requires_grad(true);
  return leaf;
}

/// A tensor that claims to live on cuda:0, for tests of device mixes on machines without one. Its elements must not be touched.
inline Tensor elsewhere(const Shape& shape, DType dtype = DType::f64) {
  static double nothing[1] = {};
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  return Tensor::over(Storage(nothing, bytes, Device::cuda(0), {}), shape, contiguous_strides(shape), 0, dtype);
}

/// The text of the exception E that `function` throws; otherwise what happened instead.
template <class E, class Function>
std::string error_of(Function&& function) {
  try {
    static_cast<void>(function());
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

/// The larger error; infinite if one is NaN, which std::max() would ignore.
inline double worse(double worst, double error) {
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
}

/// |difference| over magnitude; 0 if there is no difference, as in an empty sum.
inline double relative(double difference, double magnitude) { return difference == 0 ? 0 : std::abs(difference) / magnitude; }

/// The largest |a - b|, computed in f64 on the host; infinity if the shapes differ or there is a NaN.
inline double max_difference(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape())) return std::numeric_limits<double>::infinity();
  const std::vector<double> left = a.detach().to(DType::f64).to_vector<double>();
  const std::vector<double> right = b.detach().to(DType::f64).to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < left.size(); ++i) worst = worse(worst, std::abs(left[i] - right[i]));
  return worst;
}

}  // namespace polyphase::testing
