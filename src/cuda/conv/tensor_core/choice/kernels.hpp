#pragma once
// Which of its kernels for forward and dgrad Algorithm::tensor_core takes: the one that a model of problem and device says is
// the fastest. Each kernel is a form. What a form has to do for a problem is counted (FormWork), and how fast it does that was
// measured once (docs/kernels/tensor_core.md), for all problems alike.

#include <optional>
#include <string_view>
#include <vector>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// tensor_core_NAME.hpp has it, but `rows` is in source_in_registers/stride1/stride1.hpp.
enum class GatherForm : int { phases, units, wide, turned, boxes, narrow, rows, resident, streamed };
inline constexpr GatherForm kGatherForms[] = {GatherForm::phases, GatherForm::units,    GatherForm::wide,
                                              GatherForm::turned, GatherForm::boxes,    GatherForm::narrow,
                                              GatherForm::rows,   GatherForm::resident, GatherForm::streamed};
[[nodiscard]] std::string_view name_of(GatherForm form);

/// A forward or dgrad. Of the addresses only what they are modulo 32 matters; null is a multiple.
struct FormProblem {
  const ConvProblem& problem;
  ConvDirection direction;
  Precision precision;
  const void* source = nullptr;
  const void* out = nullptr;
};

/// What a form does, weights packed. Cycles and numbers are those of the multiprocessor that has the most to do.
struct FormWork {
  double multiply = 0;  ///< cycles of the tensor cores
  double convert = 0;   ///< numbers of the source that become operands
  double store = 0;     ///< numbers of the output, as they are staged
  double tiles = 0;
  double column_tiles = 1;       ///< for each of which the source is read
  double read = 0, written = 0;  ///< bytes of the tensors, each once, of all multiprocessors
  bool gathers = false;          ///< from planes of a stride
  bool spreads = false;          ///< outputs of several classes; of rows: such that go through shared memory
};

/// Nothing where the form has no kernel for the problem on such a GPU, which has wgmma; nor of the wide form, which has
/// an estimate of its own (wide_candidates()).
[[nodiscard]] std::optional<FormWork> form_work(GatherForm form, const FormProblem& asked, const DeviceProperties& gpu);

/// The estimated seconds of all its launches, weights packed. Of the wide form those of its fastest plan.
[[nodiscard]] std::optional<double> form_seconds(GatherForm form, const FormProblem& asked, const DeviceProperties& gpu);

struct FormCandidate {
  GatherForm form;
  double seconds;
};
/// Every form that can, the fastest first: a pure function of its arguments and conv_workspace_limit().
[[nodiscard]] std::vector<FormCandidate> gather_forms(const FormProblem& asked, const DeviceProperties& gpu);

/// The first of them on `device`, on a GPU without wgmma the wide form where it can; remembered, so that asking again costs
/// less than a launch.
[[nodiscard]] std::optional<FormCandidate> chosen_form(const FormProblem& asked, int device);

/// gather() of tensor_core.hpp by a form that can.
void gather_by(GatherForm form, const Gather& call);

}  // namespace polyphase::cuda::tensor_core
