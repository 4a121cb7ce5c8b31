#include "layers/containers/mean_of_branches.hpp"

#include <algorithm>
#include <numeric>

#include "layers/fused.hpp"
#include "layers/streaming/module_stream.hpp"
#include "ops/elementwise.hpp"

namespace polyphase {
namespace {

constexpr const char* kName = MeanOfBranches::kName;

/// The sum of the branches before branch `index`, plus its result.
Tensor with_branch(const Tensor& total, const Tensor& y, std::size_t index) {
  require<ShapeError>(y.shape() == total.shape(), kName, ": expected branches of one shape, got ", total.shape(),
                      " from branch 0 and ", y.shape(), " from branch ", index);
  return total + y;
}

Tensor divided(const Tensor& total, std::size_t branches) {
  if (branches == 1) return total;
  return div(total, Tensor::full({}, static_cast<double>(branches), {total.dtype(), total.device()}));
}

class MeanOfBranchesStream : public ModuleStream {
 public:
  explicit MeanOfBranchesStream(layers::Modules modules) : ahead_(modules.size()) {
    for (const auto& module : modules) {
      branches_.push_back(module->make_stream());
      layout_ = layers::joined(layout_, *branches_.back(), *module);
      const Rate first = rate(), own = branches_.back()->rate();
      require<NotImplemented>(own.up * first.down == first.up * own.down, "stream: ", kName,
                              ": expected branches of one rate, got ", first.up, "/", first.down, " of branch 0 and ", own.up,
                              "/", own.down, " of branch ", branches_.size() - 1);
    }
  }

  [[nodiscard]] Tensor push(const Tensor& x, bool last) override {
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < branches_.size(); ++i) results.push_back(ahead_[i].followed_by(branches_[i]->push(x, last)));
    std::int64_t ready = results.front().size(2);
    for (const Tensor& result : results) ready = std::min(ready, result.size(2));
    Tensor total;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Tensor& y = results[i];
      const Tensor part = last ? y : y.narrow(2, 0, ready);
      total = i == 0 ? part : with_branch(total, part, i);
      ahead_[i].keep(y.narrow(2, ready, y.size(2) - ready));
    }
    return divided(total, results.size());
  }

  void reset() override {
    for (const auto& branch : branches_) branch->reset();
    for (layers::HeldPositions& ahead : ahead_) ahead.clear();
  }

  [[nodiscard]] Span inputs_of(Span outputs) const override {
    Span all = branches_.front()->inputs_of(outputs);
    for (const auto& branch : branches_) {
      const Span span = branch->inputs_of(outputs);
      all = {std::min(all.first, span.first), std::max(all.last, span.last)};
    }
    return all;
  }
  [[nodiscard]] Rate rate() const override { return branches_.front()->rate(); }
  [[nodiscard]] std::int64_t period() const override {
    std::int64_t all = 1;
    for (const auto& branch : branches_) all = std::lcm(all, branch->period());
    return all;
  }
  [[nodiscard]] Layout layout() const override { return layout_; }

 private:
  std::vector<std::unique_ptr<ModuleStream>> branches_;
  std::vector<layers::HeldPositions> ahead_;  // per branch: outputs that wait for another branch
  Layout layout_ = Layout::any;
};

}  // namespace

Tensor MeanOfBranches::forward(const Tensor& x) {
  require<ShapeError>(size() > 0, kName, ": expected at least one branch, got none");
  Tensor total = (*this)[0].forward(x);
  for (std::size_t i = 1; i < size(); ++i) total = with_branch(total, (*this)[i].forward(x), i);
  return divided(total, size());
}

std::unique_ptr<ModuleStream> MeanOfBranches::make_stream() {
  require<ShapeError>(size() > 0, kName, ": expected at least one branch, got none");
  return std::make_unique<MeanOfBranchesStream>(modules());
}

}  // namespace polyphase
