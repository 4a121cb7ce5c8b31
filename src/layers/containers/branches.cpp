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

/// `results`: of the last of `branches`, the first one perhaps with those before.
void require_alike(const char* name, const std::vector<Tensor>& results, std::size_t branches) {
  const Tensor& first = results.front();
  for (std::size_t i = 1; i < results.size(); ++i)
    require<ShapeError>(results[i].shape() == first.shape(), name, ": expected branches of one shape, got ", first.shape(),
                        " from branch 0 and ", results[i].shape(), " from branch ", branches - results.size() + i);
}

/// A branch of a larger input fills a GPU alone, and concurrent branches need more memory. The blocks of a unit's kernel are so
/// long that the last of them leave much of the GPU idle for a larger input too.
constexpr std::size_t kMostBytesConcurrent = std::size_t{1} << 24, kMostBytesOfUnits = std::size_t{1} << 26;

/// A fork for the branches of x, if it is small.
std::unique_ptr<BackendFork> fork_for(Modules modules, const Tensor& x) {
  const bool are_of_units = std::ranges::all_of(modules, [](const auto& module) { return is_of_units(*module); });
  const std::size_t most = are_of_units ? kMostBytesOfUnits : kMostBytesConcurrent;
  if (!x.defined() || static_cast<std::size_t>(x.numel()) * size_of(x.dtype()) > most) return nullptr;
  return backend_of(x.device()).make_fork(modules.size());
}

double divisor_of(BranchSum kind, std::size_t branches) { return kind == BranchSum::mean ? static_cast<double>(branches) : 1; }

/// The sum of the results of `branches`, or their mean, and an activation of it. The first result may be the sum of several.
Tensor combined(const char* name, const std::vector<Tensor>& results, std::size_t branches, BranchSum kind,
                const ConvOutputOptions& output) {
  require_alike(name, results, branches);
  const double divisor = divisor_of(kind, branches);
  const Tensor& first = results.front();
  const bool is_active = output.activation != Activation::none;
  if (results.size() == 1 && divisor == 1 && !is_active) return first;
  const auto is_alike = [&](const Tensor& y) { return y.dtype() == first.dtype() && y.device() == first.device(); };
  if (is_floating_point(first.dtype()) && std::ranges::all_of(results, is_alike))
    return average_of(results, divisor, output.activation, output.slope);
  Tensor total = first;  // add() says what does not fit
  for (std::size_t i = 1; i < results.size(); ++i) total = total + results[i];
  if (divisor != 1) total = div(total, Tensor::full({}, divisor, {total.dtype(), total.device()}));
  return is_active ? average_of(std::array{total}, 1, output.activation, output.slope) : total;
}

/// Tensors of which one more or less matters.
constexpr std::size_t kLargeBytes = std::size_t{1} << 28;

bool is_large(const Tensor& y) {
  return y.size(0) > 1 && static_cast<std::size_t>(y.numel()) * size_of(y.dtype()) >= kLargeBytes;
}

/// total += the branch's result, one half of the batch after the other: what is between its units needs half of the memory.
/// `total` has memory of its own, and the branch computes each sample by itself.
void add_in_halves(Module& module, const Tensor& x, const Tensor& total) {
  const std::int64_t rows = x.size(0), half = rows / 2;
  for (const auto& [first, count] : {std::pair{std::int64_t{0}, half}, std::pair{half, rows - half}}) {
    Tensor sum = total.narrow(0, first, count);
    const Averaged next = forward_averaged(module, x.narrow(0, first, count), {sum}, true);
    if (!next.is_of_kernel) sum.copy_(average_of(std::array{sum, next.y}, 1));
  }
}

/// One branch after the other. The last unit of a branch adds to the results before where its kernel can.
Tensor forward_in_turn(const char* name, Modules modules, Tensor x, BranchSum kind, const ConvOutputOptions& output) {
  std::vector<Tensor> results;
  bool owns_memory = false;  // the first result
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const bool is_last = i + 1 == modules.size(), is_single = results.size() == 1;
    if (owns_memory && is_single && !is_last && is_large(x) && x.shape() == results[0].shape() && is_of_units(*modules[i])) {
      add_in_halves(*modules[i], x, results[0]);
      continue;
    }
    Tensor own = is_last ? std::move(x) : x;
    if (results.size() > 1) {  // they would need a pass of their own first
      results.push_back(forward_one(*modules[i], std::move(own)));
      continue;
    }
    AverageWith average;
    if (is_single) average.other = results[0];
    if (is_last) average = {average.other, divisor_of(kind, modules.size()), output.activation, output.slope};
    Averaged next = forward_averaged(*modules[i], std::move(own), average);
    if (is_single && is_last && next.is_of_kernel) return std::move(next.y);
    if (next.is_of_kernel) results.clear();
    owns_memory = next.is_of_kernel;
    results.push_back(std::move(next.y));
  }
  return combined(name, results, modules.size(), kind, output);
}

}  // namespace

Tensor forward_branches(const char* name, Modules modules, Tensor x, BranchSum kind, const ConvOutputOptions& output) {
  require_branches(name, modules.size());
  const auto fork = fork_for(modules, x);
  if (fork == nullptr) return forward_in_turn(name, modules, std::move(x), kind, output);
  std::vector<Tensor> results(modules.size());
  for (std::size_t i = 0; i < modules.size(); ++i) fork->run(i, [&] { results[i] = forward_one(*modules[i], x); });
  fork->join();
  Tensor total = combined(name, results, modules.size(), kind, output);
  for (std::size_t i = 0; i < modules.size(); ++i) fork->run(i, [&] { results[i] = {}; });
  return total;
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
  Tensor total = combined(name_, parts, parts.size(), kind_, {});
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
