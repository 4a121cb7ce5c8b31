#include "golden/compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace polyphase::golden {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

double Result::share() const {
  if (std::isnan(error) || !std::isfinite(tolerance)) return kInfinity;
  return error == 0 ? 0 : error / tolerance;
}

bool Result::passed() const { return skipped.empty() && std::isfinite(tolerance) && error <= tolerance; }

std::vector<double> as_doubles(const Tensor& tensor) { return tensor.detach().cpu().to(DType::f64).to_vector<double>(); }

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

double relative_error(const std::vector<double>& result, const std::vector<double>& expected, double smallest_norm) {
  if (result.size() != expected.size()) return kInfinity;
  double sum = 0;
  for (std::size_t i = 0; i < result.size(); ++i) sum += (result[i] - expected[i]) * (result[i] - expected[i]);
  if (std::isnan(sum)) return kInfinity;
  return sum == 0 ? 0 : std::sqrt(sum) / std::max(norm_of(expected), smallest_norm);
}

double componentwise_error(const std::vector<double>& result, const std::vector<double>& expected,
                           const std::vector<double>& magnitude) {
  if (result.size() != expected.size() || result.size() != magnitude.size()) return kInfinity;
  double worst = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double difference = std::abs(result[i] - expected[i]);
    if (difference == 0) continue;
    const double share = difference / magnitude[i];
    if (std::isnan(share)) return kInfinity;
    worst = std::max(worst, share);
  }
  return worst;
}

Roundoff roundoff_of(DType dtype, Precision precision) {
  switch (dtype) {
    case DType::f64:
      return {0x1p-53, 0};
    case DType::f16:
      return {0x1p-11, 0x1p-11};
    case DType::bf16:
      return {0x1p-8, 0x1p-8};
    case DType::f32:
    case DType::i64:
      break;
  }
  return {0x1p-24, precision == Precision::tf32 ? 0x1p-11 : 0};
}

void keep_worse(Result& worst, const std::string& tensor, double error, double tolerance) {
  if (!worst.worst.empty() && Result{.error = error, .tolerance = tolerance}.share() <= worst.share()) return;
  worst.worst = tensor;
  worst.error = error;
  worst.tolerance = tolerance;
}

}  // namespace polyphase::golden
