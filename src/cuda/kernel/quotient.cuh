#pragma once
// Many quotients by one divisor.

namespace polyphase::cuda {

/// a/b for one b, correctly rounded, by its reciprocal and one correction (Markstein, IBM J. Res. Dev. 34, 1990): three
/// instructions instead of about ten. Divisors whose quotients of numbers up to 2^20 could leave the normal range are divided
/// by. A result below the least normal number may be off in its last bit.
template <class A>
class Quotient {
 public:
  __device__ __forceinline__ explicit Quotient(A divisor)
      : divisor_(divisor), inverse_(A(1) / divisor), is_usual_(divisor >= A(1e-30) && divisor <= A(1e30)) {}
  __device__ __forceinline__ A of(A value) const {
    if (!is_usual_) return value / divisor_;
    const A near = value * inverse_;
    return fma(fma(-near, divisor_, value), inverse_, near);
  }

 private:
  A divisor_, inverse_;
  bool is_usual_;
};

}  // namespace polyphase::cuda
