#include "layers/containers/branches.hpp"

#include <algorithm>
#include <numeric>

#include "layers/module.hpp"
#include "ops/elementwise.hpp"

namespace polyphase::layers {
namespace {

void require_branches(const char* name, std::size_t count) {
  require<ShapeError>(count > 0, name, ": expected at least one branch, got none");
}

/// The sum of the branches before number `index` and of its result.
Tensor with_branch(const char* name, const Tensor& total, const Tensor& y, std::size_t index) {
  require<ShapeError>(y.shape() == total.shape(), name, ": expected branches of one shape, got ", total.shape(),
                      " from branch 0 and ", y.shape(), " from branch ", index);
  return total + y;
}

Tensor finished(const Tensor& total, std::size_t branches, BranchSum kind) {
  if (branches == 1 || kind == BranchSum::plain) return total;
  return div(total, Tensor::full({}, static_cast<double>(branches), {total.dtype(), total.device()}));
}

}  // namespace

Tensor forward_branches(const char* name, Modules modules, const Tensor& x, BranchSum kind) {
  require_branches(name, modules.size());
  Tensor total = modules[0]->forward(x);
  for (std::size_t i = 1; i < modules.size(); ++i) total = with_branch(name, total, modules[i]->forward(x), i);
  return finished(total, modules.size(), kind);
}

BranchesStream::BranchesStream(const char* name, Modules modules, BranchSum kind)
    : name_(name), kind_(kind), ahead_(modules.size()) {
  require_branches(name, modules.size());
  for (const auto& module : modules) {
    branches_.push_back(module->make_stream());
    layout_ = joined(layout_, *branches_.back(), *module);
    const Rate first = rate(), own = branches_.back()->rate();
    require<NotImplemented>(own.up * first.down == first.up * own.down, "stream: ", name,
                            ": expected branches of one rate, got ", first.up, "/", first.down, " of branch 0 and ", own.up,
                            "/", own.down, " of branch ", branches_.size() - 1);
  }
}

Tensor BranchesStream::push(const Tensor& x, bool last) {
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < branches_.size(); ++i) results.push_back(ahead_[i].followed_by(branches_[i]->push(x, last)));
  std::int64_t ready = results.front().size(2);
  for (const Tensor& result : results) ready = std::min(ready, result.size(2));
  Tensor total;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Tensor& y = results[i];
    const Tensor part = last ? y : y.narrow(2, 0, ready);
    total = i == 0 ? part : with_branch(name_, total, part, i);
    ahead_[i].keep(y.narrow(2, ready, y.size(2) - ready));
  }
  return finished(total, results.size(), kind_);
}

void BranchesStream::reset() {
  for (const auto& branch : branches_) branch->reset();
  for (HeldPositions& ahead : ahead_) ahead.clear();
}

Span BranchesStream::inputs_of(Span outputs) const {
  Span all = branches_.front()->inputs_of(outputs);
  for (const auto& branch : branches_) {
    const Span span = branch->inputs_of(outputs);
    all = {std::min(all.first, span.first), std::max(all.last, span.last)};
  }
  return all;
}

std::int64_t BranchesStream::period() const {
  std::int64_t all = 1;
  for (const auto& branch : branches_) all = std::lcm(all, branch->period());
  return all;
}

}  // namespace polyphase::layers
