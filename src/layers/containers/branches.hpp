#pragma once
// Modules that are given the same input and whose results are added: MeanOfBranches and SumOfBranches. Internal.

#include <cstdint>
#include <memory>
#include <vector>

#include "layers/fused.hpp"
#include "layers/streaming/module_stream.hpp"
#include "ops/conv_output.hpp"

namespace polyphase::layers {

/// What becomes of the sum.
enum class BranchSum : std::uint8_t { plain, mean };

/// The sum of the results of `modules`, in order; `mean` divides it by their number. Then the activation of `output`: none,
/// relu or leaky_relu. Throws ShapeError that begins with `name` where there are no modules, or where their results differ in
/// shape. The last module is given the only handle on `x` that this has: memory of x is free as soon as it is read.
[[nodiscard]] Tensor forward_branches(const char* name, Modules modules, Tensor x, BranchSum kind,
                                      const ConvOutputOptions& output = {});

/// The same in a Stream: branches of different latency wait for one another.
class BranchesStream : public ModuleStream {
 public:
  /// Throws NotImplemented where branches differ in rate, ShapeError where there are none.
  BranchesStream(const char* name, Modules modules, BranchSum kind);
  [[nodiscard]] Tensor push(const Tensor& x, bool last) override;
  void reset() override;
  [[nodiscard]] Span inputs_of(Span outputs) const override;
  [[nodiscard]] Rate rate() const override { return branches_.front()->rate(); }
  [[nodiscard]] std::int64_t period() const override;
  [[nodiscard]] Layout layout() const override { return layout_; }

 private:
  const char* name_;
  BranchSum kind_;
  std::vector<std::unique_ptr<ModuleStream>> branches_;
  std::vector<HeldPositions> ahead_;  // of each branch: outputs for which another one waits
  Layout layout_ = Layout::any;
};

}  // namespace polyphase::layers
