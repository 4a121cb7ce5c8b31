#pragma once
// Every tolerance of the tests, with its reason. Relative, unless the comment says otherwise.

#include <cstdint>

namespace polyphase::testing {

/// A formula of a few operations computed in f64 on both sides, in another order.
inline constexpr double kDoubleRounding = 1e-13;
/// Longer sums in f64, or many optimizer steps.
inline constexpr double kDoubleSum = 1e-11;
/// Sums in f64 of 2^18 terms, added pairwise, over the sum of magnitudes. A running sum would exceed it.
inline constexpr double kLongDoubleSum = 4e-16;
/// A formula of a few operations computed in f32, against f64.
inline constexpr double kFloatRounding = 1e-6;
/// A formula of several f32 functions of arguments up to 10, against f64, relative to max(1, |value|).
inline constexpr double kFloatFunction = 2e-6;
/// exp, log, sin, ... of one f32, in units in the last place: measured up to 2.4.
inline constexpr double kFunctionUlps = 2.5;
/// A Fourier transform in f32, relative to its largest bin: rounding grows with the logarithm of the length.
inline constexpr double kFloatFft = 1e-6;
/// The real and imaginary part of a root of unity in f64, absolute: half a unit in the last place below 1.
inline constexpr double kRootRounding = 0x1.02p-54;
/// The relative errors, in the 2-norm, of pocketfft's transforms of normal rows (in SciPy; the smaller of rfft's and irfft's).
struct ReferenceFft {
  std::int64_t n;
  double f32, f64;
};
inline constexpr ReferenceFft kReferenceFft[] = {
    {64, 7.73e-8, 1.52e-16},    {1024, 1.09e-7, 2.12e-16},  {65536, 1.43e-7, 2.87e-16}, {30, 7.60e-8, 1.45e-16},
    {1200, 1.19e-7, 2.43e-16},  {74, 8.22e-8, 1.67e-16},    {202, 9.94e-8, 1.94e-16},   {398, 1.20e-7, 2.36e-16},
    {482, 1.27e-7, 2.45e-16},   {614, 1.66e-7, 3.38e-16},   {1018, 1.72e-7, 3.33e-16},  {2018, 1.87e-7, 3.94e-16},
    {4006, 2.15e-7, 5.08e-16},  {8198, 2.11e-7, 4.14e-16},  {19946, 2.09e-7, 4.76e-16}, {20014, 2.23e-7, 5.60e-16},
    {12018, 2.52e-7, 5.85e-16}, {59838, 2.13e-7, 5.07e-16}, {2294, 1.22e-7, 2.53e-16},  {20806, 1.45e-7, 2.98e-16},
};
/// Our error may be this many times as large.
inline constexpr double kErrorOverReferenceFft = 1.5;
/// A variance in f32, against long double: each difference from the mean is rounded once and squared, and the result is
/// rounded.
inline constexpr double kFloatVariance = 0x3p-24;
/// A normalisation in f64 of values 1000 times their deviation, summed in another order. Absolute.
inline constexpr double kDoubleFar = 1e-10;
/// A few steps of AdamW at a rate of 1e-3 in f32 whose gradients are summed in another order: it divides them by their own
/// size. Absolute.
inline constexpr double kFloatTraining = 2e-5;
/// Sums of up to a few hundred terms of order 1 in f32, against f64.
inline constexpr double kFloatSum = 1e-5;
/// Sums of about five hundred products of order 1 in f32, against f64: roundings of partial sums up to 100. Absolute.
inline constexpr double kLongFloatSum = 1e-4;
/// One rounding to f16 (11 bits) of values below 4, over f32 arithmetic. Absolute.
inline constexpr double kHalfRounding = 2e-3;
/// One rounding to bf16 (8 bits) of values below 4, over f32 arithmetic. Absolute.
inline constexpr double kBFloat16Rounding = 1.6e-2;
/// One rounding to f16 or bf16: half the distance of two of its numbers, relative to max(1, |value|).
inline constexpr double kHalfUnit = 0x1p-11;
inline constexpr double kBFloat16Unit = 0x1p-8;
/// The share of f16 or bf16 numbers that may differ between two computations of one formula in f32, one of them with fused
/// multiply-adds, with five rounded steps. It is up to 0.017 where products of 8 bits end halfway between two numbers.
inline constexpr double kRoundedApart = 0.05;
/// A mel filter whose corners are rounded to f32, up to 2.5e-4 Hz each way where they are 30 Hz apart. Absolute.
inline constexpr double kMelFloat = 5e-5;
/// Relative to the peak: a small network of about twenty layers whose results are rounded to f16 or bf16, against f32.
inline constexpr double kNetworkHalf = 1e-2;
inline constexpr double kNetworkBFloat16 = 8e-2;
/// A convolution's largest error against float64, over that of the same sums computed term by term in f32.
inline constexpr double kErrorOverPlain = 2;
/// The largest error of ten thousand sums of products of numbers rounded to 11 bits, over the sums' root mean square: each
/// rounding is 2^-12, and the largest error is four times that.
inline constexpr double kTf32Rounding = 2e-3;

/// A small network of about thirty layers with Snake, each rounded to 16 bits, against f64, relative to the peak of its output.
inline constexpr double kHalfNetwork = 8e-3;
inline constexpr double kBFloat16Network = 5e-2;

/// Losses and gradient norms of ten steps in f64 against PyTorch's in f64: Adam divides by the root of squares, so that
/// roundings of small gradients grow.
inline constexpr double kGanTraining = 1e-6;

/// The second step of a small f32 training whose gradients are summed in another order: Adam's first step divides by the
/// gradient's magnitude, so that roundings of small gradients move weights.
inline constexpr double kCurveRounding = 1e-3;

/// A training curve in other arithmetic against the CPU's, in units of the change that rounding the initial weights makes.

/// A training curve in other arithmetic against the CPU's, in units of the change that rounding the initial weights makes.
inline constexpr double kCurveOverRounding = 10;

}  // namespace polyphase::testing
