#pragma once
// All numbers that decide whether a golden case passes.

namespace polyphase::golden {

// ---- convolution cases ------------------------------------------------------------------------------------------------
// The error of an element is |result - golden| / sum of |x||w| over its terms. Backward error analysis bounds it, and it stays
// meaningful where a sum cancels. A case may have this many times the error of the same sums computed term by term in the same
// precision ...
inline constexpr double kTimesPlain = 2;
// ... plus this many units of rounding. Another order of two or three terms can cost that where the plain order happens to
// round nothing.
inline constexpr double kExtraRoundings = 4;

// ---- training traces and generators -----------------------------------------------------------------------------------
// ||result - golden|| / ||golden|| of each tensor.
// Float64 throughout, as in PyTorch: only the order of sums differs, about 1e-16 each, and the optimizer's steps amplify it.
inline constexpr double kTraceF64 = 1e-10;
// Float32: Adam divides a gradient by its own size, so rounding can change the sign of a gradient near zero and move a weight
// by a whole learning rate.
inline constexpr double kTraceF32 = 1e-4;
inline constexpr double kTraceTf32 = 1e-1;
// A generator has about thirty layers; each adds a few roundings of its sums relative to its output, and no layer amplifies.
inline constexpr double kGeneratorF64 = 1e-12;
inline constexpr double kGeneratorF32 = 1e-5;
inline constexpr double kGeneratorTf32 = 2e-2;
// max |result - golden| / peak of an output of a published network.
inline constexpr double kNetworkF64 = 1e-10;
// In f32 the original code's error is at most a quarter of this. Snake amplifies: its slope is up to 2, layer after layer.
inline constexpr double kHifiGanF32 = 5e-6;
// The published universal HiFi-GAN cancels large terms: PyTorch's f32 differs from its float64 result by 1.6e-5 of the peak;
// sums in float64 rounded once differ by 8e-7. Four times PyTorch's error.
inline constexpr double kHifiGanPublishedF32 = 6.4e-5;
inline constexpr double kDacF32 = 5e-5;
inline constexpr double kOobleckF32 = 2e-4;
inline constexpr double kSnacF32 = 2e-5;
inline constexpr double kBigVganF32 = 1e-4;
inline constexpr double kEncodecF32 = 5e-6;
inline constexpr double kVocosF32 = 5e-6;
inline constexpr double kMelF32 = 5e-6;
inline constexpr double kMimiF32 = 5e-5;
// The public file's weights amplify a rounding about 2000 times: a plain PyTorch model differs from the float64 result by
// 1.0e-4 in f32 (1.5e-13 in f64). Four times that.
inline constexpr double kQwen3F32 = 4e-4;
// A tensor that is zero except for rounding (a bias before a normalisation) is compared with this part of its peers' norm.
inline constexpr double kSmallestNorm = 1e-6;

}  // namespace polyphase::golden
