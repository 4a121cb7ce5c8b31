#include "distributed/sharded_optimizer.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "autograd/no_grad.hpp"
#include "device/backend.hpp"
#include "distributed/data_parallel_state.hpp"
#include "ops/elementwise.hpp"
#include "optim/state_reader.hpp"

namespace polyphase::distributed {
namespace {

constexpr const char* kShardedOptimizer = "ShardedOptimizer";
constexpr std::array kMoments{"momentum", "second"};

std::string entry_name(std::size_t index, const char* what) { return concat(index, '.', what); }

// A bucket's parameters, or what belongs to them, one after another as in its buffer.
template <class TensorOf>
Tensor flattened(const Bucket& bucket, const TensorOf& tensor_of) {
  const Tensor flat = Tensor::zeros_like(bucket.buffer);
  for (const BucketSlot& slot : bucket.slots)
    flat.narrow(0, slot.offset, slot.numel).copy_(tensor_of(slot.parameter).detach().reshape({slot.numel}));
  return flat;
}

const Tensor* find(const OptimizerState& state, const std::string& name) {
  for (const auto& [key, tensor] : state.tensors)
    if (key == name) return &tensor;
  return nullptr;
}

const double* find_number(const OptimizerState& state, const std::string& name) {
  for (const auto& [key, number] : state.numbers)
    if (key == name) return &number;
  return nullptr;
}

bool is_of_group(const std::string& name) { return name.starts_with("group") || name == "steps"; }

}  // namespace

ShardedOptimizer::ShardedOptimizer(DataParallel& parallel, const Make& make) : parallel_(parallel) {
  require<Error>(parallel.state().options.shard_gradients, kShardedOptimizer, ": expected a DataParallel with shard_gradients");
  const NoGradGuard no_grad;
  for (const Bucket& bucket : parallel.state().buckets) {
    Tensor shard = Tensor::empty_like(own_share(bucket.buffer));
    shards_.push_back(shard.set_requires_grad(true));
  }
  take_parameters();
  local_ = make(shards_);
  (void)gradients();
}

Tensor ShardedOptimizer::own_share(const Tensor& flat) const {
  const Group& group = parallel_.state().group;
  const std::int64_t size = flat.numel() / group.world();
  return flat.narrow(0, group.rank() * size, size);
}

void ShardedOptimizer::take_parameters() {
  const NoGradGuard no_grad;
  const DataParallel::State& state = parallel_.state();
  for (std::size_t b = 0; b < shards_.size(); ++b)
    shards_[b].detach().copy_(own_share(flattened(state.buckets[b], [&](std::size_t i) { return state.parameters[i]; })));
}

// The gradients' buffers are free after a step: the parameters are sent in them.
void ShardedOptimizer::give_parameters() {
  const DataParallel::State& state = parallel_.state();
  std::vector<Pending> pending;
  for (std::size_t b = 0; b < shards_.size(); ++b) {
    const Tensor& buffer = state.buckets[b].buffer;
    own_share(buffer).copy_(shards_[b].detach());
    if (state.group.world() > 1)
      pending.push_back(state.group.communicator().all_gather(buffer, concat("parameters of bucket ", b)));
  }
  for (Pending& each : pending) each.wait();
  for (std::size_t i = 0; i < state.parameters.size(); ++i) state.parameters[i].detach().copy_(state.places[i].view);
}

// Each share's gradient is its place in the bucket.
std::vector<Tensor> ShardedOptimizer::gradients() const {
  std::vector<Tensor> gradients;
  for (std::size_t b = 0; b < shards_.size(); ++b) {
    gradients.push_back(own_share(parallel_.state().buckets[b].buffer));
    shards_[b].set_grad(gradients.back());
  }
  return gradients;
}

void ShardedOptimizer::step(const Tensor& skip) {
  const NoGradGuard no_grad;
  const DataParallel::State& state = parallel_.state();
  for (std::size_t i = 0; i < state.parameters.size(); ++i)
    require<Error>(state.parameters[i].grad().defined(), kShardedOptimizer, "::step: parameter ", state.names[i],
                   " has no gradient");
  (void)gradients();
  local_->step(skip);
  give_parameters();
  zero_grad();
}

void ShardedOptimizer::zero_grad() {
  for (const Tensor& parameter : parallel_.state().parameters) parameter.set_grad({});
}

Tensor ShardedOptimizer::clip_grad_norm(double max_norm) {
  require<ShapeError>(max_norm > 0, kShardedOptimizer, "::clip_grad_norm: expected max_norm > 0, got ", max_norm);
  const NoGradGuard no_grad;
  const Group& group = parallel_.state().group;
  const TensorOptions number{.dtype = DType::f64, .device = group.device()};
  const std::vector<Tensor> shares = gradients();
  const Tensor norm = Tensor::zeros({}, number);
  Backend& backend = backend_of(group.device());
  backend.clip_norm(shares, std::numeric_limits<double>::infinity(), true, norm);
  const Tensor squares = mul(norm, norm);
  if (group.world() > 1) group.communicator().all_reduce(squares, Combine::sum, "squares of the gradients").wait();
  const Tensor total = sqrt(squares);
  const Tensor divisor = maximum(mul(add(total, 1e-6), 1 / max_norm), Tensor::ones({}, number));
  backend.unscale(shares, divisor, Tensor::zeros({}, number));
  for (const Tensor& share : shares) share.storage().bump_version();
  return total;
}

std::function<void(const Tensor& found)> ShardedOptimizer::agree() const {
  return [group = parallel_.state().group](const Tensor& found) {
    if (group.world() > 1) group.communicator().all_reduce(found, Combine::sum, "overflow").wait();
  };
}

OptimizerState ShardedOptimizer::state() {
  const NoGradGuard no_grad;
  const DataParallel::State& state = parallel_.state();
  const OptimizerState local = local_->state();
  OptimizerState whole;
  whole.numbers.emplace_back("parameters", static_cast<double>(state.parameters.size()));
  for (const auto& [name, number] : local.numbers)
    if (is_of_group(name)) whole.numbers.emplace_back(name, number);
  for (std::size_t b = 0; b < shards_.size(); ++b) {
    const double* steps = find_number(local, entry_name(b, "steps"));
    if (steps == nullptr) continue;
    for (const BucketSlot& slot : state.buckets[b].slots)
      whole.numbers.emplace_back(entry_name(slot.parameter, "steps"), *steps);
    for (const char* moment : kMoments) {
      const Tensor* share = find(local, entry_name(b, moment));
      if (share == nullptr) continue;
      const Tensor flat = Tensor::empty_like(state.buckets[b].buffer);
      own_share(flat).copy_(*share);
      if (state.group.world() > 1) state.group.communicator().all_gather(flat, concat(moment, " of bucket ", b)).wait();
      for (const BucketSlot& slot : state.buckets[b].slots)
        whole.tensors.emplace_back(
            entry_name(slot.parameter, moment),
            flat.narrow(0, slot.offset, slot.numel).reshape(state.parameters[slot.parameter].shape()).clone());
    }
  }
  return whole;
}

void ShardedOptimizer::load_state(const OptimizerState& whole) {
  const NoGradGuard no_grad;
  const DataParallel::State& state = parallel_.state();
  const StateReader reader(kShardedOptimizer, whole);
  const std::int64_t parameters = reader.count("parameters");
  require<Error>(parameters == static_cast<std::int64_t>(state.parameters.size()), kShardedOptimizer,
                 "::load_state: expected the state of ", state.parameters.size(), " parameters, got ", parameters);
  OptimizerState local;
  local.numbers.emplace_back("parameters", static_cast<double>(shards_.size()));
  for (const auto& [name, number] : whole.numbers)
    if (is_of_group(name)) local.numbers.emplace_back(name, number);
  for (std::size_t b = 0; b < shards_.size(); ++b) {
    const std::vector<BucketSlot>& slots = state.buckets[b].slots;
    const std::string first = entry_name(slots.front().parameter, "steps");
    const bool has_steps = find_number(whole, first) != nullptr;
    for (const BucketSlot& slot : slots) {
      const std::string name = entry_name(slot.parameter, "steps");
      const double* steps = find_number(whole, name);
      require<Error>((steps != nullptr) == has_steps && (!has_steps || *steps == reader.number(first)), kShardedOptimizer,
                     "::load_state: expected the same number of steps for all parameters, ", name, " differs from ", first);
    }
    if (!has_steps) continue;
    local.numbers.emplace_back(entry_name(b, "steps"), reader.number(first));
    for (const char* moment : kMoments) {
      if (find(whole, entry_name(slots.front().parameter, moment)) == nullptr) continue;
      const Tensor flat =
          flattened(state.buckets[b], [&](std::size_t i) { return reader.tensor(entry_name(i, moment), state.parameters[i]); });
      local.tensors.emplace_back(entry_name(b, moment), own_share(flat).clone());
    }
  }
  local_->load_state(local);
  take_parameters();
}

}  // namespace polyphase::distributed
