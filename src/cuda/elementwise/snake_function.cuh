#pragma once
// Snake, v + sin(alpha v)^2/beta, for one pair of parameters and many v. Every kernel that computes Snake uses it, so a fused
// Snake has the bits of one launched separately.
//
// For f32, 12 instructions where sinf() and a division take about 30: with w = v*alpha/pi and f = w - round(w), sin(alpha v)^2
// = sin(pi f)^2 and sin(2 alpha v) = sin(2 pi f), -1/2 <= f <= 1/2, polynomials in f^2 (minimax fits with errors of 1.4e-8 of
// sin(pi f)^2, and 1e-9). alpha/pi is a sum of two floats, so that f has the error of its own rounding. For results of 16 bits,
// 5 instructions: the hardware's sine, whose error is 5e-7 and 2.5e-7 |alpha v|, up to |alpha v| = 64.
//
// Where w is too large for the rounding by an addition (beyond 2^22), or alpha v for the hardware's sine, or a number is not
// finite, or 1/beta is not, the functions of the standard library are called.

#include <cmath>

namespace polyphase::cuda {

/// sin(u)^2 and sin(2u).
struct SnakeSines {
  float square, twice;
};

template <class A>
__device__ __forceinline__ A snake_exactly(A v, A alpha, A beta) {
  const A s = sin(alpha * v);
  return v + s * s / beta;
}
__device__ __forceinline__ SnakeSines snake_sines_exactly(float u) {
  float sine, cosine;
  sincosf(u, &sine, &cosine);
  return {sine * sine, 2.0F * sine * cosine};
}

/// The sines of u = alpha v. kIs16Bit: for results of 16 bits.
template <bool kIs16Bit>
class SnakeAngle {
 public:
  __device__ __forceinline__ explicit SnakeAngle(float alpha) : high_(alpha * kHigh) {
    low_ = fmaf(alpha, kLow, fmaf(alpha, kHigh, -high_));
  }
  /// sin(u)^2. Sets `is_far` if it does not hold.
  __device__ __forceinline__ float square(float v, bool& is_far) const {
    const float f = fraction(v), t = f * f;
    is_far |= !(t <= kMost);
    return square_of(t);
  }
  /// Both.
  __device__ __forceinline__ SnakeSines sines(float v, bool& is_far) const {
    const float f = fraction(v), t = f * f;
    is_far |= !(t <= kMost);
    float sum = fmaf(t, 3.19923806F, -14.8682699F);
    sum = fmaf(t, sum, 42.0160675F);
    sum = fmaf(t, sum, -76.7015381F);
    sum = fmaf(t, sum, 81.6050262F);
    sum = fmaf(t, sum, -41.3416977F);
    return {square_of(t), f * fmaf(t, sum, 6.28318548F)};
  }

 private:
  static constexpr float kHigh = 0.318309873F, kLow = 1.28412765e-8F;  // 1/pi
  static constexpr float kRounds = 12582912.0F;                        // 1.5 * 2^23: a sum with it is a whole number
  static constexpr float kMost = 0.2501F;                              // f^2 for which the polynomials hold
  __device__ __forceinline__ float fraction(float v) const {
    const float nearest = fmaf(v, high_, kRounds) - kRounds;
    return fmaf(v, low_, fmaf(v, high_, -nearest));
  }
  static __device__ __forceinline__ float square_of(float t) {
    float sum = fmaf(t, -3.33573985F, 13.0368338F);
    sum = fmaf(t, sum, -30.0984955F);
    sum = fmaf(t, sum, 42.7269211F);
    sum = fmaf(t, sum, -32.4696617F);
    return t * fmaf(t, sum, 9.86960411F);
  }

  float high_, low_;
};

template <>
class SnakeAngle<true> {
 public:
  __device__ __forceinline__ explicit SnakeAngle(float alpha) : alpha_(alpha) {}
  __device__ __forceinline__ float square(float v, bool& is_far) const {
    const float u = alpha_ * v, sine = __sinf(u);
    is_far |= !(fabsf(u) <= kMost);
    return sine * sine;
  }
  __device__ __forceinline__ SnakeSines sines(float v, bool& is_far) const {
    const float u = alpha_ * v, sine = __sinf(u);
    is_far |= !(fabsf(u) <= kMost);
    return {sine * sine, (sine + sine) * __cosf(u)};
  }

 private:
  static constexpr float kMost = 64.0F;
  float alpha_;
};

/// v + sin(u)^2*inverse, inverse = 1/beta. Sets `is_far` if it does not hold.
template <bool kIs16Bit>
__device__ __forceinline__ float snake_near(const SnakeAngle<kIs16Bit>& angle, float inverse, float v, bool& is_far) {
  return fmaf(angle.square(v, is_far), inverse, v);
}

template <class A, bool kIs16Bit>
class SnakeFunction {
 public:
  __device__ __forceinline__ SnakeFunction(float alpha, float beta)
      : alpha_(alpha), beta_(beta), inverse_(1.0F / beta), angle_(fabsf(inverse_) <= 3e38F ? alpha : INFINITY) {}
  __device__ __forceinline__ float operator()(float v) const {
    bool is_far = false;
    const float near = this->near(v, is_far);
    return is_far ? snake_exactly(v, alpha_, beta_) : near;
  }
  /// The function of many numbers, with one branch.
  template <int kCount>
  __device__ __forceinline__ void apply(float (&values)[kCount]) const {
    float results[kCount];
    bool is_far = false;
#pragma unroll
    for (int i = 0; i < kCount; ++i) results[i] = near(values[i], is_far);
    if (is_far) {  // a loop of few instructions: its arrays are in local memory
      float each[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) each[i] = values[i];
#pragma unroll 1
      for (int i = 0; i < kCount; ++i) each[i] = (*this)(each[i]);
#pragma unroll
      for (int i = 0; i < kCount; ++i) results[i] = each[i];
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = results[i];
  }

 private:
  __device__ __forceinline__ float near(float v, bool& is_far) const { return snake_near(angle_, inverse_, v, is_far); }

  float alpha_, beta_, inverse_;
  SnakeAngle<kIs16Bit> angle_;
};

template <bool kIs16Bit>
class SnakeFunction<double, kIs16Bit> {
 public:
  __device__ __forceinline__ SnakeFunction(double alpha, double beta) : alpha_(alpha), beta_(beta) {}
  __device__ __forceinline__ double operator()(double v) const { return snake_exactly(v, alpha_, beta_); }
  template <int kCount>
  __device__ __forceinline__ void apply(double (&values)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = (*this)(values[i]);
  }

 private:
  double alpha_, beta_;
};

/// What Snake's gradients take, d/dv = 1 + alpha sin(2 alpha v)/beta, for one pair of parameters.
template <class A, bool kIs16Bit>
class SnakeSlope {
 public:
  using Sines = SnakeSines;
  __device__ __forceinline__ SnakeSlope(float alpha, float beta) : alpha_(alpha), ratio_(alpha / beta), angle_(alpha) {}
  template <int kCount>
  __device__ __forceinline__ void sines(const float (&values)[kCount], Sines (&out)[kCount]) const {
    bool is_far = false;
#pragma unroll
    for (int i = 0; i < kCount; ++i) out[i] = angle_.sines(values[i], is_far);
    if (!is_far) return;
    float each[kCount];  // as in SnakeFunction::apply()
    Sines exact[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) each[i] = values[i];
#pragma unroll 1
    for (int i = 0; i < kCount; ++i) {
      bool is_own_far = false;
      const Sines near = angle_.sines(each[i], is_own_far);
      exact[i] = is_own_far ? snake_sines_exactly(alpha_ * each[i]) : near;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) out[i] = exact[i];
  }
  __device__ __forceinline__ float through(float gradient, float twice) const { return gradient * fmaf(ratio_, twice, 1.0F); }

 private:
  float alpha_, ratio_;
  SnakeAngle<kIs16Bit> angle_;
};

template <bool kIs16Bit>
class SnakeSlope<double, kIs16Bit> {
 public:
  struct Sines {
    double square, twice;
  };
  __device__ __forceinline__ SnakeSlope(double alpha, double beta) : alpha_(alpha), beta_(beta) {}
  template <int kCount>
  __device__ __forceinline__ void sines(const double (&values)[kCount], Sines (&out)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      double sine, cosine;
      sincos(alpha_ * values[i], &sine, &cosine);
      out[i] = {sine * sine, 2.0 * sine * cosine};
    }
  }
  __device__ __forceinline__ double through(double gradient, double twice) const {
    return gradient * (1.0 + alpha_ * (twice / beta_));
  }

 private:
  double alpha_, beta_;
};

}  // namespace polyphase::cuda
