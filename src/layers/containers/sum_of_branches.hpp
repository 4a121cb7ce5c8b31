#pragma once
// Modules with the same input whose results are added.

#include <utility>

#include "../../layers/containers/module_sequence.hpp"

namespace polyphase {

/// The sum of modules that are all given the same input, in order: r_0(x) + r_1(x) + ... A residual block whose shortcut is a
/// convolution, as EnCodec's:
///
///     pp::SumOfBranches(pp::named("shortcut", pp::Conv1d({...})), pp::named("block", pp::Sequential(...)))
///
/// Children are named by position ("0", "1", ...) or by named(). A copy shares the children.
class SumOfBranches : public layers::ModuleSequence<SumOfBranches> {
 public:
  static constexpr const char* kName = "SumOfBranches";

  SumOfBranches() = default;
  /// Takes the modules over.
  template <layers::Child... M>
  requires(sizeof...(M) > 0 && !layers::kIsOneOf<SumOfBranches, M...>) explicit SumOfBranches(M... modules) {
    (push_back(std::move(modules)), ...);
  }

  /// x of any shape that the branches take, concurrently as in MeanOfBranches. Throws ShapeError without branches, or where
  /// their results differ in shape, and what the branches throw.
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  /// Branches of different latency wait for one another. Throws NotImplemented where branches differ in rate.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
};

}  // namespace polyphase
