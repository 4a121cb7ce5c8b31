#pragma once
// Every tolerance of the tests, with its reason. Relative unless said.

namespace polyphase::testing {

/// A formula of a few operations computed in f64 on both sides, in another order.
inline constexpr double kDoubleRounding = 1e-13;
/// Longer sums in f64, or many optimizer steps.
inline constexpr double kDoubleSum = 1e-11;
/// A formula of a few operations computed in f32, against f64.
inline constexpr double kFloatRounding = 1e-6;

}  // namespace polyphase::testing
