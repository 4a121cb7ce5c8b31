#include "layers/containers/branches.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>

#include "device/backend.hpp"
#include "layers/module.hpp"
#include "ops/activations.hpp"
#include "ops/elementwise.hpp"

namespace polyphase::layers {
namespace {

void require_branches(const char* name, std::size_t count) {
  require<ShapeError>(count > 0, name, ": expected at least one branch, got none");
}

void require_alike(const char* name, const std::vector<Tensor>& results) {
  const Tensor& first = results.front();
  for (std::size_t i = 1; i < results.size(); ++i)
    require<ShapeError>(results[i].shape() == first.shape(), name, ": expected branches of one shape, got ", first.shape(),
                        " from branch 0 and ", results[i].shape(), " from branch ", i);
}

/// A branch of a larger input fills a GPU alone, and concurrent branches need more memory.
constexpr std::size_t kMostBytesConcurrent = std::size_t{1} << 24;

/// A fork for the branches of x, if it is small.
std::unique_ptr<BackendFork> fork_for(Modules modules, const Tensor& x) {
  if (!x.defined() || static_cast<std::size_t>(x.numel()) * size_of(x.dtype()) > kMostBytesConcurrent) return nullptr;
  return backend_of(x.device()).make_fork(modules.size());
}

/// The sum of the branches' results, or their mean, and an activation of it.
Tensor combined(const char* name, const std::vector<Tensor>& results, BranchSum kind, const ConvOutputOptions& output) {
  require_alike(name, results);
  const Tensor& first = results.front();
  const bool is_active = output.activation != Activation::none;
  if (results.size() == 1 && !is_active) return first;
  const double divisor = kind == BranchSum::mean ? static_cast<double>(results.size()) : 1;
  const auto is_alike = [&](const Tensor& y) { return y.dtype() == first.dtype() && y.device() == first.device(); };
  if (is_floating_point(first.dtype()) && std::ranges::all_of(results, is_alike))
    return average_of(results, divisor, output.activation, output.slope);
  Tensor total = first;  // add() says what does not fit
  for (std::size_t i = 1; i < results.size(); ++i) total = total + results[i];
  if (divisor != 1) total = div(total, Tensor::full({}, divisor, {total.dtype(), total.device()}));
  return is_active ? average_of(std::array{total}, 1, output.activation, output.slope) : total;
}

}  // namespace

Tensor forward_branches(const char* name, Modules modules, Tensor x, BranchSum kind, const ConvOutputOptions& output) {
  require_branches(name, modules.size());
  std::vector<Tensor> results(modules.size());
  if (const auto fork = fork_for(modules, x)) {
    for (std::size_t i = 0; i < modules.size(); ++i) fork->run(i, [&] { results[i] = forward_one(*modules[i], x); });
    fork->join();
    Tensor total = combined(name, results, kind, output);
    for (std::size_t i = 0; i < modules.size(); ++i) fork->run(i, [&] { results[i] = {}; });
    return total;
  }
  for (std::size_t i = 0; i + 1 < modules.size(); ++i) results[i] = forward_one(*modules[i], x);
  results.back() = forward_one(*modules.back(), std::move(x));
  return combined(name, results, kind, output);
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
  std::vector<Tensor> parts;
  for (const Tensor& y : results) parts.push_back(last ? y : y.narrow(2, 0, ready));
  Tensor total = combined(name_, parts, kind_, {});
  for (std::size_t i = 0; i < results.size(); ++i) ahead_[i].keep(results[i].narrow(2, ready, results[i].size(2) - ready));
  return total;
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
