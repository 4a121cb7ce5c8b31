#pragma once
// Light epilogues, a few instructions per number in a register: ReLU or LeakyReLU, or its derivative, and a residual.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/epilogue/epilogue.cuh"

namespace polyphase::cuda {

/// Epilogue::apply() for float, with its parameters in registers.
struct LightActivation {
  bool is_there, is_relu;
  float slope;
  /// Whether the activation is light or absent.
  [[nodiscard]] static __host__ __device__ constexpr bool is_light(Activation activation) {
    return activation == Activation::none || activation == Activation::relu || activation == Activation::leaky_relu;
  }
  /// Enabled if the epilogue has nothing else to do.
  __device__ __forceinline__ explicit LightActivation(const Epilogue& epilogue)
      : LightActivation(epilogue, !epilogue.has_aux() && (epilogue.activation == Activation::relu ||
                                                          epilogue.activation == Activation::leaky_relu)) {}
  __device__ __forceinline__ LightActivation(const Epilogue& epilogue, bool is_there_)
      : is_there(is_there_), is_relu(epilogue.activation == Activation::relu), slope(static_cast<float>(epilogue.slope)) {}
  __device__ __forceinline__ float operator()(float value) const {
    return value < 0.0F ? (is_relu ? 0.0F : slope * value) : value;
  }
};

/// Epilogue::finished() for an epilogue with is_light(), for float sums with their bias and outputs of T. All parameters are in
/// registers and there is no branch per number. Absent operands are read as neutral values.
template <class T>
class StoreFinish {
 public:
  using Others = Epilogue::Others<float>;
  __device__ __forceinline__ explicit StoreFinish(const Epilogue& epilogue)
      : residual_(epilogue.residual),
        derivative_(epilogue.derivative),
        is_relu_(epilogue.activation == Activation::relu),
        slope_(epilogue.activation == Activation::leaky_relu ? static_cast<float>(epilogue.slope) : 1.0F),
        scale_(residual_ != 0 ? static_cast<float>(epilogue.scale) : 1.0F) {}

  /// The aux operand of the output stored at `to`. Call it early, for many outputs at a time.
  [[nodiscard]] __device__ __forceinline__ Others others(const T* to) const {
    return {residual_ != 0 ? static_cast<float>(*Epilogue::aux(to, residual_)) : -0.0F,
            derivative_ != 0 ? static_cast<float>(*Epilogue::aux(to, derivative_)) : 1.0F};
  }
  /// The result of others() if nothing is read.
  [[nodiscard]] static __device__ __forceinline__ Others nothing() { return {-0.0F, 1.0F}; }

  /// The output, rounded to T.
  [[nodiscard]] __device__ __forceinline__ float operator()(float sum, const Others& other) const {
    const float value = rounded(sum), low = is_relu_ ? 0.0F : rounded(slope_ * value);
    const bool is_low = derivative_ != 0 ? !passes(is_relu_, other.result) : value < 0.0F;
    return rounded(fmaf(scale_, is_low ? low : value, other.added));
  }

 private:
  static __device__ __forceinline__ float rounded(float value) { return static_cast<float>(static_cast<T>(value)); }

  std::int64_t residual_, derivative_;
  bool is_relu_;
  float slope_, scale_;
};

/// The part of an epilogue that is applied at a time: all of it if it has one aux operand (or only the derivative), else first
/// the derivative, then the residual.
enum class FinishPart { all, derivative, residual };

/// A FinishPart as an argument.
template <FinishPart kPart>
using FinishPartOf = std::integral_constant<FinishPart, kPart>;

/// Calls use(finish) once. finish(sum, aux) is the output, rounded to T, after this part of a light epilogue. The epilogue's
/// fields are tested here, not per sum; a constant takes a register only where it is needed.
template <class T, FinishPart kPart, class Use>
__device__ __forceinline__ void with_finish(const Epilogue& epilogue, const Use& use) {
  const auto rounded = [](float value) { return static_cast<float>(static_cast<T>(value)); };
  if (kPart == FinishPart::derivative || (kPart == FinishPart::all && epilogue.derivative != 0)) {
    if (epilogue.activation == Activation::relu)
      return use([=](float sum, float result) { return passes(true, result) ? rounded(sum) : 0.0F; });
    const auto slope = static_cast<float>(epilogue.slope);
    return use([=](float sum, float result) { return passes(false, result) ? rounded(sum) : rounded(slope * rounded(sum)); });
  }
  const auto scale = static_cast<float>(epilogue.scale);
  if (kPart == FinishPart::residual || epilogue.activation == Activation::none)
    return use([=](float sum, float residual) { return rounded(fmaf(scale, rounded(sum), residual)); });
  const LightActivation activation(epilogue, true);
  use([=](float sum, float residual) { return rounded(fmaf(scale, rounded(activation(rounded(sum))), residual)); });
}

}  // namespace polyphase::cuda
