#pragma once
// Every tolerance of the tests, with its reason. Relative unless said.

namespace polyphase::testing {

/// A formula of a few operations computed in f64 on both sides, in another order.
inline constexpr double kDoubleRounding = 1e-13;
/// Longer sums in f64, or many optimizer steps.
inline constexpr double kDoubleSum = 1e-11;
/// Sums in f64 of 2^18 terms, added pairwise, over the sum of magnitudes: what a running sum would exceed.
inline constexpr double kLongDoubleSum = 4e-16;
/// A formula of a few operations computed in f32, against f64.
inline constexpr double kFloatRounding = 1e-6;
/// A formula of several f32 functions of arguments up to 10, against f64. Of max(1, |value|).
inline constexpr double kFloatFunction = 2e-6;
/// exp, log, sin, ... of one f32, in units in the last place: measured up to 2.4.
inline constexpr double kFunctionUlps = 2.5;
/// A Fourier transform in f32, of its largest bin: rounding grows with the logarithm of the length.
inline constexpr double kFloatFft = 1e-6;
/// A variance in f32, against long double: each difference from the mean is rounded once and squared, and the result is
/// rounded.
inline constexpr double kFloatVariance = 0x3p-24;
/// Sums of up to some hundred terms of order 1 in f32, against f64.
inline constexpr double kFloatSum = 1e-5;
/// Sums of some five hundred products of order 1 in f32, against f64: roundings of partial sums up to 100. Absolute.
inline constexpr double kLongFloatSum = 1e-4;
/// One rounding to f16 (11 bits) of values below 4, over f32 arithmetic. Absolute.
inline constexpr double kHalfRounding = 2e-3;
/// One rounding to bf16 (8 bits) of values below 4, over f32 arithmetic. Absolute.
inline constexpr double kBFloat16Rounding = 1.6e-2;
/// One rounding to f16 or bf16 and nothing else: half the step between two of its numbers, of max(1, |value|).
inline constexpr double kHalfUnit = 0x1p-11;
inline constexpr double kBFloat16Unit = 0x1p-8;
/// The share of f16 or bf16 numbers that may differ between two computations of one formula in f32, one of them with fused
/// multiply-adds, each of five steps rounded: up to 0.017, where products of 8 bits end halfway between two numbers.
inline constexpr double kRoundedApart = 0.05;
/// A convolution's largest error against float64, over that of the same sums done plainly one after another in f32.
inline constexpr double kErrorOverPlain = 2;
/// The largest error of ten thousand sums of products of numbers rounded to 11 bits, over the sums' root mean square: 2^-12 a
/// rounding, four times that in the tail.
inline constexpr double kTf32Rounding = 2e-3;

/// A training curve in other arithmetic against the CPU's, in units of what rounding the initial weights does to it.
inline constexpr double kCurveOverRounding = 10;

}  // namespace polyphase::testing
