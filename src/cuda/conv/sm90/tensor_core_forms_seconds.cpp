#include <cmath>

#include "cuda/conv/sm90/tensor_core_forms.hpp"
#include "cuda/conv/sm90/tensor_core_wide.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

/// How fast a form does what it has to do with one kind of numbers. Fitted to the times of every form for bench/shapes.hpp on
/// an H200 (2026-11-22); a GPU with as many multiprocessors but another memory is taken to be as fast in proportion.
struct FormRates {
  double multiply;         // times what the tensor cores need at least
  double convert, gather;  // cycles a number; gather: more where neighbours are not neighbours in their row
  double store, spread;    // the same of outputs; spread: where classes of the stride are put together
  double tile;             // cycles a tile that nothing hides
  double read, again;      // what a byte read counts beside one written; again: read for another tile of columns
  double terabytes;        // a second
  double microseconds;     // of all launches, and of what a block does before its first tile
};

/// Kinds of numbers: two halves of an f32, one, and 16 bits.
enum class Kind { split, scaled, half };

constexpr double kClock = 1.7e9, kSms = 132;  // of that GPU under such load

constexpr FormRates kPhases[] = {{1.6, 0.44, 0, 0.17, 0.14, 0, 0.5, 0.3, 4.3, 14}, {1.51, 0.17, 0, 0, 0, 0, 1, 0.3, 3.4, 4.6}};
constexpr FormRates kUnits = {1.11, 0, 0, 0.1, 0.08, 360, 0.72, 0.3, 2.26, 5.4};
constexpr FormRates kSplitUnits = {1.28, 0, 0, 0.1, 0.08, 360, 0.72, 0.3, 2.26, 9};
constexpr FormRates kTurned = {1.04, 0.12, 0, 0.17, 0.05, 0, 0.5, 0.3, 3.75, 2.4};
constexpr FormRates kBoxes[] = {{1, 0.28, 0, 0.019, 0, 0, 0.78, 0.3, 3.4, 2.7}, {1, 0, 0, 0.13, 0, 0, 0.68, 0.3, 3.18, 2.2}};
constexpr FormRates kNarrow[] = {{1.51, 0.014, 0.07, 0.38, 0.11, 0, 0.89, 0.3, 3.86, 3.7},
                                 {1, 0.15, 0, 0.2, 0.078, 0, 0.79, 0.48, 3.48, 9},
                                 {1.6, 0.2, 0, 0.17, 0.1, 90, 0.83, 0.85, 3.87, 2.5}};
constexpr FormRates kRows[] = {{1.14, 0.15, 0, 0.11, 0, 66, 1.2, 0.3, 3, 14},
                               {1.51, 0.086, 0, 0.25, 0, 21, 0.64, 0.3, 3.4, 2},
                               {1.07, 0.084, 0, 0.12, 0, 70, 0.5, 0.3, 4.18, 2}};
constexpr FormRates kResident[] = {{1.3, 0.55, 0, 0.3, 0.17, 0, 0.28, 0.42, 3.06, 12},
                                   {1.4, 0.3, 0.065, 0.015, 0.29, 0, 0.86, 0, 3.36, 3.6},
                                   {1, 0.17, 0, 0.002, 0.16, 1100, 0.72, 0, 3.19, 5}};
constexpr FormRates kStreamed[] = {{1.6, 1.5, 0, 1.1, 1.1, 0, 0.5, 2, 2.2, 8},
                                   {1.6, 1.3, 0.04, 0.67, 1.1, 4000, 0.7, 2, 2.2, 14},
                                   {1.6, 0.85, 0.04, 0.75, 0.97, 0, 0.5, 0, 2.2, 7}};

FormRates rates_of(GatherForm form, Kind kind) {
  const auto any = static_cast<int>(kind);
  switch (form) {
    case GatherForm::phases:
      return kPhases[any - 1];
    case GatherForm::units:
      return kind == Kind::split ? kSplitUnits : kUnits;
    case GatherForm::turned:
      return kTurned;
    case GatherForm::boxes:
      return kBoxes[any];
    case GatherForm::narrow:
      return kNarrow[any];
    case GatherForm::rows:
      return kRows[any];
    case GatherForm::resident:
      return kResident[any];
    default:
      return kStreamed[any];
  }
}

/// Four things that go on at a time, of which the longest counts most.
double beside(double a, double b, double c, double d) { return std::cbrt(a * a * a + b * b * b + c * c * c + d * d * d); }

}  // namespace

std::optional<double> form_seconds(GatherForm form, const FormProblem& asked, const DeviceProperties& gpu) {
  if (asked.problem.N == 0) return std::nullopt;
  if (form == GatherForm::wide) return wide_seconds(asked.problem, asked.direction, asked.precision, gpu);
  const auto work = form_work(form, asked, gpu);
  if (!work) return std::nullopt;
  const bool is_f32 = asked.problem.dtype == DType::f32;
  const FormRates rates = rates_of(form, !is_f32                              ? Kind::half
                                         : asked.precision == Precision::tf32 ? Kind::scaled
                                                                              : Kind::split);
  const double multiply = rates.multiply * work->multiply;
  const double convert = (rates.convert + (work->gathers ? rates.gather : 0)) * work->convert;
  const double store = (rates.store + (work->spreads ? rates.spread : 0)) * work->store;
  const double bytes = work->read * (rates.read + rates.again * (work->column_tiles - 1)) + work->written;
  const double moved = bytes / (rates.terabytes * 1e12 * gpu.sm_count / kSms);
  return beside(multiply / kClock, convert / kClock, store / kClock, moved) + rates.tile * work->tiles / kClock +
         rates.microseconds * 1e-6;
}

}  // namespace polyphase::cuda::tensor_core
